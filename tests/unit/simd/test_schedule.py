"""Pieces cover a range once, follow from the op and the length alone, and are the same for any number of threads."""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")

import trueno
from numba import int64, types
from seeds import fresh_seed
from trueno.backend import Call
from trueno.ops import TABLE
from trueno_simd import backend as simd
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.rows import schedule, work
from trueno_simd.threads import cpus, pool

RESULT = types.Array(int64, 1, "C")


@kernel_entry(int64(int64, int64, int64, RESULT), cache=False)
def _spans(n, piece, run, result):  # type: ignore[no-untyped-def]
    result[0], result[1] = schedule.spans(n, piece, run)
    return 0


@kernel_entry(int64(int64, int64, int64, RESULT), cache=False)
def _row_spans(rows, n, piece, result):  # type: ignore[no-untyped-def]
    result[0], result[1] = schedule.row_spans(rows, n, piece)
    return 0


def pieces_of(kernel: Callable[..., int], *sizes: int) -> tuple[int, int]:
    result = np.zeros(2, np.int64)
    assert kernel(*sizes, result) == 0
    return int(result[0]), int(result[1])


SEED = fresh_seed(__name__)


def key(name: str, size: int, dtype: str = "float32") -> Call:
    op = TABLE[name]
    static = tuple((p.name, p.default) for p in op.static)
    return Call(op, np.dtype(dtype), op.layout, 1, (size.bit_length(),), static)


def check(extent: int, pieces: int, step: int) -> None:
    assert pieces >= 1 and step >= 1
    assert (pieces - 1) * step < extent <= pieces * step, f"seed {SEED}: {extent} in {pieces} pieces of {step}"


def test_pieces_cover_a_row_once() -> None:
    rng = random.Random(SEED)
    for _ in range(3000):
        n, piece, run = int(2 ** rng.uniform(0, 26)), int(2 ** rng.uniform(8, 17)), 1 << rng.randrange(3, 10)
        pieces, step = pieces_of(_spans, n, piece, run)
        check(n, pieces, step)
        assert step % run == 0 and pieces <= schedule.PIECES
        assert n >= piece or pieces == 1


def test_pieces_cover_rows_once() -> None:
    rng = random.Random(SEED)
    for _ in range(3000):
        rows, n, piece = int(2 ** rng.uniform(0, 18)), int(2 ** rng.uniform(0, 12)), int(2 ** rng.uniform(8, 17))
        pieces, step = pieces_of(_row_spans, rows, n, piece)
        check(rows, pieces, step)
        assert pieces <= 4 * schedule.PIECES


@pytest.mark.parametrize("n", [65_536, 100_000, 150_000, 300_000, 1_000_000])
def test_two_and_four_threads_have_equal_shares(n: int) -> None:
    for piece in (5_000, 20_000, 30_000, 60_000):
        pieces, step = pieces_of(_spans, n, piece, 512)
        for threads in (2, 4) if pieces > 2 else (2,):
            chunks = [p * pieces // threads for p in range(threads + 1)]
            shares = [min(b * step, n) - min(a * step, n) for a, b in itertools.pairwise(chunks)]
            assert max(shares) <= 1.15 * n / threads


def test_work_decides_on_threads_and_not_the_number_of_elements() -> None:
    least = {}
    for name in ("add", "sum", "exp", "gelu", "pow"):
        sizes = [1 << bits for bits in range(8, 20) if simd._parallel(key(name, 1 << bits))]
        assert sizes == [1 << bits for bits in range(sizes[0].bit_length() - 1, 20)]
        least[name] = sizes[0]
        assert sizes[0] * work.element_ns(TABLE[name].program(), 4) >= 0.99 * work.PIECE_NS
    assert least["pow"] < least["gelu"] < least["exp"] < least["add"] < least["sum"] <= 65_536
    assert simd._parallel(key("add", 16_384, "float64")) and not simd._parallel(key("add", 16_384))


@pytest.mark.parametrize("name", ["sum", "dot", "softmax", "layer_norm", "argmax", "gelu", "norm_l2", "sum_kahan"])
@pytest.mark.parametrize("shape", [(300_001,), (70_003,), (37, 9_001), (16_390, 9)])
def test_results_do_not_depend_on_the_number_of_threads(name: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(SEED)
    row = {"layer_norm": "eww"}.get(name, "e" * len(TABLE[name].operands))
    operands = [rng.standard_normal(shape if kind == "e" else shape[-1:]).astype(np.float32) for kind in row]
    results = []
    with trueno.use("simd"):
        try:
            for threads in (1, 2, 3, 5):
                trueno.settings.override("TRUENO_THREADS", threads)
                results += [getattr(trueno, name)(*operands) for _ in range(3)]
        finally:
            trueno.settings.override("TRUENO_THREADS", None)
            pool.set_count(cpus.usable_cpus())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0], err_msg=f"seed {SEED}")
