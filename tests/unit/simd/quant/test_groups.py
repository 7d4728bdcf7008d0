"""Interleaved rows where the kernel is one of plain rows: the same numbers, a piece of memory, nothing half written."""

import tracemalloc

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS, INTERLEAVED, WEIGHTS, decode
from trueno.formats.interleave import interleaved
from trueno.formats.samples import random_rows
from trueno_simd.kernels.quant import groups
from unit.simd.structured import structured_kernel

F4, SEED, SENTINEL = np.dtype("f4"), 20261122, -77.0
SMALL = 1 << 14  # pieces of a few groups, so that there are several


def kernel(op, name, **static):
    return structured_kernel(op, format=name, **static)


def rows(name, n, blocks, seed=SEED):
    f = FORMATS[name]
    return random_rows(f, (n, blocks * f.nbytes), np.random.default_rng(seed))


def normal(*shape):
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", WEIGHTS)
def test_results_are_those_of_plain_rows(name, monkeypatch):
    """Bit by bit, but for the product of integers, where the shape of a call decides in which order sums are made."""
    monkeypatch.setattr(groups, "PIECE", SMALL)
    f = FORMATS[name]
    for n, k in [(0, 512), (7, 512), (16, 256), (150, 1024), (33, 0)]:
        w = rows(name, n, k // f.elements)
        laid = interleaved(w, f)
        laid.flags.writeable = False
        many, x = normal(groups.FEW + 3, k), normal(k)
        for op, static, operands in (
            ("dequantize", {}, ()),
            ("quant_matvec", {"activations": "f32"}, (x,)),
            ("quant_matmul", {"activations": "f32"}, (many,)),
            ("quant_matmul", {"activations": "q8"}, (many,)),
        ):
            seen = []
            for what, bytes_ in ((name, w), (f"{name}_r16", laid)):
                shape = {0: (n, k), 1: (n,), 2: (len(many), n)}[operands[0].ndim if operands else 0]
                out = np.full(shape, np.nan, np.float32)
                given = (*operands, bytes_) if op == "quant_matmul" else (bytes_, *operands)
                assert kernel(op, what, **static)(*given, out) == 0
                seen.append(out)
            if static == {"activations": "q8"}:
                size = np.abs(many).astype(float) @ np.abs(decode(f, w)).astype(float).T
                assert (np.abs(seen[0] - seen[1]) <= (k + 4) * 2.0**-23 * size).all(), (name, n, k)
            else:
                assert np.array_equal(*seen), (op, static, n, k)


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, 1, 5])
def test_few_vectors_are_multiplied_one_by_one(m):
    w, x = rows("q6_k", 45, 3), normal(m, 768)
    laid, out = interleaved(w, FORMATS["q6_k"]), np.full((m, 45), np.nan, np.float32)
    assert kernel("quant_matmul", "q6_k_r16")(x, laid, out) == 0
    for one, y in zip(x, out, strict=True):
        alone = np.empty(45, np.float32)
        assert kernel("quant_matvec", "q6_k_r16")(laid, one, alone) == 0
        assert np.array_equal(y, alone)


@pytest.mark.parametrize("op", ["quant_matvec", "quant_matmul", "dequantize"])
def test_a_piece_of_the_matrix_is_put_back_at_a_time(op):
    """Neither its bytes nor its numbers are ever in memory as a whole."""
    n, k = 16384, 2048
    f = FORMATS["q4_0"]
    laid = interleaved(np.resize(rows("q4_0", 64, k // 32), (n, f.row_bytes(k))), f)
    x = normal(k) if op == "quant_matvec" else normal(groups.FEW + 1, k)
    given = {"quant_matvec": (laid, x), "quant_matmul": (x, laid), "dequantize": (laid,)}[op]
    shape = {"quant_matvec": (n,), "quant_matmul": (len(x), n), "dequantize": (n, k)}[op]
    out = np.zeros(shape, np.float32)
    run = kernel(op, "q4_0_r16", **({} if op == "dequantize" else {"activations": "f32"}))
    assert run(*given, out) == 0
    tracemalloc.start()
    try:
        assert run(*given, out) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert laid.nbytes > 8 * groups.PIECE
    assert peak < 3 * groups.PIECE


@pytest.mark.parametrize("op", ["quant_matmul", "dequantize"])
def test_what_does_not_fit_is_refused(op):
    f, n, k = INTERLEAVED["q4_k_r16"], 33, 512
    for m in (2, groups.FEW + 2) if op == "quant_matmul" else (0,):
        run = kernel(op, f.name)
        w, x = np.zeros((n, f.row_bytes(k)), np.uint8), np.ones((m, k), np.float32)
        out = np.full((m, n) if m else (n, k), SENTINEL, np.float32)

        def call(w=w, x=x, out=out, m=m, run=run):
            return run(x, w, out) if m else run(w, out)

        wrong = [{"w": w[:, :-1].copy()}, {"w": w[:-1]}, {"w": w[:, : f.nbytes].copy()}, {"out": out[:-1]}]
        wrong += [{"x": x[:-1]}, {"x": x[:, :256].copy()}] if m else []
        for given in wrong:
            assert call(**given) == -1
            assert (out == SENTINEL).all()
        both = np.zeros(1 << 16, np.float32)
        shared = both.view(np.uint8)[: w.size].reshape(w.shape)
        assert call(w=shared, out=both[: out.size].reshape(out.shape)) == -1
        fixed = out.copy()
        fixed.flags.writeable = False
        kinds = [{"w": w.view(np.int8)}, {"w": w[:, ::2]}, {"w": w[0]}, {"out": out.astype(float)}, {"out": fixed}]
        kinds += [{"out": np.asfortranarray(out)}, {"out": out.tolist()}]
        kinds += [{"x": x.astype(float)}, {"x": np.asfortranarray(x)}] if m else []
        for given in kinds:
            with pytest.raises(TypeError):
                call(**given)
        assert (out == SENTINEL).all()
        assert call() == 0
        assert not out.any()


def test_columns_of_interleaved_rows_have_no_kernel():
    for op in ("quant_matvec_colmajor", "quant_matmul_colmajor", "quantize_rows"):
        with pytest.raises(KeyError):
            kernel(op, "q4_k_r16")
