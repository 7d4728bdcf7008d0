"""The targets of CUDA's kernels, and of the example engine on a GPU."""

from collections.abc import Sequence

from trueno.text import duration

from benchmarks.compare import Record
from benchmarks.rows import cuda, engine_cuda
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
)
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
    least, key = engine_cuda.TOGETHER_TIMES, (engine_cuda.GROUP, engine_cuda.TOGETHER)
    row = f"cuda, engine: {engine_cuda.TOGETHER}"
    verdicts.append(one(records, key, row, f"≥ {least:g}×", times, lambda v: v >= engine_cuda.TOGETHER_TIMES))
    for name, at_most in most.items():
        verdicts.append(
            one(records, (engine_cuda.GROUP, name), f"cuda, engine: {name}", f"≤ {duration(at_most)}", duration,
                lambda v, at_most=at_most: v <= at_most)
        )  # fmt: skip
    return verdicts
