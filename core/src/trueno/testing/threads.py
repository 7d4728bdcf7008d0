"""Eight threads at once: every result must be correct, as in one thread."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import numpy.typing as npt

from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.testing.calls import invoke
from trueno.testing.case import Case, keywords, rng_for
from trueno.testing.cases import cases, natural
from trueno.testing.expected import stated, verdict
from trueno.testing.subject import rejected, subject

THREADS, ROUNDS = 8, 40
CHOSEN = ("add", "gelu", "softmax", "sum", "dot", "matmul", "convolve2d")
"""Ops of every kind; for those that a backend does not take, the first that it takes."""


def threaded_ops(backend: str, dtype: npt.DTypeLike) -> list[Op]:
    """The ops that `check_threads` calls."""
    taken = [op for op in TABLE.values() if rejected(op, backend, dtype) is None]
    return [op for op in taken if op.name in CHOSEN] or taken[:3]


def check_threads(backend: str, dtype: npt.DTypeLike, seed: int = 0, rounds: int = ROUNDS) -> int:
    """Each thread calls every op on its own operands, `rounds` times; all results are judged afterwards."""
    ops, accuracy = threaded_ops(backend, dtype), subject(backend).backend.accuracy
    start = Barrier(THREADS)
    work = [[_case(op, dtype, seed + 1000 * t) for op in ops] for t in range(THREADS)]

    def run(mine: list[Case]) -> list[list[tuple[np.ndarray, ...]]]:
        start.wait()
        outputs: list[list[tuple[np.ndarray, ...]]] = [[] for _ in mine]
        for _ in range(rounds):
            for results, case in zip(outputs, mine, strict=True):
                results.append(invoke(case.op, case.operands, case.kwargs, backend))
        return outputs

    with ThreadPoolExecutor(THREADS) as pool:
        everything = list(pool.map(run, work))
    for t, (mine, outputs) in enumerate(zip(work, everything, strict=True)):
        for case, repeats in zip(mine, outputs, strict=True):
            seen = {tuple(np.asarray(r).tobytes() for r in results): results for results in repeats}
            for results in seen.values():
                v = verdict(case.op, case.operands, case.kwargs, case.dtype, results, accuracy)
                assert v.ok, (
                    f"{backend}: {case} in thread {t} of {THREADS}, seed {seed}: {stated(v, case.op, accuracy)}"
                )
    return len(ops)


def _case(op: Op, dtype: npt.DTypeLike, seed: int) -> Case:
    T, rng = np.dtype(dtype), rng_for(op, dtype, seed)
    if op.structured:
        return [c for c in cases(op, T, seed, long=False) if c.label == "normal"][3]
    shapes = {"e": (17, 257), "w": (257,), "r": (17,)}
    operands = tuple(natural(op, rng, shapes[k]).astype(T) for k in op.layout)
    return Case(op, T, "17 rows of 257", operands, keywords(op)[0])
