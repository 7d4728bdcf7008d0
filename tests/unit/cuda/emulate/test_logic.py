"""Comparisons, selections and bit instructions against Python's integers."""

import numpy as np
import pytest

from .test_arithmetic import TYPES, integers, wrap

N = 500


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("test", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_setp_integers(lanes, rng, kind, test):
    a, b = integers(rng, TYPES[kind]), integers(rng, TYPES[kind])
    b[::7] = a[::7]
    want = getattr(np, {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
                        "ge": "greater_equal"}[test])(a, b)  # fmt: skip
    np.testing.assert_array_equal(lanes(f"setp.{test}.{kind} {{d}}, {{a}}, {{b}};", "pred", a, b), want)


def test_setp_floats_and_nan(lanes):
    values = np.float32([-1, 0, -0.0, 1, np.inf, np.nan])
    a, b = (x.ravel() for x in np.meshgrid(values, values))
    unordered = np.isnan(a) | np.isnan(b)
    for test, want in {"lt": a < b, "ltu": (a < b) | unordered, "ne": (a != b) & ~unordered, "neu": a != b,
                       "num": ~unordered, "nan": unordered, "geu": (a >= b) | unordered}.items():  # fmt: skip
        np.testing.assert_array_equal(lanes(f"setp.{test}.f32 {{d}}, {{a}}, {{b}};", "pred", a, b), want, test)


def test_setp_combined(lanes, rng):
    a, b, c = (integers(rng, "i4", N) for _ in range(3))
    code = "setp.gt.s32 %p2, {c}, 0; setp.lt.and.s32 {d}|%p3, {a}, {b}, %p2;"
    np.testing.assert_array_equal(lanes(code, "pred", a, b, c), (a < b) & (c > 0))
    code = "setp.gt.s32 %p2, {c}, 0; setp.lt.or.s32 %p3|{d}, {a}, {b}, !%p2;"
    np.testing.assert_array_equal(lanes(code, "pred", a, b, c), ~(a < b) | (c <= 0))


def test_selections(lanes, rng):
    a, b, c = (integers(rng, "i4", N) for _ in range(3))
    got = lanes("setp.lt.s32 %p2, {c}, 0; selp.b32 {d}, {a}, {b}, %p2;", "s32", a, b, c)
    np.testing.assert_array_equal(got, np.where(c < 0, a, b))
    got = lanes("slct.s32.s32 {d}, {a}, {b}, {c};", "s32", a, b, c)
    np.testing.assert_array_equal(got, np.where(c >= 0, a, b))
    got = lanes("set.gt.u32.s32 {d}, {a}, {b};", "u32", a, b)
    np.testing.assert_array_equal(got, np.where(a > b, 0xFFFFFFFF, 0))
    got = lanes("set.gt.f32.s32 {d}, {a}, {b};", "f32", a, b)
    np.testing.assert_array_equal(got, a > b)


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "s32", "s64", "u16"])
def test_shifts_clamp(lanes, rng, kind):
    bits = int(kind[1:])
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")
    a = integers(rng, dtype.name, N)
    b = rng.integers(0, 80, N).astype("u4")
    right = [x >> n for x, n in zip(a.tolist(), b.tolist(), strict=True)]
    got = lanes(f"shr.{kind} {{d}}, {{a}}, {{b}};", kind, a, b, types=(kind, "b32"))
    np.testing.assert_array_equal(got, wrap(right, dtype))
    raw = f"b{bits}"
    left = [x << n for x, n in zip(a.tolist(), b.tolist(), strict=True)]
    got = lanes(f"shl.{raw} {{d}}, {{a}}, {{b}};", raw, a, b, types=(raw, "b32"))
    np.testing.assert_array_equal(got.view(dtype), wrap(left, dtype))


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(lanes, rng, side, mode):
    a, b = integers(rng, "u4"), integers(rng, "u4")
    n = rng.integers(0, 40, len(a)).astype("u4")

    def one(x, y, s):
        s = s & 31 if mode == "wrap" else min(s, 32)
        both = y << 32 | x
        return (both << s >> 32 if side == "l" else both >> s) & 0xFFFFFFFF

    want = [one(*t) for t in zip(a.tolist(), b.tolist(), n.tolist(), strict=True)]
    np.testing.assert_array_equal(lanes(f"shf.{side}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};", "b32", a, b, n), want)


def field(x: int, at: int, size: int, bits: int, signed: bool) -> int:
    """bfe by its definition in the PTX ISA, bit by bit."""
    raw = x & ((1 << bits) - 1)
    sign = raw >> min(max(at + size - 1, 0), bits - 1) & 1 if signed and size else 0
    out = 0
    for k in range(bits):
        bit = raw >> (at + k) & 1 if k < size and at + k < bits else sign
        out |= bit << k
    return out


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(lanes, rng, kind):
    bits, dtype = int(kind[1:]), np.dtype(TYPES[kind])
    a, b = integers(rng, TYPES[kind], N), integers(rng, TYPES[kind], N)
    at, size = rng.integers(0, bits + 4, N).astype("u4"), rng.integers(0, bits + 4, N).astype("u4")
    rows = list(zip(a.tolist(), at.tolist(), size.tolist(), strict=True))
    want = wrap([field(x, p, n, bits, kind[0] == "s") for x, p, n in rows], dtype)
    np.testing.assert_array_equal(lanes(f"bfe.{kind} {{d}}, {{a}}, {{b}}, {{c}};", kind, a, at, size), want)
    raw = f"b{bits}"

    def insert(x, y, p, n):
        mask = ((1 << n) - 1 << p) & ((1 << bits) - 1)
        return (y & ~mask) | (x << p & mask)

    want = [insert(*t) for t in zip(a.tolist(), b.tolist(), at.tolist(), size.tolist(), strict=True)]
    got = lanes(f"bfi.{raw} {{d}}, {{a}}, {{b}}, {{c}}, {{e}};", raw, a, b, at, size)
    np.testing.assert_array_equal(got.view(dtype), wrap(want, dtype))


@pytest.mark.parametrize("bits", [32, 64])
def test_counting(lanes, rng, bits):
    a = integers(rng, f"u{bits // 8}", N)
    words = a.tolist()
    for code, want in {
        f"brev.b{bits}": [int(f"{x:0{bits}b}"[::-1], 2) for x in words],
        f"clz.b{bits}": [bits - x.bit_length() for x in words],
        f"popc.b{bits}": [x.bit_count() for x in words],
        f"bfind.u{bits}": [(x.bit_length() - 1) & 0xFFFFFFFF for x in words],
    }.items():
        out = f"b{bits}" if code.startswith("brev") else "b32"
        np.testing.assert_array_equal(lanes(code + " {d}, {a};", out, a), np.array(want, f"u{int(out[1:]) // 8}"))


def test_prmt(lanes, rng):
    a, b = integers(rng, "u4"), integers(rng, "u4")
    s = integers(rng, "u4")

    def one(x, y, c):
        data = (y << 32 | x).to_bytes(8, "little")
        out = []
        for k in range(4):
            n = c >> 4 * k & 15
            byte = data[n & 7]
            out.append((0xFF if byte & 0x80 else 0) if n & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    want = [one(*t) for t in zip(a.tolist(), b.tolist(), s.tolist(), strict=True)]
    np.testing.assert_array_equal(lanes("prmt.b32 {d}, {a}, {b}, {c};", "b32", a, b, s), want)


@pytest.mark.parametrize("table", [0x00, 0xFF, 0x96, 0xE8, 0x1D, 0x40])
def test_lop3(lanes, rng, table):
    a, b, c = (integers(rng, "u4", N) for _ in range(3))
    want = np.zeros(N, "u4")
    for bit in range(32):
        k = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        want |= (np.uint32(table) >> k & 1) << np.uint32(bit)
    np.testing.assert_array_equal(lanes(f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};", "b32", a, b, c), want)


def test_predicates(lanes, rng):
    a, b = integers(rng, "i4"), integers(rng, "i4")
    code = "setp.lt.s32 %p2, {a}, 0; setp.lt.s32 %p3, {b}, 0; xor.pred %p4, %p2, %p3; not.pred {d}, %p4;"
    np.testing.assert_array_equal(lanes(code, "pred", a, b), (a < 0) == (b < 0))


def test_packing(lanes, rng):
    a = integers(rng, "u8")
    code = "mov.b64 {{%r10, %r11}}, {a}; mov.b64 {d}, {{%r11, %r10}};"
    np.testing.assert_array_equal(lanes(code, "b64", a), a << 32 | a >> 32)
    b = integers(rng, "u4")
    code = "mov.b32 {{%h1, %h2}}, {a}; mov.b32 {d}, {{%h2, %h1}};"
    np.testing.assert_array_equal(lanes(code, "b32", b), b << 16 | b >> 16)
