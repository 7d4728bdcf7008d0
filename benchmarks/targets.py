"""The project's targets, row by row: what each asks, and what a run measured against it."""

from collections.abc import Callable, Iterable, Sequence

from trueno.text import duration

from benchmarks.compare import Record
from benchmarks.rows import ROWS, door, engine, functions, general, lz4, ptx, quartiles, text, wgpu
from benchmarks.rows.quant import GGUF, MATMUL, MATVEC
from benchmarks.rows.regret_gpu import HOST, THERE
from benchmarks.rows.rust import PUBLISHED_NS
from benchmarks.rows.structured import MATMUL as MATMUL_SIZES
from benchmarks.targets_cuda import cuda_verdicts, engine_verdicts, gpus_verdicts, language_verdicts, lz4_verdicts
from benchmarks.targets_dask import dask_verdicts
from benchmarks.timing import OURS, geometric_mean, median
from benchmarks.verdict import Verdict, times
from benchmarks.verdict import missing as _missing
from benchmarks.verdict import one as _one

LEVEL, SHARED = 1.0, 0.95
"""The least ratio of a cell, and of one in which both come as near to the memory's floor as `NEAR` says."""
NEAR = 1.3
SEVERAL = ("swiglu", "geglu", "bias_activation", "residual_add")
MANY = text(ROWS)
GEOMEANS = {"1 024": 5.0, "100 000": 2.0, "1 000 000": 1.8, "16 000 000": 1.7, MANY: 2.0}
NAMED = ("exp", "tanh", "gelu", "mish", "softplus", "dot", "sum", "norm_l2", "variance")
ROW_OPS = {
    ("softmax", MANY): 1.8,
    ("log_softmax", MANY): 1.8,
    ("layer_norm", MANY): 1.2,
    ("rms_norm", MANY): 3.0,
    ("softmax", "16384×64"): 1.0,
    ("softmax", "262144×4"): 1.0,
}
STRUCTURED = {("matmul", f"{n}²"): 0.98 for n in MATMUL_SIZES}
STRUCTURED |= {("convolve2d", "3×3 on 1024²"): 5.0, ("convolve2d", "7×7 on 1024²"): 5.0, ("transpose", "2048²"): 2.0}
STRUCTURED |= {("attention", "4096 tokens, 14 heads, 64"): 1.0}
IN_PLACE = 1.3
GUARDED = 1.10
BATCH = {
    ("relu scale add", "1 000 000"): 2.5,
    ("relu scale add", "16 000 000"): 2.5,
    ("8 elementwise ops", "16 000 000"): 4.0,
    ("layer_norm gelu", MANY): 1.4,
    ("residual_rms_norm scale", MANY): 1.4,
    ("200 short kernels", "64"): 3,
}
REPLAY_S = 3e-6
QUANT: dict[str, tuple[tuple[str, str, float], ...]] = {  # what ours is: whom over, in words; a row's name, the target
    "ggml": (
        *((f"mat-vec {name}", f"quant_matvec {name}", 1.0) for name in MATVEC),
        *((f"mat-mul {name}", f"quant_matmul {name}", 0.9) for name in MATMUL),
        ("dequantize, each format", "dequantize", 1.0),
        ("quantize, each format", "quantize_rows", 1.0),
    ),
    GGUF: (("dequantize, each format", "dequantize", 5.0), ("quantize, each format", "quantize_rows", 5.0)),
}
LZ4 = {"lz4_decompress": 1.5, "lz4_compress": 1.2}
LZ4_SIZE = 1.08
REGRET_MEAN, REGRET_WORST = 1.05, 1.5
AWAIT_S, GENERAL_S = 40e-6, 2e-6


def is_op(record: Record) -> bool:
    """Whether a record is an elementwise op or a reduction against its peers.

    Those in `SEVERAL` are not: others need several calls for each, which would flatter the mean.
    """
    return record.group in ("elementwise", "reductions") and record.name.split()[0] not in SEVERAL


def least(record: Record) -> float:
    """The ratio that a cell must reach."""
    if record.limit != "bytes" or not record.floor or record.peer not in record.seconds:
        return LEVEL
    slower = max(record.seconds[OURS], record.seconds[record.peer])
    return SHARED if slower <= NEAR * record.floor else LEVEL


def below(records: Iterable[Record]) -> list[Record]:
    """Cells of ops that miss that, worst first."""
    eligible = [r for r in records if r.value is not None and (is_op(r) or r.group == "rows")]
    return sorted((r for r in eligible if r.value < least(r)), key=lambda r: r.value or 0.0)


def _dispatch(records: Sequence[Record]) -> Verdict:
    row, target = "dispatch: Python function with out= minus the bare kernel", "≤ 200 ns"
    measured = [r for r in records if r.group == "dispatch" and r.value is not None]
    if not measured:
        return _missing(row, target)
    worst = max(measured, key=lambda r: r.value or 0.0)
    middle = median(r.value or 0.0 for r in measured)
    add = next((r.value for r in measured if r.name == "add"), None)
    shown = f"worst {duration(worst.value or 0)} ({worst.name}), median {duration(middle)} of {len(measured)} ops"
    shown += f", add {duration(add)}" if add is not None else ""
    return Verdict(row, target, shown, (worst.value or 0.0) <= 200e-9)


def _door(records: Sequence[Record]) -> list[Verdict]:
    ratios = [
        _one(records, ("door", name, text((n,))), f"whole call: {name}, {text((n,))} elements, over NumPy",
             f"≤ {most:g}×", times, lambda v, most=most: v <= most)
        for (name, n), most in door.RATIOS.items()
    ]  # fmt: skip
    row, target = "whole call: add, out=, beyond the kernel's machine code", f"≤ {duration(door.BEYOND_S)}"
    beyond = _one(records, ("door", door.BEYOND), row, target, duration, lambda v: v <= door.BEYOND_S)
    row, target = "whole call: softmax of a PyTorch tensor, beyond that of an array", f"≤ {duration(door.TENSOR_S)}"
    tensor = _one(records, ("door", door.TENSOR), row, target, duration, lambda v: v <= door.TENSOR_S)
    return [*ratios, beyond, tensor]


def _general(records: Sequence[Record]) -> list[Verdict]:
    return [
        _one(records, ("general", name), f"beside the fast path: {name}, beyond the kernel and NumPy's copy",
             f"≤ {GENERAL_S * 1e6:g} µs", duration, lambda v: v <= GENERAL_S)
        for name in general.CASES
    ]  # fmt: skip


def _aio(records: Sequence[Record]) -> Verdict:
    row = "await trueno.aio.add over trueno.add, 1 024"
    return _one(records, ("aio", "add"), row, f"≤ {AWAIT_S * 1e6:g} µs", duration, lambda v: v <= AWAIT_S)


def _startup(records: Sequence[Record]) -> list[Verdict]:
    rows = (
        ("import trueno", "import trueno, beyond NumPy", "≤ 30 ms, no Numba, no plugin", 0.030),
        (
            "first backends()",
            "first trueno.backends(), 3 plugins or more, verdicts known",
            "≤ 20 ms, no plugin imported",
            0.020,
        ),
        ("first gelu, simd", "a second process's first gelu, after NumPy's import", "≤ 250 ms", 0.250),
        ("first gelu, scalar", "the same on the scalar backend", "≤ 20 ms", 0.020),
    )
    return [_one(records, ("startup", name), row, target, duration, lambda v, most=most: v <= most)
            for name, row, target, most in rows]  # fmt: skip


def _floors(records: Sequence[Record]) -> list[Verdict]:
    verdicts = []
    for shape in GEOMEANS:
        target = f"each ≥ {LEVEL:g}×, or ≥ {SHARED:g}× where both are near the memory's floor"
        row = f"every elementwise op and reduction, {shape}"
        measured = [r for r in records if is_op(r) and r.shape == shape and r.value is not None]
        if not measured:
            verdicts.append(_missing(row, target))
            continue
        bad = below(measured)
        shown = f"{len(measured) - len(bad)} of {len(measured)}"
        if bad:
            shown += f"; worst {bad[0].name} {times(bad[0].value or 0)}"
        verdicts.append(Verdict(row, target, shown, not bad))
    return verdicts


def _geomeans(records: Sequence[Record]) -> list[Verdict]:
    verdicts = []
    for shape, least in GEOMEANS.items():
        row, target = f"geometric mean over those ops, {shape}", f"≥ {least:g}×"
        ratios = [r.value for r in records if is_op(r) and r.shape == shape and r.value is not None]
        if not ratios:
            verdicts.append(_missing(row, target))
            continue
        mean = geometric_mean(ratios)
        shown = f"{times(mean)} (median {times(median(ratios))}, {len(ratios)} ops)"
        verdicts.append(Verdict(row, target, shown, mean >= least))
    return verdicts


def _ratios(records: Sequence[Record]) -> list[Verdict]:
    """Rows that are one ratio each."""
    verdicts = []
    for name in NAMED:
        group = "reductions" if name in ("dot", "sum", "norm_l2", "variance") else "elementwise"
        key = (group, name, "1 024")
        verdicts.append(_one(records, key, f"{name}, 1 024", "≥ 1.5×", times, lambda v: v >= 1.5))
    for group, targets in (("rows", ROW_OPS), ("structured", STRUCTURED)):
        for (name, shape), least in targets.items():
            good = lambda v, least=least: v >= least  # noqa: E731
            whom = " PyTorch" if name in ("convolve2d", "attention") else ""
            verdicts.append(_one(records, (group, name, shape), f"{name}, {shape}", f"≥ {least:g}×{whom}", times, good))
    return verdicts


def _in_place(records: Sequence[Record]) -> list[Verdict]:
    return [
        _one(records, ("inplace", name, shape), f"in place: {name}, {shape}", f"≤ {IN_PLACE:g}× of beside", times,
             lambda v: v <= IN_PLACE)
        for shape in ("1 024", "1 000 000") for name in ("gelu", "softmax", "add")
    ]  # fmt: skip


def _rust(records: Sequence[Record]) -> list[Verdict]:
    return [
        _one(records, ("rust", name), f"{name}, a row of 1000×1024", f"≤ {most} ns (Rust)", duration,
             lambda v, most=most: v <= most * 1e-9)
        for name, most in PUBLISHED_NS.items()
    ]  # fmt: skip


def _alone(records: Sequence[Record]) -> list[Verdict]:
    """Kernels alone, and what is quoted by quartiles."""
    return [
        *(_one(records, ("functions", name), f"{name} alone, one thread, an element", f"≤ {most:g} ns",
               lambda v: f"{v * 1e9:.3f} ns", lambda v, most=most: v <= most * 1e-9)
          for name, most in functions.MOST_NS.items()),
        *(_one(records, ("quartiles", name), f"{name}, {text((quartiles.N,))}, lower quartiles",
               f"≥ {quartiles.LEAST:g}×", times, lambda v: v >= quartiles.LEAST) for name in quartiles.OPS),
    ]  # fmt: skip


def _ptx(records: Sequence[Record]) -> list[Verdict]:
    return [
        *(_one(records, ("ptx", "parse", producer), f"parse PTX of {producer}", f"≥ {ptx.PARSED / 1e6:g} MB/s",
               lambda v: f"{v:.1f} MB/s", lambda v: v >= ptx.PARSED / 1e6)
          for producer in (*ptx.PRODUCERS, ptx.OWN, ptx.ALL)),
        *(_one(records, ("ptx", "judge", producer), f"all rules on an entry of {producer}", f"≤ {duration(ptx.JUDGED)}",
               duration, lambda v: v <= ptx.JUDGED) for producer in (*ptx.PRODUCERS, ptx.OWN)),
    ]  # fmt: skip


def _guards(records: Sequence[Record]) -> Verdict:
    row, target = (
        "guard for NaN and Inf: geometric mean of on over off, simd, a million elements",
        f"≤ {times(GUARDED)}",
    )
    measured = [r for r in records if r.group == "guards" and r.value is not None]
    if not measured:
        return _missing(row, target)
    mean, worst = geometric_mean(r.value or 1.0 for r in measured), max(measured, key=lambda r: r.value or 0.0)
    shown = f"{times(mean)} ({len(measured)} ops; worst {worst.name} {times(worst.value or 0)})"
    return Verdict(row, target, shown, mean <= GUARDED)


def _threads(records: Sequence[Record]) -> Verdict:
    row, target = "8 threads calling small ops under changing use() contexts", "right results"
    matches = [r for r in records if r.group == "threads" and r.value is not None]
    if not matches:
        return _missing(row, target)
    r = matches[0]
    beside = f"{duration(r.value or 0.0)} a call, with one thread {duration(r.seconds.get('one', 0.0))}"
    return Verdict(row, target, f"{r.problem or 'right'}; {beside}", not r.problem)


def _batch(records: Sequence[Record]) -> list[Verdict]:
    verdicts = [
        _one(records, ("batch", name, shape), f"batch: {name}, {shape}", f"≥ {least:g}×", times,
             lambda v, least=least: v >= least)
        for (name, shape), least in BATCH.items()
    ]  # fmt: skip
    row = "batch: executing again, 10 kernels, beyond them"
    key = ("batch", "execute beyond its kernels")
    return [*verdicts, _one(records, key, row, "≤ 3 µs", duration, lambda v: v <= REPLAY_S)]


def _quant(records: Sequence[Record]) -> list[Verdict]:
    """Rows that many cells answer; all of them must be above."""
    verdicts = []
    for whom, rows in QUANT.items():
        for title, name, least in rows:
            row, target = f"quantized: {title}, against {whom}", f"each ≥ {least:g}×"
            of = [r for r in records if r.group == "quant" and f"{r.name} ".startswith(f"{name} ")]
            of = [r for r in of if r.shape.endswith(GGUF) == (whom == GGUF)]
            broken = [r.problem for r in of if r.problem]
            pairs = [(r.value, r) for r in of if r.value is not None]
            if broken or not pairs:
                verdicts.append(_missing(row, target, broken[0] if broken else ""))
                continue
            worst, at = min(pairs, key=lambda pair: pair[0])
            good = sum(value >= least for value, _ in pairs)
            shown = f"{good} of {len(pairs)}, mean {times(geometric_mean(v for v, _ in pairs))}; worst {times(worst)}"
            shown += f" ({at.name}, {at.shape})"
            without = len(of) - len(pairs)
            shown += f"; {without} without a ratio" if without else ""
            verdicts.append(Verdict(row, target, shown, False if good < len(pairs) else None if without else True))
    return verdicts


def _lz4(records: Sequence[Record]) -> list[Verdict]:
    """Ours on two threads against the package on one, and how large the blocks are."""
    where, verdicts = lz4.shape(lz4.EACH, lz4.THREADS[-1]), []
    for name, least in LZ4.items():
        row, target = f"{name}, {lz4.THREADS[-1]} threads, against the package's one", f"≥ {least:g}×"
        verdicts.append(_one(records, ("lz4", name, where), row, target, times, lambda v, least=least: v >= least))
    row, key = "lz4_compress: size of the blocks over the package's", ("lz4", "lz4_compress", lz4.SIZES)
    verdicts.append(_one(records, key, row, f"≤ {LZ4_SIZE:g}×", lambda v: f"{1 / v:.3f}×", lambda v: 1 / v <= LZ4_SIZE))
    return verdicts


def _engine(records: Sequence[Record]) -> list[Verdict]:
    mine = [r for r in records if r.group == "engine"]
    row, target = "engine: a decode step beyond its kernels, recorded", f"≤ {duration(engine.BEYOND_S)}"
    verdicts = []
    for r in (r for r in mine if r.name == engine.BEYOND and r.value is not None):
        shown = f"{duration(r.value or 0)}; {duration(r.seconds.get(engine.WARM, 0.0))} with {engine.WARM}"
        verdicts.append(Verdict(f"{row}, {r.shape}", target, shown, (r.value or 0) <= engine.BEYOND_S))
    for r in (r for r in mine if r.name == engine.PROMPT and r.value is not None):
        target = f"≥ {engine.TOGETHER:g}× where arithmetic is not the bound"
        reached = (r.value or 0) >= engine.TOGETHER
        good = None if r.limit == "flops" and not reached else reached  # where it is, the ratio is no target
        verdicts.append(
            Verdict(f"engine: {engine.PROMPT}, {r.shape}", target, f"{times(r.value or 0)}; {r.peer}", good)
        )
    return verdicts or [_missing(row, target)]


def _wgpu(records: Sequence[Record]) -> list[Verdict]:
    counted = _one(records, ("wgpu", wgpu.COUNTED), "wgpu: relu, scale, add in a batch, counted", wgpu.EXPECTED,
                   lambda v: next(r.peer for r in records if r.name == wgpu.COUNTED), lambda v: v == 1)  # fmt: skip
    rows: tuple[tuple[str, str, str, Callable[[float], str], Callable[[float], bool]], ...] = (
        (wgpu.SAVED, "relu, scale, add in a batch, against three calls", "≥ 3×", times, lambda v: v >= 3),
        (wgpu.SMALL, "add of 1 024, NumPy in and out", "≤ 200 µs", duration, lambda v: v <= 200e-6),
        (wgpu.PRODUCT, "matmul, 4096²", "≥ 30 TFLOP/s", lambda v: f"{v / 1e12:.1f} TFLOP/s", lambda v: v >= 30e12),
        (wgpu.VECTOR, "matvec, 4096², resident", "≥ 1.5 TB/s", lambda v: f"{v / 1e12:.2f} TB/s", lambda v: v >= 1.5e12),
        (wgpu.KEPT, "kept weight of 1024², one row, against uploading it", "≥ 2×", times, lambda v: v >= 2),
    )
    verdicts = [
        _one(records, ("wgpu", name), f"wgpu: {row}", target, show, good) for name, row, target, show, good in rows
    ]
    return [counted, *verdicts]


def regrets(records: Sequence[Record]) -> list[Record]:
    """Rows in which the selector chose a slower backend than the best, worst first."""
    slower = [r for r in records if r.group == "regret" and r.value is not None and r.value > 1]
    return sorted(slower, key=lambda r: -(r.value or 0.0))


def _regret(records: Sequence[Record]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for where, end in (("", ""), (HOST, HOST), (THERE, THERE)):
        listed = [r for r in records if r.group == "regret" and (r.name.endswith(end) if end else not _by_gpu(r))]
        verdicts += _chosen(f"regret of choosing a backend{where}", listed)
    return verdicts


def _by_gpu(r: Record) -> bool:
    return r.name.endswith((HOST, THERE))


def _chosen(row: str, records: Sequence[Record]) -> list[Verdict]:
    """Geometric mean and worst of these; what was left out, or failed, counts as not measured."""
    ratios = [r.value for r in records if r.value is not None]
    mean_row, worst_row = f"{row}: geometric mean", f"{row}: worst"
    if not ratios:
        return [_missing(mean_row, f"≤ {times(REGRET_MEAN)}"), _missing(worst_row, f"≤ {times(REGRET_WORST)}")]
    mean, worst = geometric_mean(ratios), max(ratios)
    at = next((f" ({r.name}, {r.shape})" for r in regrets(records)), "")
    return [
        Verdict(mean_row, f"≤ {times(REGRET_MEAN)}", f"{mean:.3f}× over {len(ratios)} cells", mean <= REGRET_MEAN),
        Verdict(worst_row, f"≤ {times(REGRET_WORST)}", f"{times(worst)}{at}", worst <= REGRET_WORST),
    ]


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """The whole table, in its order."""
    many = _ratios(records)
    structured = [v for v in many if v.row.startswith(("matmul", "convolve2d", "transpose"))]
    return [
        *_door(records),
        _dispatch(records),
        *_general(records),
        _aio(records),
        *_startup(records),
        *_floors(records),
        *_geomeans(records),
        *(v for v in many if v not in structured),
        *_alone(records),
        *_ptx(records),
        *_in_place(records),
        _guards(records),
        _threads(records),
        *structured,
        *_rust(records),
        *_batch(records),
        *_quant(records),
        *_lz4(records),
        *_engine(records),
        *dask_verdicts(records),
        *_wgpu(records),
        *cuda_verdicts(records),
        *language_verdicts(records),
        *engine_verdicts(records),
        *lz4_verdicts(records),
        *gpus_verdicts(records),
        *_regret(records),
    ]
