"""Divergence and reconvergence, loops, switches, calls, and what warps do together."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import load

from .conftest import kernel_text

TID = "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; mad.wide.u32 %rd2, %r1, 4, %rd1;"


def run(body: str, n: int = 64, block: int = 64, **options) -> tuple[np.ndarray, object]:
    out = np.zeros(n, np.uint32)
    text = kernel_text(TID + body, ".param .u64 px")
    return out, load(text).launch("k", 1, block, [out], **options)


def test_nested_loops_with_break_and_continue():
    """for i in range(tid): if i % 3 == 0: continue; if i > 40: break; sum += i * (inner loop)."""
    out, report = run("""
        mov.u32 %r2, 0; mov.u32 %r3, 0;
    OUTER: setp.ge.u32 %p1, %r2, %r1; @%p1 bra DONE;
        rem.u32 %r4, %r2, 3; setp.eq.u32 %p2, %r4, 0; @%p2 bra NEXT;
        setp.gt.u32 %p3, %r2, 40; @%p3 bra DONE;
        mov.u32 %r5, 0;
    INNER: add.u32 %r3, %r3, %r2; add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, %r4; @%p4 bra INNER;
    NEXT: add.u32 %r2, %r2, 1; bra OUTER;
    DONE: st.global.u32 [%rd2], %r3; ret;""")
    want = [sum(i * (i % 3) for i in range(min(t, 41)) if i % 3) for t in range(64)]
    np.testing.assert_array_equal(out, want)
    assert not report.findings


def test_lanes_meet_again_after_a_branch():
    """The full mask is live behind if/else, in a warp whose lanes went both ways."""
    out, report = run("""
        and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra EVEN;
        activemask.b32 %r3; bra JOIN;
    EVEN: mov.u32 %r3, 0;
    JOIN: activemask.b32 %r4; vote.sync.ballot.b32 %r5, %p1, 0xffffffff; xor.b32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5;
        st.global.u32 [%rd2], %r3; ret;""")  # fmt: skip
    full, odd, even = 0xFFFFFFFF, 0xAAAAAAAA, 0x55555555
    np.testing.assert_array_equal(out[:2], [(full + even) & full, ((odd ^ full) + even) & full])
    assert not report.findings


def test_short_circuit_conditions_and_switch():
    out, report = run("""
        and.b32 %r2, %r1, 3; ts: .branchtargets A, B, C;
        brx.idx %r2, ts;
    A: mov.u32 %r3, 10; bra END;
    B: mov.u32 %r3, 20; bra END;
    C: mov.u32 %r3, 30;
    END: st.global.u32 [%rd2], %r3; ret;""")
    np.testing.assert_array_equal(out, np.take([10, 20, 30, 30], np.arange(64) % 4))
    assert not report.findings


def test_functions_are_expanded():
    text = kernel_text("""
        mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; mad.wide.u32 %rd2, %r1, 4, %rd1;
        { .param .b32 arg; .param .b32 back; st.param.b32 [arg+0], %r1; call.uni (back), twice, (arg);
          ld.param.b32 %r2, [back+0]; }
        { .param .b32 arg; .param .b32 back; st.param.b32 [arg+0], %r2; call.uni (back), twice, (arg);
          ld.param.b32 %r2, [back+0]; }
        st.global.u32 [%rd2], %r2; ret;""", ".param .u64 px").replace(".visible", """
        .func (.param .b32 out) twice(.param .b32 in) { .reg .b32 %r<4>; .reg .pred %p<2>;
          ld.param.b32 %r1, [in]; setp.gt.u32 %p1, %r1, 50; @%p1 bra BIG; add.u32 %r2, %r1, %r1;
          st.param.b32 [out], %r2; ret; BIG: st.param.b32 [out], %r1; ret; }
        .visible""")  # fmt: skip
    out = np.zeros(64, np.uint32)
    report = load(text).launch("k", 1, 64, [out])
    twice = lambda v: v if v > 50 else 2 * v  # noqa: E731
    np.testing.assert_array_equal(out, [twice(twice(t)) for t in range(64)])
    assert not report.findings


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles(rng, mode, width):
    by = int(rng.integers(0, width))
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    out, report = run(f"""
        mul.lo.u32 %r2, %r1, 3; shfl.sync.{mode}.b32 %r3|%p1, %r2, {by}, {clamp}, -1;
        selp.u32 %r4, 1000, 0, %p1; add.u32 %r3, %r3, %r4; st.global.u32 [%rd2], %r3; ret;""")
    t = np.arange(64)
    inside = t % width
    source = {"up": inside - by, "down": inside + by, "bfly": inside ^ by, "idx": np.full(64, by)}[mode]
    good = (source >= 0) & (source < width)
    np.testing.assert_array_equal(out, 3 * (t - inside + np.where(good, source, inside)) + 1000 * good)
    assert not report.findings


def test_votes_matches_and_reductions():
    out, report = run("""
        and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 1;
        vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; selp.u32 %r3, 1, 0, %p2; selp.u32 %r4, 2, 0, %p3;
        add.u32 %r3, %r3, %r4; match.any.sync.b32 %r5, %r2, -1; redux.sync.add.u32 %r6, %r2, -1; redux.sync.max.s32 %r7, %r1, -1;
        popc.b32 %r5, %r5; mad.lo.u32 %r3, %r5, 100, %r3; mad.lo.u32 %r3, %r6, 10000, %r3; add.u32 %r3, %r3, %r7;
        elect.sync %r8|%p4, -1; @%p4 add.u32 %r3, %r3, 5000000;
        st.global.u32 [%rd2], %r3; ret;""")  # fmt: skip
    t = np.arange(64)
    np.testing.assert_array_equal(out, 1 + 8 * 100 + 48 * 10000 + (t // 32 * 32 + 31) + 5000000 * (t % 32 == 0))
    assert not report.findings


def test_special_registers():
    text = kernel_text("""
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
        mov.u32 %r6, %nctaid.x; mov.u32 %r7, %ntid.y; mov.u32 %r8, %laneid; mov.u32 %r9, %lanemask_lt; mov.u32 %r10, %warpid;
        ld.param.u64 %rd1, [px]; mad.lo.u32 %r11, %r3, 2, %r2; mad.lo.u32 %r11, %r11, 8, %r1;
        mad.lo.u32 %r12, %r5, %r6, %r4; mad.lo.u32 %r12, %r12, 48, %r11; mad.wide.u32 %rd2, %r12, 32, %rd1;
        st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd2+16], {%r5, %r8, %r9, %r10}; ret;""",
        ".param .u64 px")  # fmt: skip
    out = np.zeros((6, 48, 8), np.uint32)
    report = load(text).launch("k", (3, 2), (8, 2, 3), [out])
    for block in range(6):
        for t in range(48):
            lane = t % 32
            want = [t % 8, t // 8 % 2, t // 16, block % 3, block // 3, lane, (1 << lane) - 1, t // 32]
            assert out[block, t].tolist() == want
    assert not report.findings


def test_a_chunk_is_not_seen(monkeypatch):
    """Many blocks, in one chunk or in many, give the same."""
    import trueno_cuda.ptx.emulate.launch as launch

    text = kernel_text("""mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 48, %r2;
        ld.param.u64 %rd1, [px]; mad.wide.u32 %rd2, %r3, 4, %rd1; st.global.u32 [%rd2], %r3; ret;""", ".param .u64 px")  # fmt: skip
    for lanes in (64, 640, 32768):
        monkeypatch.setattr(launch, "LANES", lanes)
        out = np.zeros(48 * 37, np.uint32)
        report = load(text).launch("k", 37, 48, [out])
        np.testing.assert_array_equal(out, np.arange(48 * 37))
        assert report.instructions["st.global.u32"] == 48 * 37 and not report.findings
