"""Loads, stores, atomics, and memory that a module declares."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import load

from .conftest import kernel_text
from .test_arithmetic import integers

ADDRESS = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py];
"""
PARAMS = ".param .u64 px, .param .u64 py"


@pytest.mark.parametrize("kind, dtype", [("u8", "u1"), ("s8", "i1"), ("u16", "u2"), ("s16", "i2"), ("b32", "u4"),
                                         ("b64", "u8"), ("f32", "f4")])  # fmt: skip
def test_narrow_loads_extend(rng, kind, dtype):
    x = rng.integers(0, 255, 64 * 8).astype("u1").view(dtype)[:64].copy()
    wide = "b64"
    size = x.itemsize
    out = np.zeros(64, np.int64)
    register = {"f32": "%f1", "b64": "%rd5", "b32": "%r10"}.get(kind, "%r10")
    move = {"f32": "mov.b32 %r10, %f1; cvt.u64.u32 %rd5, %r10;", "b64": "", "b32": "cvt.u64.u32 %rd5, %r10;"}.get(
        kind, "cvt.s64.s32 %rd5, %r10;"
    )
    text = kernel_text(ADDRESS + f"""
        mad.wide.u32 %rd3, %r4, {size}, %rd1; mad.wide.u32 %rd4, %r4, 8, %rd2;
        ld.global.{kind} {register}, [%rd3]; {move}
        st.global.{wide} [%rd4], %rd5; ret;""", PARAMS)  # fmt: skip
    report = load(text).launch("k", 2, 32, [x, out])
    want = x.view("u4") if kind == "f32" else x
    np.testing.assert_array_equal(out.view("u8"), want.astype("i8" if want.dtype.kind == "i" else "u8").view("u8"))
    assert not report.findings


def test_elements_of_an_array_are_named_by_index(rng):
    """`array[3]` is the fourth element: its address for mov, the memory there for ld and st, as for ptxas."""
    x, out = rng.integers(0, 1 << 30, 8).astype("u4"), np.zeros(2, "u4")
    text = kernel_text("""
        .shared .align 16 .v2 .b32 pairs[4];
        ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py];
        ld.global.u32 %r1, [%rd1+4]; ld.global.u32 %r2, [%rd1+8];
        mov.u32 %r3, words[3]; st.shared.u32 [%r3], %r1; ld.shared.u32 %r4, [words+12];
        st.shared.u32 pairs[2], %r2; mov.u32 %r5, pairs; ld.shared.u32 %r6, [%r5+16];
        st.global.u32 [%rd2], %r4; st.global.u32 [%rd2+4], %r6; ret;""".replace(
        ".shared .align", ".shared .align 4 .b32 words[16]; .shared .align"), PARAMS)  # fmt: skip
    report = load(text).launch("k", 1, 1, [x, out])
    np.testing.assert_array_equal(out, x[1:3])
    assert not report.findings


@pytest.mark.parametrize(
    "count, kind, size", [(2, "b32", 4), (4, "b32", 4), (2, "b64", 8), (4, "b16", 2), (4, "b8", 1)]
)
def test_vectors(rng, count, kind, size):
    x = rng.integers(0, 255, 96 * count * size).astype("u1")
    y = np.zeros_like(x)
    kinds = {1: "%h", 2: "%h", 4: "%r1", 8: "%rd1"}
    registers = "{" + ", ".join(f"{kinds[size]}{k + 1}" for k in range(count)) + "}"
    text = kernel_text(ADDRESS + f"""
        mad.wide.u32 %rd3, %r4, {count * size}, %rd1; mad.wide.u32 %rd4, %r4, {count * size}, %rd2;
        ld.global.nc.L1::no_allocate.v{count}.{kind} {registers}, [%rd3];
        st.global.v{count}.{kind} [%rd4], {registers}; ret;""", PARAMS)  # fmt: skip
    report = load(text).launch("k", 3, 32, [x, y])
    np.testing.assert_array_equal(x, y)
    assert not report.findings
    access = next(iter(report.coalescing.values()))
    assert access.sectors_per_request == pytest.approx(count * size) and access.efficiency == 1


def atomic(
    op: str, kind: str, values: np.ndarray, start: np.ndarray, where: np.ndarray, returns: bool, extra=""
) -> tuple:
    """All lanes of two blocks update `start[where[lane]]`; the result and what the lanes read."""
    n, size = len(values), values.itemsize
    bits = size * 8
    register = {"f32": "%f", "f64": "%d"}.get(kind, {32: "%r2", 64: "%rd2", 16: "%h"}[bits])
    verb = f"atom.global.{op}.{kind} {register}1, [%rd6], {register}2{extra}" if returns else (
        f"red.global.{op}.{kind} [%rd6], {register}2{extra}")  # fmt: skip
    raw = f"b{bits}"
    text = kernel_text(f"""
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
        ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2]; ld.param.u64 %rd4, [p3];
        mad.wide.u32 %rd5, %r4, {size}, %rd1; ld.global.{raw} {register}2, [%rd5];
        mad.wide.u32 %rd5, %r4, 4, %rd3; ld.global.u32 %r5, [%rd5]; mad.wide.u32 %rd6, %r5, {size}, %rd2;
        {verb};
        {f"mad.wide.u32 %rd5, %r4, {size}, %rd4; st.global.{raw} [%rd5], {register}1;" if returns else ""}
        ret;""", ", ".join(f".param .u64 p{k}" for k in range(4)))  # fmt: skip
    memory, old = start.copy(), np.zeros(n, values.dtype)
    report = load(text).launch("k", 2, n // 2, [values, memory, where.astype("u4"), old])
    assert not report.findings, report
    return memory, old


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("op, kind, function", [
    ("add", "u32", lambda a, b: (a + b) & 0xFFFFFFFF), ("min", "s32", min), ("max", "u32", max),
    ("and", "b32", lambda a, b: a & b), ("xor", "b64", lambda a, b: a ^ b), ("exch", "b32", lambda a, b: b),
    ("inc", "u32", lambda a, b: 0 if a >= b else a + 1), ("dec", "u32", lambda a, b: b if a == 0 or a > b else a - 1),
    ("add", "u64", lambda a, b: (a + b) & (2**64 - 1))])  # fmt: skip
def test_atomics_are_some_serial_order(rng, op, kind, function, returns):
    returns |= op == "exch"  # PTX has no red.exch
    dtype = {"u32": "u4", "s32": "i4", "b32": "u4", "b64": "u8", "u64": "u8"}[kind]
    n, cells = 128, 7
    values = integers(rng, dtype, n)
    start, where = integers(rng, dtype, 8)[:cells], rng.integers(0, cells, n)
    memory, old = atomic(op, kind, values, start, where, returns)
    state = start.tolist()
    for k in range(n):  # lane order is the emulator's, and one that the hardware may take
        before = state[where[k]]
        if returns:
            assert int(old[k]) == before
        state[where[k]] = function(before, int(values[k]))
    np.testing.assert_array_equal(memory, np.array(state, dtype))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_atomics(rng, kind):
    values = rng.standard_normal(64).astype("f4" if kind == "f32" else "f8")
    where = rng.integers(0, 3, 64)
    memory, _ = atomic("add", kind, values, np.zeros(3, values.dtype), where, False)
    for k in range(3):  # any order: each addition rounds a sum that is at most Σ|v|
        mine = values[where == k].astype("f8")
        assert abs(memory[k] - mine.sum()) <= len(mine) * np.finfo(values.dtype).eps * np.abs(mine).sum()


def test_compare_and_swap(rng):
    memory, old = atomic("cas", "b32", np.full(64, 5, "u4"), np.uint32([5, 6]), np.arange(64) % 2, True, ", 9")
    np.testing.assert_array_equal(memory, [9, 6])
    assert old[0] == 5 and (old[2::2] == 9).all() and (old[1::2] == 6).all()


def test_module_variables_and_constants():
    text = kernel_text("""
        mov.u32 %r3, %tid.x; ld.param.u64 %rd1, [px];
        mov.u64 %rd2, table; mad.wide.u32 %rd3, %r3, 4, %rd2; ld.const.u32 %r1, [%rd3];
        mov.u64 %rd4, counter; cvta.global.u64 %rd5, %rd4; atom.add.u32 %r2, [%rd5], 1;
        ld.global.f32 %f1, [scale]; cvt.rn.f32.u32 %f2, %r1; mul.f32 %f1, %f1, %f2;
        mad.wide.u32 %rd3, %r3, 4, %rd1; st.global.f32 [%rd3], %f1; ret;""", ".param .u64 px").replace(
        ".visible", ".const .align 4 .u32 table[4] = {10, 20, 30, 40};\n.global .align 4 .u32 counter;\n"
                    ".global .align 4 .f32 scale = 0f3F000000;\n.visible")  # fmt: skip
    module, out = load(text), np.zeros(4, np.float32)
    for turn in (1, 2):
        module.launch("k", 1, 4, [out])
        np.testing.assert_array_equal(out, [5, 10, 15, 20])
        assert module.variable("counter").view(np.uint32)[0] == 4 * turn


def test_generic_addresses_reach_every_space():
    text = kernel_text("""
        .shared .align 4 .b8 s[128]; .local .align 4 .b8 l[4];
        mov.u32 %r3, %tid.x; ld.param.u64 %rd1, [px]; mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2;
        mad.wide.u32 %rd2, %r3, 4, %rd2; st.u32 [%rd2], %r3; mov.u64 %rd3, l; cvta.local.u64 %rd3, %rd3;
        add.u32 %r4, %r3, 100; st.u32 [%rd3], %r4; ld.u32 %r5, [%rd2]; ld.u32 %r6, [%rd3]; add.u32 %r7, %r5, %r6;
        setp.lt.u32 %p1, %r3, 16; selp.b64 %rd4, %rd2, %rd3, %p1; ld.u32 %r8, [%rd4]; add.u32 %r7, %r7, %r8;
        mad.wide.u32 %rd5, %r3, 4, %rd1; st.u32 [%rd5], %r7; ret;""", ".param .u64 px")  # fmt: skip
    out = np.zeros(32, np.uint32)
    report = load(text).launch("k", 1, 32, [out])
    t = np.arange(32)
    np.testing.assert_array_equal(out, 2 * t + 100 + np.where(t < 16, t, t + 100))
    assert not report.findings


def test_arguments_of_every_kind(rng):
    text = kernel_text("""
        ld.param.u64 %rd1, [p]; ld.param.u8 %h1, [a]; ld.param.s16 %h2, [b]; ld.param.f64 %d1, [c]; ld.param.b16 %h3, [h];
        ld.param.u32 %r1, [s+4]; cvt.u32.u16 %r2, %h1; cvt.s32.s16 %r3, %h2; cvt.rzi.s32.f64 %r4, %d1; cvt.u32.u16 %r5, %h3;
        st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.u32 [%rd1+16], %r5; ret;""",
        ".param .u64 p, .param .u8 a, .param .s16 b, .param .f64 c, .param .b16 h, .param .align 4 .b8 s[8]")  # fmt: skip
    out = np.zeros(5, np.int32)
    args = [out, 200, np.int16(-3), 7.5, np.float16(1.0), np.int32([1, 77]).tobytes()]
    load(text).launch("k", 1, 1, args)
    np.testing.assert_array_equal(out, [77, 200, -3, 7, 0x3C00])
