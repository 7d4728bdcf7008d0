"""The targets of CUDA's kernels, and of the example engine and LZ4 on a GPU."""

from collections.abc import Sequence

from trueno.text import duration

from benchmarks.compare import Record
from benchmarks.rows import cuda, engine_cuda, gpus, language_cuda, lz4_gpu
from benchmarks.verdict import Verdict, missing, one, times

CUDA: tuple[tuple[tuple[str, ...], float, str], ...] = (  # rows, what each must reach, and of what
    (("add", "relu", "gelu", cuda.CHAIN), 0.95, "a copy of the same bytes"),
    (("softmax", "layer_norm", "rms_norm"), 0.90, "a copy of the same array"),
    ((cuda.TUTORIAL,), 0.90, "a copy of the same bytes"),
    (("gelu bfloat16", "softmax bfloat16"), 0.90, "a copy of the same bytes"),
    (("sum", "argmax"), 0.94, "a copy of the same bytes, which is 93 % of reading them"),
    (("matmul",), 0.98, "cuBLAS"),
    (("matmul, our PTX",), 0.85, "cuBLAS"),
    (("matmul bfloat16, our PTX",), 0.85, "cuBLAS"),
    ((cuda.FEW_ROWS,), 0.95, "cuBLAS"),
)
LZ4 = {"lz4_compress": 30e9, lz4_gpu.DECOMPRESS: 100e9}
"""Uncompressed bytes a second of pages of 4 KiB on CUDA."""
LZ4_WGPU = 0.4
"""The share of CUDA's rate that wgpu is to reach on the same card."""
SHAPE = "7b"
"""Of the model whose engine has bars of its own: `--quick` measures a smaller one, which has none."""
CUDA_HOST = {cuda.PLANNED: 3e-6, cuda.CALLED: 6e-6, cuda.REPLAYED: 1.2e-6}


def cuda_verdicts(records: Sequence[Record]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    mine = [r for r in records if r.group == "cuda"]
    for names, least, whom in CUDA:
        row, target = f"cuda: {', '.join(names)}", f"each ≥ {least:.0%} of {whom}"
        measured = [r for r in mine if r.name in names and (r.value is not None or r.problem)]
        if not measured:
            verdicts.append(missing(row, target))
            continue
        worst = min(measured, key=lambda r: -1.0 if r.problem else r.value or 0.0)
        shown = worst.problem or f"worst {worst.value or 0:.0%}"
        good = all(not r.problem and (r.value or 0.0) >= least for r in measured)
        verdicts.append(Verdict(row, target, f"{shown} ({worst.name}, {worst.shape})", good))
    for name, most in CUDA_HOST.items():
        verdicts.append(
            one(mine, ("cuda", name), f"cuda: {name}", f"≤ {duration(most)}", duration, lambda v, most=most: v <= most)
        )
    return verdicts


def language_verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Of products with blocks and of attention, each in a chain of its own."""
    least = {
        (name, None): (most, f"of {language_cuda.READING}") for name, (_, _, most) in language_cuda.PRODUCTS.items()
    }
    least |= {
        (language_cuda.PROMPT, f"{n} tokens"): (most, "of PyTorch's speed") for n, most in language_cuda.PROMPTS.items()
    }
    least |= {
        (language_cuda.DECODE, language_cuda.sequences(n)): (most, f"of {language_cuda.READING}")
        for n, most in language_cuda.SEQUENCES.items()
    }
    verdicts = []
    for (name, shape), (at_least, whose) in least.items():
        key = (language_cuda.GROUP, name, *([shape] if shape else []))
        row = f"cuda, {name}" + (f": {shape}" if shape else "")
        verdicts.append(one(records, key, row, f"≥ {at_least:.0%} {whose}", lambda v: f"{v:.0%}",
                            lambda v, at_least=at_least: v >= at_least))  # fmt: skip
    eight, most = language_cuda.EIGHT, language_cuda.EIGHT_TIMES
    row = f"cuda, {language_cuda.GATE_UP}: {eight}, time"
    verdicts.append(one(records, (language_cuda.GROUP, eight), row, f"≤ {most:g}×", times, lambda v: v <= most))
    return verdicts


def engine_verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Of the example engine; a figure of llama.cpp's stands beside ours, as it was measured on that date."""
    verdicts = []
    for (shape, what, tokens, sequences), (least, theirs) in engine_cuda.SPEEDS.items():
        name = engine_cuda.title(what, tokens, sequences)
        target = f"≥ {least:g} tok/s" + (f" ({engine_cuda.LLAMA}: {theirs:g})" if theirs else "")
        verdicts.append(
            one(records, (engine_cuda.GROUP, name, shape), f"cuda, engine {shape}: {name}", target,
                lambda v: f"{v:.0f} tok/s", lambda v, least=least: v >= least)
        )  # fmt: skip
    most = {
        engine_cuda.HOST: engine_cuda.HOST_S,
        engine_cuda.GAP: engine_cuda.GAP_S,
        engine_cuda.LOAD: engine_cuda.LOAD_S,
    }
    for (name, shape), error in engine_cuda.ERRORS.items():
        verdicts.append(
            one(records, (engine_cuda.GROUP, name, shape), f"cuda, engine {shape}: {name}", f"NMSE ≤ {error:.0e}",
                lambda v: f"{v:.1e}", lambda v, error=error: v <= error)
        )  # fmt: skip
    least, key = engine_cuda.TOGETHER_TIMES, (engine_cuda.GROUP, engine_cuda.TOGETHER, SHAPE)
    row = f"cuda, engine: {engine_cuda.TOGETHER}"
    verdicts.append(one(records, key, row, f"≥ {least:g}×", times, lambda v: v >= engine_cuda.TOGETHER_TIMES))
    for name, at_most in most.items():
        verdicts.append(
            one(records, (engine_cuda.GROUP, name, SHAPE), f"cuda, engine: {name}", f"≤ {duration(at_most)}", duration,
                lambda v, at_most=at_most: v <= at_most)
        )  # fmt: skip
    return verdicts


def lz4_verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Pages of 4 KiB from the device's memory into it: CUDA, and wgpu beside it."""
    verdicts = []
    for name, least in LZ4.items():
        keys = {b: (lz4_gpu.GROUP, name, lz4_gpu.shape(lz4_gpu.PAGES[0], b)) for b in lz4_gpu.BACKENDS}
        verdicts.append(one(records, keys["cuda"], f"cuda: {name}, 4 KiB pages", f"≥ {least / 1e9:g} GB/s", _rate,
                            lambda v, least=least: v >= least))  # fmt: skip
        cuda_rate = next((r.value for r in records if (r.group, r.name, r.shape) == keys["cuda"] and r.value), 0.0)
        row, target = f"wgpu: {name}, 4 KiB pages", f"≥ {LZ4_WGPU:g} of CUDA's rate"
        if not cuda_rate:
            verdicts.append(missing(row, target))
            continue
        verdicts.append(one(records, keys["wgpu"], row, target, lambda v, best=cuda_rate: f"{v / best:.2f}, {_rate(v)}",
                            lambda v, best=cuda_rate: v >= LZ4_WGPU * best))  # fmt: skip
    return verdicts


def gpus_verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Of several GPUs: the bars are of two and of four."""
    count = len(gpus.names())
    where, four = f"on {count or 'several'} GPUs", count == 4
    keys = {name: (gpus.GROUP, name, where) for name in (gpus.REDUCE, gpus.INSIDE)}
    keys |= {name: (gpus.GROUP, name, f"7b {where}") for name in (gpus.DECODE, gpus.PREFILL)}
    least = {gpus.DECODE: 2.2 if four else 1.5, gpus.PREFILL: 3.2 if four else 1.8}
    shared = next((r.ratios[0] for r in records if (r.group, r.name, r.shape) == keys[gpus.REDUCE] and r.ratios), 0.0)
    verdicts = [
        one(records, keys[gpus.REDUCE], f"cuda, {where}: {gpus.REDUCE}", f"≥ 0.98 of {gpus.NCCL}",
            lambda v: f"{shared:.2f}, {_rate(v)}", lambda v: shared >= 0.98),
        one(records, keys[gpus.INSIDE], f"cuda, {where}: {gpus.INSIDE}", f"≤ {duration(8e-6)}", duration,
            lambda v: v <= 8e-6),
    ]  # fmt: skip
    for name, at_least in least.items():
        verdicts.append(
            one(records, keys[name], f"cuda, engine 7b {where}: {name} over one GPU", f"≥ {at_least:g}×", times,
                lambda v, at_least=at_least: v >= at_least)
        )  # fmt: skip
    return verdicts


def _rate(value: float) -> str:
    return f"{value / 1e9:.0f} GB/s"
