"""Tensor-core instructions against NumPy's products, with fragments laid out here by hand."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import load

from .conftest import kernel_text

LANE = np.arange(32)
G, T = LANE >> 2, LANE & 3


def words(matrix: np.ndarray) -> np.ndarray:
    """Rows of short elements as rows of 32-bit words."""
    return np.ascontiguousarray(matrix).view(np.uint32)


def fragment_a(a: np.ndarray) -> np.ndarray:
    """[32, registers]: rows g and g+8, then the next 16 bytes of the row."""
    w = words(a)
    columns = []
    for block in range(w.shape[1] // 4):
        columns.append(w[G, T + 4 * block])
        if len(w) == 16:
            columns.append(w[G + 8, T + 4 * block])
    return np.stack(columns, 1)


def fragment_b(b: np.ndarray) -> np.ndarray:
    """The columns of B are read like the rows of A."""
    w = words(b.T)
    return np.stack([w[G, T + 4 * block] for block in range(w.shape[1] // 4)], 1)


def tiles(c: np.ndarray, n: int) -> np.ndarray:
    """[32, values] of an accumulator to its matrix."""
    out = np.zeros((16, n), c.dtype)
    for j in range(n // 8):
        for h in range(2):
            for i in range(2):
                out[G + 8 * h, 8 * j + 2 * T + i] = c[:, 4 * j + 2 * h + i]
    return out


def to_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


CASES = [("m16n8k16", "f16", 16), ("m16n8k8", "f16", 8), ("m16n8k16", "bf16", 16), ("m16n8k8", "bf16", 8),
         ("m16n8k8", "tf32", 8), ("m16n8k4", "tf32", 4), ("m16n8k32", "s8", 32), ("m16n8k16", "u8", 16)]  # fmt: skip


@pytest.mark.parametrize("shape, kind, k", CASES)
def test_mma(rng, shape, kind, k):
    if kind[1:] == "8":
        low, high = (-128, 128) if kind == "s8" else (0, 256)
        a, b = (rng.integers(low, high, s).astype("i1" if kind == "s8" else "u1") for s in ((16, k), (k, 8)))
        x, y = a.astype(np.int64), b.astype(np.int64)
        c = rng.integers(-1000, 1000, (32, 4)).astype(np.int32)
        d_kind, register = "s32", "%r"
    else:
        a, b = rng.standard_normal((16, k)).astype(np.float32), rng.standard_normal((k, 8)).astype(np.float32)
        if kind == "f16":
            a, b = a.astype(np.float16), b.astype(np.float16)
            x, y = a.astype(np.float64), b.astype(np.float64)
        elif kind == "bf16":
            a, b = to_bf16(a), to_bf16(b)
            x, y = from_bf16(a).astype(np.float64), from_bf16(b).astype(np.float64)
        else:
            x, y = ((m.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for m in (a, b))
        c = rng.standard_normal((32, 4)).astype(np.float32)
        d_kind, register = "f32", "%f"
    fa, fb = fragment_a(a), fragment_b(b)
    d = np.zeros_like(c)
    na, nb = fa.shape[1], fb.shape[1]
    loads = [f"ld.global.u32 %r{10 + j}, [%rd2+{4 * j}];" for j in range(na)]
    loads += [f"ld.global.u32 %r{20 + j}, [%rd3+{4 * j}];" for j in range(nb)]
    accumulators = ", ".join(f"{register}{30 + j}" for j in range(4))
    text = kernel_text(f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd2, [pa]; ld.param.u64 %rd3, [pb]; ld.param.u64 %rd4, [pc];
        ld.param.u64 %rd5, [pd]; mad.wide.u32 %rd2, %r1, {4 * na}, %rd2; mad.wide.u32 %rd3, %r1, {4 * nb}, %rd3;
        mad.wide.u32 %rd4, %r1, 16, %rd4; mad.wide.u32 %rd5, %r1, 16, %rd5; {" ".join(loads)}
        ld.global.v4.{d_kind} {{{accumulators}}}, [%rd4];
        mma.sync.aligned.{shape}.row.col.{d_kind}.{kind}.{kind}.{d_kind} {{{accumulators}}},
            {{{", ".join(f"%r{10 + j}" for j in range(na))}}}, {{{", ".join(f"%r{20 + j}" for j in range(nb))}}},
            {{{accumulators}}};
        st.global.v4.{d_kind} [%rd5], {{{accumulators}}}; ret;""",
        ".param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd")  # fmt: skip
    report = load(text).launch("k", 1, 32, [fa, fb, c, d])
    assert not report.findings, report
    want = x @ y + tiles(c, 8)
    if d_kind == "s32":
        np.testing.assert_array_equal(tiles(d, 8), want)
    else:
        np.testing.assert_allclose(tiles(d, 8), want, rtol=1e-6, atol=1e-6)
    assert report.flops == {f"{kind} mma": 2 * 16 * 8 * k}


def test_mma_f64_and_f16_accumulators(rng):
    a, b = rng.standard_normal((8, 4)), rng.standard_normal((4, 8))
    d = np.zeros((32, 2))
    text = kernel_text("""mov.u32 %r1, %tid.x; ld.param.u64 %rd2, [pa]; ld.param.u64 %rd3, [pb]; ld.param.u64 %rd4, [pd];
        mad.wide.u32 %rd2, %r1, 8, %rd2; mad.wide.u32 %rd3, %r1, 8, %rd3; mad.wide.u32 %rd4, %r1, 16, %rd4;
        ld.global.f64 %d1, [%rd2]; ld.global.f64 %d2, [%rd3];
        mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d3, %d4}, {%d1}, {%d2}, {0d0000000000000000, 0d3FF0000000000000};
        st.global.v2.f64 [%rd4], {%d3, %d4}; ret;""", ".param .u64 pa, .param .u64 pb, .param .u64 pd")  # fmt: skip
    report = load(text).launch("k", 1, 32, [a[G, T], b[T, G], d])
    want = a @ b
    np.testing.assert_allclose(d, np.stack([want[G, 2 * T], want[G, 2 * T + 1] + 1], 1), rtol=1e-14)
    assert not report.findings


LDMATRIX = """
    .shared .align 16 .b8 s[512];
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; mov.u32 %r2, s;
    mad.wide.u32 %rd3, %r1, 16, %rd1; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd3]; mad.lo.u32 %r3, %r1, 16, %r2;
    st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7}; bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x4MODE.shared.b16 {%r8, %r9, %r10, %r11}, [%r3];
    STORE
    mad.wide.u32 %rd4, %r1, 16, %rd2; st.global.v4.u32 [%rd4], {%r8, %r9, %r10, %r11}; ret;"""


@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix_and_back(rng, trans):
    x = rng.integers(0, 65536, (4, 8, 8)).astype(np.uint16)
    y = np.zeros((32, 4), np.uint32)
    mode = ".trans" if trans else ""
    text = kernel_text(LDMATRIX.replace("MODE", mode).replace("STORE", ""), ".param .u64 px, .param .u64 py")
    report = load(text).launch("k", 1, 32, [x, y])
    assert not report.findings, report
    matrices = x.transpose(0, 2, 1) if trans else x
    want = np.stack([words(matrices[j])[G, T] for j in range(4)], 1)
    np.testing.assert_array_equal(y, want)
    assert report.bank_conflicts[max(report.bank_conflicts)].ways == 1 or trans
    store = f"""bar.warp.sync -1; stmatrix.sync.aligned.m8n8.x4{mode}.shared.b16 [%r3], {{%r8, %r9, %r10, %r11}};
        bar.warp.sync -1; ld.shared.v4.u32 {{%r8, %r9, %r10, %r11}}, [%r3];"""
    text = kernel_text(LDMATRIX.replace("MODE", mode).replace("STORE", store), ".param .u64 px, .param .u64 py")
    report = load(text).launch("k", 1, 32, [x, y])
    np.testing.assert_array_equal(y, words(x.reshape(32, 8)))
    assert not report.findings, report


def test_movmatrix(rng):
    x = rng.integers(0, 65536, (8, 8)).astype(np.uint16)
    y = np.zeros(32, np.uint32)
    text = kernel_text("""mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py];
        mad.wide.u32 %rd1, %r1, 4, %rd1; mad.wide.u32 %rd2, %r1, 4, %rd2; ld.global.u32 %r2, [%rd1];
        movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2; st.global.u32 [%rd2], %r3; ret;""", ".param .u64 px, .param .u64 py")  # fmt: skip
    load(text).launch("k", 1, 32, [words(x)[G, T], y])
    np.testing.assert_array_equal(y, words(np.ascontiguousarray(x.T))[G, T])


# ---- wgmma ----------------------------------------------------------------------------------------


def swizzled(at: np.ndarray, width: int) -> np.ndarray:
    return at ^ ((at >> 7) % (width // 16) << 4) if width else at


def place(rows: int, k: int, size: int, width: int, contiguous_rows: bool) -> tuple[np.ndarray, int, int]:
    """Byte of each element [rows, k] of a canonical layout, with its leading and stride offsets."""
    r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    if not contiguous_rows:  # K-major
        b = c * size
        if width:
            stride, leading = 8 * width, 0
            return swizzled(r // 8 * stride + r % 8 * width + b, width), leading, stride
        leading, stride = 128, 128 * (k * size // 16)
        return r // 8 * stride + b // 16 * leading + r % 8 * 16 + b % 16, leading, stride
    b = r * size
    if width:
        leading = 8 * width * (k // 8)  # from one chunk of rows to the next
        stride = 8 * width  # from 8 columns of k to the next 8
        return swizzled(b // width * leading + c // 8 * stride + c % 8 * width + b % width, width), leading, stride
    leading, stride = 128 * (rows * size // 16), 128
    return b // 16 * stride + c // 8 * leading + c % 8 * 16 + b % 16, leading, stride


def descriptor(leading: int, stride: int, width: int) -> int:
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[width]
    return (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62


WGMMA = """
    .shared .align 1024 .b8 s[{size}];
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; mov.u32 %r2, s; mov.u32 %r5, %r1;
L:  mad.lo.u32 %r3, %r5, 4, %r2; mad.wide.u32 %rd3, %r5, 4, %rd1; ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4;
    add.u32 %r5, %r5, 128; setp.lt.u32 %p1, %r5, {words}; @%p1 bra L;
    fence.proxy.async; bar.sync 0;
    shr.u32 %r6, %r2, 4; cvt.u64.u32 %rd4, %r6; add.u64 %rd5, %rd4, {a}; add.u64 %rd6, %rd4, {b};
    {zero} {registers}
    wgmma.fence.sync.aligned;
    mov.pred %p3, {scale};
    wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} {{{d}}}, {left}, %rd6, %p3, 1, 1{turns};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0; // wait
    mad.wide.u32 %rd7, %r1, {bytes}, %rd2; {stores} ret;"""


def wgmma(rng, n=16, width=128, kind="bf16", turn_a=False, turn_b=False, registers=False, scale=1):
    size = {"bf16": 2, "f16": 2, "tf32": 4}[kind]
    k = 32 // size
    a, b = rng.standard_normal((64, k)), rng.standard_normal((k, n))
    if kind == "bf16":
        raw = to_bf16(a), to_bf16(b.T)
        x, y = (from_bf16(m).astype(np.float64) for m in raw)
    elif kind == "f16":
        raw = a.astype(np.float16).view(np.uint16), b.T.astype(np.float16).view(np.uint16)
        x, y = (m.view(np.float16).astype(np.float64) for m in raw)
    else:
        raw = tuple((m.astype(np.float32).view(np.uint32) & 0xFFFFE000) for m in (a, b.T))
        x, y = (m.view(np.float32).astype(np.float64) for m in raw)
    memory = np.zeros(16384, np.uint8)
    offsets = []
    for which, (m, turn) in enumerate(((raw[0], turn_a), (raw[1], turn_b))):
        at, leading, stride = place(len(m), k, size, width, turn)
        start = 8192 * which
        memory.view(m.dtype)[(start + at) // size] = m
        offsets.append(descriptor(leading, stride, width) + (start >> 4))
    left = "%rd5"
    loads = ""
    y_ = np.zeros((128, n // 2), np.float32)
    if registers:
        fragments = np.concatenate([fragment_a(raw[0][16 * w : 16 * w + 16]) for w in range(4)])
        loads = "ld.param.u64 %rd9, [pa]; mad.wide.u32 %rd9, %r1, 16, %rd9; ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd9];"
        left = "{%r20, %r21, %r22, %r23}"
    else:
        fragments = np.zeros(4, np.uint32)
    turns = "" if size == 4 else f", {int(turn_b)}" if registers else f", {int(turn_a)}, {int(turn_b)}"
    d = [f"%e{j}" for j in range(n // 2)]
    text = kernel_text(WGMMA.format(
        size=16384, words=4096, a=offsets[0], b=offsets[1], n=n, k=k, kind=kind, d=", ".join(d), left=left, turns=turns,
        scale=scale, registers=loads, bytes=2 * n,
        zero=" ".join(f"mov.f32 {r}, 0f40000000;" for r in d) if scale else "",
        stores=" ".join(f"st.global.f32 [%rd7+{4 * j}], {r};" for j, r in enumerate(d))),
        ".param .u64 px, .param .u64 py, .param .u64 pa", f".reg .f32 %e<{n // 2}>;")  # fmt: skip
    return text, [memory, y_, fragments], x @ y.T + 2 * scale


def check(text: str, args: list, want: np.ndarray):
    report = load(text).launch("k", 1, 128, args)
    n = want.shape[1]
    got = np.concatenate([tiles(args[1][32 * w : 32 * w + 32], n) for w in range(4)])
    return report, np.abs(got - want).max()


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("kind", ["bf16", "f16", "tf32"])
def test_wgmma(rng, width, kind):
    report, error = check(*wgmma(rng, n=24, width=width, kind=kind))
    assert error < 1e-5 and not report.findings, report


@pytest.mark.parametrize("width", [0, 32, 64, 128])
def test_wgmma_of_transposed_operands(rng, width):
    report, error = check(*wgmma(rng, n=64, width=width, turn_a=True, turn_b=True, scale=0))
    assert error < 1e-5 and not report.findings, report


def test_wgmma_with_a_in_registers(rng):
    report, error = check(*wgmma(rng, n=32, turn_b=True, registers=True))
    assert error < 1e-5 and not report.findings, report


def test_wgmma_without_a_wait_is_old_data(rng):
    text, args, want = wgmma(rng)
    report, error = check(text.replace("wgmma.wait_group.sync.aligned 0; // wait", ""), args, want)
    assert error > 0.1 and {f.kind for f in report.findings} == {"missing-wait"}
    text, args, want = wgmma(rng)
    report, _ = check(text.replace("wgmma.fence.sync.aligned;", ""), args, want)
    assert {f.kind for f in report.findings} == {"wgmma"}
