"""Results past the caches and rows fetched early: the same bits, from sizes on that the caches decide."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from numba import int64
from trueno.backend import Call
from trueno.ops import TABLE
from trueno_simd import backend as simd
from trueno_simd.codecache import modules
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm import caches, streaming
from trueno_simd.rows import work
from trueno_simd.rows.next_row import NextRowPrinter
from trueno_simd.rows.source import printed

MB = 1 << 20


@kernel_entry(int64(int64, int64, int64), cache=False)
def flush(target, source, count):  # type: ignore[no-untyped-def]
    streaming.flush(target, source, count)
    streaming.fence()
    return 0


@pytest.mark.parametrize("offset", [0, 1, 4, 31, 60, 63])
def test_flush_copies_each_byte_and_no_other(offset: int) -> None:
    rng = np.random.default_rng(0)
    for count in (*range(0, 200, 3), 1024, 4099):
        source = rng.integers(0, 256, count + 128, dtype=np.uint8)
        target = np.full(count + 256, 0xA5, np.uint8)
        start = -target.ctypes.data % 64 + offset
        begin = int(rng.integers(0, 64))
        flush(target.ctypes.data + start, source.ctypes.data + begin, count)
        np.testing.assert_array_equal(target[start : start + count], source[begin : begin + count])
        assert (target[:start] == 0xA5).all() and (target[start + count :] == 0xA5).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["add", "relu", "gelu", "fma", "clamp"])
def test_bits_are_those_of_ordinary_stores(name: str, dtype: str) -> None:
    op = TABLE[name]
    static = tuple((p.name, p.default) for p in op.static)
    params = [float(p.default) if isinstance(p.default, int | float) else 0.5 for p in op.params if p.symbolic]
    texts = [printed(op, dtype, op.layout, 1, static, True, stream=stream) for stream in (0, 1)]
    assert "flush(" in texts[1] and "flush(" not in texts[0]
    ordinary, streamed = (modules.module(f"test_streaming_{name}_{dtype}_{k}", t).kernel for k, t in enumerate(texts))
    rng = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    for n in (1, 15, 255, 257, 5_001, 100_003):
        operands = [rng.standard_normal(n).astype(dtype) for _ in op.operands]
        expected = np.empty(n, dtype)
        assert ordinary(*operands, *params, expected) == 0
        for offset in (0, 1, 64 // size - 1):
            room = np.full(n + 128, 77, dtype)
            start = -room.ctypes.data % 64 // size + offset
            out = room[start : start + n]
            assert streamed(*operands, *params, out) == 0
            np.testing.assert_array_equal(out, expected)
            assert (room[:start] == 77).all() and (room[start + n :] == 77).all()
        assert streamed(operands[0], *operands[1:], *params, operands[0]) == 0  # in place
        np.testing.assert_array_equal(operands[0], expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "residual_rms_norm", "zscore"])
def test_fetching_the_next_row_changes_nothing(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = TABLE[name]
    static = tuple((p.name, p.default) for p in op.static)
    params = [float(p.default) for p in op.params if p.symbolic]
    texts = [printed(op, dtype, op.layout, 2, static, True)]
    monkeypatch.setattr(NextRowPrinter, "fetches", lambda *_: [])
    texts.insert(0, printed(op, dtype, op.layout, 2, static, True))
    assert "fetch(" in texts[1] and "fetch(" not in texts[0]
    plain, fetching = (modules.module(f"test_next_row_{name}_{dtype}_{k}", t).kernel for k, t in enumerate(texts))
    rng = np.random.default_rng(2)
    for rows, n in ((2, 255), (3, 511), (50, 513), (9, 1024), (7, 2049), (4, 4096), (2, 5000)):
        shapes = [(rows, n) if kind == "e" else (n,) for kind in op.layout]
        operands = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
        results = [[np.empty((rows, n), dtype) for _ in op.signature.outputs] for _ in (plain, fetching)]
        assert plain(*operands, *params, *results[0]) == fetching(*operands, *params, *results[1]) == 0
        for expected, result in zip(*results, strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_outer_product_past_the_caches_has_the_same_bits(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gather, size = simd._module("kernels.gather"), np.dtype(dtype).itemsize
    monkeypatch.setattr(gather, "last_cache", lambda: 1 << 12)
    called = []

    def entry(signature):  # type: ignore[no-untyped-def]
        def compiled(function):  # type: ignore[no-untyped-def]
            kernel = kernel_entry(signature)(function)
            return lambda *args: called.append(function.__name__) or kernel(*args)

        return compiled

    monkeypatch.setattr(gather, "kernel_entry", entry)
    rng = np.random.default_rng(3)
    for m, n in ((1, 5), (5, 5), (2, 1000), (40, 600), (7, 1024), (90, 20)):
        sizes = m.bit_length(), n.bit_length()
        run = gather.outer_product(None, Call(TABLE["outer"], np.dtype(dtype), "", 1, sizes))
        x, y = rng.standard_normal(m).astype(dtype), rng.standard_normal(n).astype(dtype)
        y[n // 2], y[0] = -1.0, 0.0  # a product's -0 must stay
        for offset in (0, 1, 64 // size - 1):
            room = np.full(m * n + 128, 77, dtype)
            start = -room.ctypes.data % 64 // size + offset
            out = room[start : start + m * n].reshape(m, n)
            assert run(x, y, out) == 0
            assert out.tobytes() == np.multiply.outer(x, y).tobytes()
            assert (room[:start] == 77).all() and (room[start + m * n :] == 77).all()
        past = m * n * size >= 2 << 12 and n * size >= 1 << 11
        assert called.pop() == f"_{'streamed' if past else 'outer'}{8 * size}"
    x = np.ones(1000, dtype)
    out = np.empty((1000, 1000), dtype)
    assert run(x, out[3], out) == run(x, x[:-1], out) == -1


def test_the_threshold_follows_from_the_cache() -> None:
    add = TABLE["add"].program("ee")
    assert work.stream(add, 4, 8 * MB) == round(2 * 8 * MB / 12)
    assert work.stream(add, 8, 8 * MB) == round(2 * 8 * MB / 24)
    assert work.stream(TABLE["relu"].program("e"), 4, 32 * MB) == 8 * MB
    assert work.stream(add, 4, 480 * MB) == work.stream(add, 4, 32 * MB)  # shared with CPUs that are not ours


def test_only_kernels_of_large_calls_have_both_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds = []
    monkeypatch.setattr(simd, "last_cache", lambda: 8 * MB)
    rowprogram = simd._module("rows.rowprogram")
    monkeypatch.setattr(rowprogram, "compiled", lambda *_: thresholds.append(_[-1]))
    for n in (1000, 100_000, 1_000_000, 2_000_000, 5_000_000):
        simd.SimdBackend().kernel(Call(TABLE["add"], np.dtype(np.float32), "ee", 1, (n.bit_length(),)))
    least = round(2 * 8 * MB / 12)  # 1.4 million: the class of 1 000 000 ends at 1 048 575, and the next begins there
    assert thresholds == [0, 0, 0, least, least]


def test_the_last_cache_is_read_from_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "CPUS", tmp_path)
    monkeypatch.setattr(caches.os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    for index, (kind, level, size) in enumerate(
        [("Data", "1", "48K"), ("Instruction", "1", "32K"), ("Unified", "2", "1024K"), ("Unified", "3", "32768K")]
    ):
        folder = tmp_path / f"cpu3/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in zip(("type", "level", "size"), (kind, level, size), strict=True):
            (folder / name).write_text(f"{text}\n")
    assert caches.last_cache.__wrapped__() == 32 * MB
    (tmp_path / "cpu3/cache/index3/size").write_text("big\n")
    assert caches.last_cache.__wrapped__() == MB
    monkeypatch.setattr(caches, "CPUS", tmp_path / "missing")
    monkeypatch.setattr(caches.os, "sysconf", lambda name: {"SC_LEVEL3_CACHE_SIZE": 0}.get(name, 2 * MB), raising=False)
    assert caches.last_cache.__wrapped__() == 2 * MB

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(caches.os, "sysconf", unknown, raising=False)
    assert caches.last_cache.__wrapped__() == caches.DEFAULT


@pytest.mark.parametrize("shape", [(1, 70_001), (3, 5_001), (50, 700)])
def test_arrays_are_joined_past_the_caches(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes wherever the result begins, and none around it."""
    joining = simd._module("kernels.concatenate")
    thresholds = []

    def entry(signature):  # type: ignore[no-untyped-def]
        compiled = kernel_entry(signature)(joining._concatenate)
        return lambda _: lambda *args: thresholds.append(args[-1]) or compiled(*args)

    monkeypatch.setattr(joining, "kernel_entry", entry)
    monkeypatch.setattr(joining, "last_cache", lambda: 1 << 11)
    kernel = joining.concatenate(None, Call(TABLE["concatenate"], np.dtype(np.float32), "", 2, (0,), (("axis", 1),)))
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal(shape, np.float32), rng.standard_normal((shape[0], shape[1] // 3), np.float32)
    expected = np.concatenate((a, b), 1)
    for offset in (0, 1, 15):
        room = np.full(expected.size + 64, 77, np.float32)
        out = room[offset : offset + expected.size].reshape(expected.shape)
        assert kernel(a, b, out) == 0
        np.testing.assert_array_equal(out, expected)
        assert (room[:offset] == 77).all() and (room[offset + expected.size :] == 77).all()
        assert thresholds.pop() == 1 << 11
