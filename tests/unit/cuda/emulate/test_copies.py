"""Asynchronous copies: they land when waited for, and not before."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import LaunchError, TensorMap, load

from .conftest import kernel_text

CP_ASYNC = """
    .shared .align 16 .b8 s[2048];
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; mov.u32 %r2, s;
    mad.lo.u32 %r3, %r1, 16, %r2; mad.wide.u32 %rd3, %r1, 16, %rd1;
    cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.commit_group;
    cp.async.ca.shared.global [%r3+1024], [%rd3+1024], 8, 4; cp.async.commit_group;
    cp.async.wait_group 1; // wait
    bar.sync 0; // sync
    xor.b32 %r4, %r1, 1; mad.lo.u32 %r5, %r4, 16, %r2; ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r5];
    mad.wide.u32 %rd4, %r1, 16, %rd2; st.global.v4.u32 [%rd4], {%r6, %r7, %r8, %r9};
    cp.async.wait_all; ld.shared.v2.u32 {%r6, %r7}, [%r3+1024]; st.global.v2.u32 [%rd4+1024], {%r6, %r7}; ret;"""


def copy(text: str):
    x = np.random.default_rng(3).integers(0, 2**32, (128, 4)).astype(np.uint32)
    y = np.zeros((128, 4), np.uint32)
    return x, y, load(kernel_text(text, ".param .u64 px, .param .u64 py")).launch("k", 1, 64, [x, y])


def test_cp_async():
    x, y, report = copy(CP_ASYNC)
    np.testing.assert_array_equal(y[:64], x[np.arange(64) ^ 1])
    np.testing.assert_array_equal(y[64:, :2], np.stack([x[64:, 0], np.zeros(64, np.uint32)], 1))
    assert not report.findings, report


@pytest.mark.parametrize("piece, replacement, kinds", [
    ("cp.async.wait_group 1; // wait", "", {"missing-wait"}),
    ("cp.async.wait_group 1; // wait", "cp.async.wait_group 2;", {"missing-wait"}),
    ("bar.sync 0; // sync", "", {"shared-race"}),
    ("[%r3], [%rd3], 16;", "[%r3+4], [%rd3], 16;", {"misaligned", "uninitialised-shared"}),
    ("[%rd3+1024], 8, 4", "[%rd3+2048], 8, 4", {"out-of-bounds"}),
])  # fmt: skip
def test_cp_async_mutants(piece, replacement, kinds):
    assert piece in CP_ASYNC
    x, y, report = copy(CP_ASYNC.replace(piece, replacement))
    assert {f.kind for f in report.findings} == kinds, report
    if "wait" in piece:
        assert (y[:64] != x[np.arange(64) ^ 1]).any()  # old data, as on the hardware


def test_sources_beyond_the_size_are_not_read():
    body = CP_ASYNC.replace("[%rd3+1024], 8, 4", "[%rd3+4096], 8, 0")
    _, y, report = copy(body)
    assert (y[64:, :2] == 0).all() and not report.findings


BULK = """
    .shared .align 128 .b8 s[1024]; .shared .align 8 .b8 bar[8];
    mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [bar], 1024; // expect
    mov.u32 %r2, s; mov.u32 %r3, bar;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 1024, [%r3];
READY: bar.sync 0;
T:  mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra T; // wait
    mov.u32 %r4, s; mad.lo.u32 %r5, %r1, 4, %r4; ld.shared.u32 %r6, [%r5]; add.u32 %r6, %r6, 1; st.shared.u32 [%r5], %r6;
    fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
    mov.u32 %r2, s; cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 1024; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; // store
END: ret;"""


def bulk(text: str):
    x = np.random.default_rng(4).integers(0, 2**31, 256).astype(np.uint32)
    y = np.zeros(256, np.uint32)
    return x, y, load(kernel_text(text, ".param .u64 px, .param .u64 py")).launch("k", 1, 256, [x, y])


def test_bulk_copies_there_and_back():
    x, y, report = bulk(BULK)
    np.testing.assert_array_equal(y, x + 1)
    assert not report.findings, report


def test_bulk_mutants():
    waited = "T:  mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra T; // wait"
    x, y, report = bulk(BULK.replace(waited, ""))
    assert {f.kind for f in report.findings} == {"missing-wait"}
    assert (y != x + 1).any()
    _, y, report = bulk(BULK.replace("@!%p2 bra T; // wait", ""))  # try_wait may answer no: one must ask again
    assert "missing-wait" in {f.kind for f in report.findings} and (y != x + 1).any()
    _, _, report = bulk(BULK.replace("[bar], 1024; // expect", "[bar], 1040;"))
    assert {f.kind for f in report.findings} == {"deadlock"}
    _, y, _ = bulk(BULK.replace("cp.async.bulk.wait_group 0; // store", ""))
    assert (y == 0).all()  # never waited for, never there


TENSOR = """
    .shared .align 1024 .b8 s[{size}]; .shared .align 8 .b8 bar[8];
    mov.u32 %r1, %tid.x; ld.param.u64 %rd2, [py]; setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; mov.u32 %r2, s; mov.u32 %r3, bar; mov.u32 %r7, {c0}; mov.u32 %r8, {c1};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r7, %r8}}], [%r3];
READY: bar.sync 0;
T:  mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0; @!%p2 bra T;
    mov.u32 %r4, s;
L:  mad.lo.u32 %r5, %r1, 4, %r4; ld.shared.u32 %r6, [%r5]; mad.wide.u32 %rd3, %r1, 4, %rd2; st.global.u32 [%rd3], %r6;
    add.u32 %r1, %r1, 32; setp.lt.u32 %p3, %r1, {words}; @%p3 bra L; ret;"""


@pytest.mark.parametrize("width", [0, 32, 64, 128])
def test_tensor_tiles_with_swizzle(rng, width):
    inner = (width or 64) // 4
    x = rng.integers(1, 2**31, (40, 64)).astype(np.uint32)
    box = (16, inner)
    size = 16 * inner * 4
    y = np.zeros(size // 4, np.uint32)
    c0, c1 = 64 - inner + 4, 30  # both sides reach past the array
    text = kernel_text(
        TENSOR.format(size=size, words=size // 4, c0=c0, c1=c1), ".param .align 64 .b8 map[128], .param .u64 py"
    )
    report = load(text).launch("k", 1, 32, [TensorMap(x, box, width), y])
    padded = np.zeros((64, 128), np.uint32)
    padded[:40, :64] = x
    tile = padded[c1 : c1 + 16, c0 : c0 + inner]
    want = np.zeros_like(y)
    for r in range(16):
        for k in range(inner):
            at = (r * inner + k) * 4
            chunk = at >> 4
            if width:
                chunk ^= (at >> 7) & (width // 16 - 1)
            want[(chunk << 4 | at & 15) // 4] = tile[r, k]
    np.testing.assert_array_equal(y, want)
    assert not report.findings, report


def test_tensor_map_limits():
    with pytest.raises(LaunchError, match="16 bytes"):
        TensorMap(np.zeros((4, 4), np.float32), (4, 3))
    with pytest.raises(LaunchError, match="swizzle"):
        TensorMap(np.zeros((4, 64), np.float32), (4, 64), 128)


def test_multicast_reaches_each_block_of_the_mask(rng):
    text = BULK.replace("1024, [%r3];", "1024, [%r3], %h1;").replace("bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
        "bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster").replace(
        "    mbarrier.init", "    mov.b16 %h1, 3; mbarrier.init").replace(
        "    mov.u32 %r2, s; mov.u32 %r3, bar;", """    barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r20, %cluster_ctarank;
        setp.ne.u32 %p5, %r20, 0; @%p5 bra READY; mov.u32 %r2, s; mov.u32 %r3, bar;""").replace(
        "READY: bar.sync 0;", "bra GO; READY: @!%p1 bra GO; barrier.cluster.arrive; barrier.cluster.wait; GO: bar.sync 0;").replace(
        "mov.u32 %r2, s; cp.async.bulk.global", "mov.u32 %r2, s; mov.u32 %r21, %ctaid.x; mad.wide.u32 %rd2, %r21, 1024, %rd2; "
        "cp.async.bulk.global")  # fmt: skip
    x = rng.integers(0, 2**31, 256).astype(np.uint32)
    y = np.zeros((2, 256), np.uint32)
    report = load(kernel_text(text, ".param .u64 px, .param .u64 py")).launch("k", 2, 256, [x, y], cluster=2)
    np.testing.assert_array_equal(y, np.stack([x + 1, x + 1]))
    assert not report.errors, report
