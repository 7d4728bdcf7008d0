"""Named barriers, reductions, mbarriers, locks, spins and clusters."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import numpy as np
from trueno_cuda.ptx.emulate import load

from .conftest import kernel_text


def run(body: str, block: int = 64, blocks: int = 1, words: int = 64, registers: str = "", **options):
    out = np.zeros(words, np.uint32)
    text = kernel_text("mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [px]; mad.wide.u32 %rd2, %r1, 4, %rd1;" + body,
                       ".param .u64 px", registers)  # fmt: skip
    return out, load(text).launch("k", blocks, block, [out], **options)


def test_barrier_reductions():
    out, report = run("""
        setp.lt.u32 %p1, %r1, 40; barrier.cta.red.popc.aligned.u32 %r2, 0, %p1; bar.red.and.pred %p2, 0, %p1;
        bar.red.or.pred %p3, 0, !%p1; selp.u32 %r3, 1000, 0, %p2; selp.u32 %r4, 2000, 0, %p3;
        add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%rd2], %r2; ret;""")
    assert (out == 2040).all() and not report.findings


def test_producers_and_consumers_on_named_barriers():
    """Warp 0 fills a buffer that warp 1 reads, twice, over barriers 1 (full) and 2 (empty)."""
    body = """
        .shared .align 4 .b8 s[128];
        and.b32 %r2, %r1, 31; mov.u32 %r3, s; mad.lo.u32 %r3, %r2, 4, %r3; mov.u32 %r5, 0; mov.u32 %r9, 0;
        setp.ge.u32 %p1, %r1, 32; @%p1 bra CONSUMER;
    P:  setp.eq.u32 %p2, %r5, 0; @%p2 bra FILL; {0}
    FILL: mad.lo.u32 %r6, %r5, 100, %r2; st.shared.u32 [%r3], %r6; bar.arrive 1, 64;
        add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3; @%p3 bra P; ret;
    CONSUMER: bar.sync 1, 64; xor.b32 %r7, %r2, 5; mov.u32 %r8, s; mad.lo.u32 %r8, %r7, 4, %r8; ld.shared.u32 %r8, [%r8];
        add.u32 %r9, %r9, %r8; setp.eq.u32 %p4, %r5, 2; @%p4 bra OUT; bar.arrive 2, 64;
    OUT: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3; @%p3 bra CONSUMER; st.global.u32 [%rd2], %r9; ret;"""
    out, report = run(body.format("bar.sync 2, 64;"))
    np.testing.assert_array_equal(out[32:], 300 + 3 * (np.arange(32) ^ 5))
    assert not report.findings, report
    _, report = run(body.format(""))
    assert "shared-race" in {f.kind for f in report.findings} or not report.completed


MBARRIER = """
    .shared .align 8 .b8 bar[8]; .shared .align 4 .b8 s[4];
    setp.ne.u32 %p1, %r1, 0; @%p1 bra READY; mbarrier.init.shared::cta.b64 [bar], 32;
READY: bar.sync 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra WAIT;
    setp.ne.u32 %p2, %r1, 7; @%p2 bra ARRIVE; mov.u32 %r2, 99; st.shared.u32 [s], %r2;
ARRIVE: mbarrier.arrive.shared::cta.b64 %rd5, [bar]; ret;
WAIT: {wait}
    ld.shared.u32 %r3, [s]; st.global.u32 [%rd2], %r3; ret;"""


def test_mbarrier_orders_and_its_absence_is_a_race():
    tries = "T: mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0; @%p3 bra GO; bra T; GO:"
    tests = tries.replace("try_wait", "test_wait")
    for wait in (tries, tests):
        out, report = run(MBARRIER.format(wait=wait))
        assert (out[32:] == 99).all() and not report.findings, report
    _, report = run(MBARRIER.format(wait=""))
    assert {f.kind for f in report.findings} & {"shared-race", "uninitialised-shared"}


def test_mbarrier_misuse():
    tries = "T: mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0; @%p3 bra GO; bra T; GO:"
    _, report = run(MBARRIER.format(wait=tries).replace("[bar], 32;", "[bar], 33;"))
    assert {f.kind for f in report.findings} == {"deadlock"} and not report.completed
    _, report = run(MBARRIER.format(wait=tries).replace("mbarrier.init.shared::cta.b64 [bar], 32;", ""))
    assert any("not initialised" in f.message for f in report.findings)


def test_init_must_be_ordered_before_its_use():
    tries = "T: mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0; @%p3 bra GO; bra T; GO:"
    _, report = run(MBARRIER.format(wait=tries).replace("READY: bar.sync 0;", "READY:"))
    assert any(f.kind == "shared-race" and f.array == "bar" for f in report.findings), report


def test_guarded_barriers_and_shuffles():
    out, report = (
        run("""setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 32; @!%p1 barrier.sync.aligned 2, 32; mov.u32 %r2, 5;
        @%p1 shfl.sync.idx.b32 %r2, %r1, 3, 31, -1; st.global.u32 [%rd2], %r2; ret;""")
    )
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 32, 3, 5))
    assert not report.findings


def test_barriers_in_loops():
    """Warps may leave at different turns; lanes of one warp may not."""
    body = """{0} mov.u32 %r2, 0; L: bar.sync 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r3; @%p1 bra L;
        st.global.u32 [%rd2], %r2; ret;"""
    out, report = run(body.format("shr.u32 %r3, %r1, 5; add.u32 %r3, %r3, 3;"))
    np.testing.assert_array_equal(out, np.arange(64) // 32 + 3)
    assert not report.findings
    _, report = run(body.format("add.u32 %r3, %r1, 1;"))
    assert "divergent-barrier" in {f.kind for f in report.findings}


def test_a_spin_lock_makes_progress():
    """Lanes of one warp contend for a lock, which needs a fair turn for the one that holds it."""
    out, report = run(
        """
    L:  atom.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra L;
        ld.volatile.global.u32 %r3, [%rd1+4]; add.u32 %r3, %r3, 1; st.volatile.global.u32 [%rd1+4], %r3;
        membar.gl; atom.global.exch.b32 %r4, [%rd1], 0; ret;""",
        blocks=3,
    )
    assert out[1] == 192 and report.completed


def test_a_block_may_wait_for_a_later_one(monkeypatch):
    import trueno_cuda.ptx.emulate.launch as launch

    monkeypatch.setattr(launch, "LANES", 64)
    body = """mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra SET;
    L:  ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p2, %r3, {0}; @%p2 bra L; st.global.u32 [%rd1+4], %r3; ret;
    SET: setp.ne.u32 %p3, %r1, 0; @%p3 ret; red.release.gpu.global.add.u32 [%rd1], 1; ret;"""
    out, report = run(body.format(3), blocks=4)
    assert out[1] == 3 and report.completed
    _, report = run(body.format(9), blocks=4)
    assert {f.kind for f in report.findings} == {"deadlock"} and "spins" in report.findings[0].message


def test_what_another_block_sent_is_written():
    """A block reads what the other one wrote to its memory; to read a word that no block wrote is a finding."""
    body = """
        .shared .align 4 .b8 s[512]; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, s; mad.lo.u32 %r4, %r1, 4, %r3;
        barrier.cluster.arrive.relaxed; barrier.cluster.wait;
        xor.b32 %r6, %r2, 1; mapa.shared::cluster.u32 %r7, %r4, %r6; mad.lo.u32 %r5, %r2, 1000, %r1;
        st.shared::cluster.u32 [%r7], %r5; barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r8, [%r4+{}];
        mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 64, %r1; mad.wide.u32 %rd3, %r9, 4, %rd1; st.global.u32 [%rd3], %r8; ret;"""
    out, report = run(body.format(0), blocks=2, words=128, cluster=2)
    np.testing.assert_array_equal(out.reshape(2, 64), [[1000 + t for t in range(64)], list(range(64))])
    assert not report.findings, report
    _, report = run(body.format(4), blocks=2, words=128, cluster=2)
    (found,) = report.findings
    assert found.kind == "uninitialised-shared" and found.count == 2


def test_clusters_share_memory():
    body = """
        .shared .align 4 .b8 s[256]; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, s; mad.lo.u32 %r4, %r1, 4, %r3;
        mad.lo.u32 %r5, %r2, 1000, %r1; st.shared.u32 [%r4], %r5;
        barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
        xor.b32 %r6, %r2, 1; mapa.shared::cluster.u32 %r7, %r4, %r6; ld.shared::cluster.u32 %r8, [%r7];
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 64, %r1; mad.wide.u32 %rd3, %r9, 4, %rd1; st.global.u32 [%rd3], %r8; ret;"""
    out, report = run(body, blocks=4, words=256, cluster=2)
    want = [[(b % 2 ^ 1) * 1000 + t for t in range(64)] for b in range(4)]
    np.testing.assert_array_equal(out.reshape(4, 64), want)
    assert not report.findings, report
