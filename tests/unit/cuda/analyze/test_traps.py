"""Kernels that look wrong and are right: no rule says a word about them; and their wrong twins, of which one does."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import pytest
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.rules import example

from .test_rules import found

STORE = "ld.param.u64 %rd1, [x]; mov.u32 %r9, %tid.x; mul.wide.u32 %rd2, %r9, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1; ret;"
COUNTED = """mov.u32 %r9, %tid.x; mov.u32 %r3, s; ld.param.u64 %rd3, [y]; mul.wide.u32 %rd4, %r9, 4; add.u64 %rd3, %rd3, %rd4;
ld.global.u32 %r6, [%rd3]; {before} and.b32 %r6, %r6, 7; {place} add.u32 %r6, %r6, %r3;
ld.shared.u32 %r1, [%r6]; add.u32 %r1, %r1, 1; st.shared.u32 [%r6], %r1; """
STAGES = """.shared .align 16 .b8 q[3072]; mov.u32 %r1, %tid.x; mov.u32 %r3, q; shl.b32 %r2, %r1, 2; ld.param.u64 %rd3, [y]; ld.param.u32 %r8, [n];
mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4; add.u32 %r4, %r3, %r2; cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.commit_group;
cp.async.ca.shared.global [%r4+1024], [%rd3+1024], 4; cp.async.commit_group; mov.u32 %r5, 0;
L: cp.async.wait_group {left}; bar.sync 0; rem.u32 %r6, %r5, 3; shl.b32 %r6, %r6, 10; add.u32 %r6, %r6, %r3; sub.u32 %r7, %r6, %r2;
ld.shared.u32 %r1, [%r7+1020]; add.u32 %r10, %r5, 2; rem.u32 %r10, %r10, 3; shl.b32 %r10, %r10, 10; add.u32 %r10, %r10, %r4;
add.u64 %rd3, %rd3, 1024; cp.async.ca.shared.global [%r10], [%rd3+1024], 4; cp.async.commit_group;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r8; @%p1 bra L; """ + STORE  # fmt: skip
TRAPS = {
    "an exit that the block shares": "ld.param.u32 %r1, [n]; mov.u32 %r2, %ctaid.x; setp.ge.u32 %p1, %r2, %r1; @%p1 ret; bar.sync 0; " + STORE,
    "a branch on a parameter": "ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 bra END; bar.sync 0; END: " + STORE,
    "a branch on what all threads load": "ld.param.u64 %rd3, [y]; ld.global.u32 %r1, [%rd3]; setp.eq.u32 %p1, %r1, 0; @%p1 bra END; bar.sync 0; END: " + STORE,
    "a branch on a vote of the block": "mov.u32 %r1, %tid.x; setp.lt.u32 %p2, %r1, 7; barrier.sync 0; bar.red.or.pred %p1, 0, %p2; @%p1 bra END; bar.sync 0; END: " + STORE,
    "warps at a barrier of their own": "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 64; @!%p1 bra END; bar.sync 1, 64; END: " + STORE,
    "producers and consumers": "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra A; bar.sync 0; bra END; A: bar.sync 0; END: " + STORE,
    "a predicate that is used again": "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 7; @%p1 add.u32 %r1, %r1, 1; ld.param.u32 %r2, [n]; setp.lt.u32 %p1, %r2, 7; @%p1 bra END; bar.sync 0; END: " + STORE,
    "a thread that reads its own": "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %r1; ld.shared.u32 %r1, [%r2]; " + STORE,
    "a warp among itself": "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; bar.warp.sync -1; xor.b32 %r2, %r2, 4; add.u32 %r4, %r2, %r3; ld.shared.u32 %r1, [%r4]; " + STORE,
    "one value written by all": "ld.param.u32 %r1, [n]; st.shared.u32 [s], %r1; ld.shared.u32 %r1, [s]; " + STORE,
    "volatile exchange": "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.volatile.shared.u32 [%r4], %r1; ld.volatile.shared.u32 %r1, [s+128]; " + STORE,
    "two stages": "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 1; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; mov.u32 %r7, %r3; .reg .b16 %h<4>; cvt.u16.u32 %h1, %r1; mov.u32 %r5, 0; L: st.shared.u16 [%r4], %h1; bar.sync 0; ld.shared.u16 %h1, [%r7+2]; xor.b32 %r4, %r4, 512; xor.b32 %r7, %r7, 512; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 4; @%p1 bra L; cvt.u32.u16 %r1, %h1; " + STORE,
    "a reduction that halves": "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; bar.sync 0; ld.param.u32 %r5, [n]; L: setp.ge.u32 %p1, %r1, %r5; @%p1 bra A; ld.shared.u32 %r6, [%r4]; shl.b32 %r7, %r5, 2; add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; add.u32 %r6, %r6, %r8; st.shared.u32 [%r4], %r6; A: bar.sync 0; shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra L; " + STORE,
    "three stages of copies": STAGES.format(left=1),
    "a column of its own": "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; ld.param.u32 %r5, [n]; mov.u32 %r6, 0; L: st.shared.u32 [%r4], %r1; shl.b32 %r7, %r5, 10; add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; add.u32 %r1, %r1, %r8; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 4; @%p2 bra L; " + STORE,
    "an empty kernel": "ret;",
    "a spin": "ld.param.u64 %rd3, [y]; L: ld.acquire.gpu.global.u32 %r1, [%rd3]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; " + STORE,
    "half of a value undefined": "mov.u32 %r1, %tid.x; .reg .b16 %h<4>; cvt.u16.u32 %h1, %r1; mov.b32 %r1, {%h1, %h2}; " + STORE,
    "written on both ways": "ld.param.u32 %r2, [n]; setp.eq.u32 %p1, %r2, 0; @%p1 mov.u32 %r1, 1; @!%p1 mov.u32 %r1, 2; " + STORE,
    "written on the way that reads": "ld.param.u32 %r2, [n]; setp.eq.u32 %p1, %r2, 0; @%p1 bra A; mov.u32 %r3, 5; A: mov.u32 %r1, 0; @%p1 bra B; add.u32 %r1, %r3, 1; B: " + STORE,
    "a vector where every fourth thread is left": "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; setp.ne.u32 %p1, %r2, 0; @%p1 bra END; shl.b32 %r3, %r1, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1}; END: " + STORE,
    "a mask of the lanes that are there": "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 16; @%p1 bra END; shfl.sync.bfly.b32 %r1, %r1, 1, 31, 65535; END: " + STORE,
    "trap on a failed assertion": "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 2000; @%p1 trap; bar.sync 0; " + STORE,
    "a table of branches": "ld.param.u32 %r1, [n]; T: .branchtargets A, B; brx.idx %r1, T; A: bar.sync 0; B: " + STORE,
    "generic and back": "mov.u32 %r1, %tid.x; mov.u64 %rd3, s; cvta.shared.u64 %rd4, %rd3; st.u32 [%rd4], %r1; cvta.to.shared.u64 %rd5, %rd4; ld.shared.u32 %r1, [%rd5]; " + STORE,
    "a branch on what butterflies combined": "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; shl.b32 %r2, %r2, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; ld.shared.u32 %r4, [%r3]; shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1; or.b32 %r6, %r4, %r5; setp.eq.u32 %p1, %r6, 0; @%p1 bra END; bar.sync 0; END: " + STORE,
    "eight loads that share their sectors": "mov.u32 %r1, %tid.x; ld.param.u64 %rd3, [y]; mul.wide.u32 %rd4, %r1, 32; add.u64 %rd3, %rd3, %rd4; " + " ".join(f"ld.global.u32 %r{k}, [%rd3+{4 * k}]; add.u32 %r1, %r1, %r{k};" for k in range(2, 8)) + STORE,
    "a histogram of each thread": COUNTED.format(place="shl.b32 %r6, %r6, 10; shl.b32 %r7, %r9, 2; add.u32 %r6, %r6, %r7;", before="") + STORE,
    "a histogram by a lane that a vote chose": COUNTED.format(place="shl.b32 %r6, %r6, 2;", before="match.any.sync.b32 %r7, %r6, -1; bfind.u32 %r7, %r7; and.b32 %r8, %r9, 31; setp.ne.u32 %p1, %r7, %r8; @%p1 bra END;") + "END: " + STORE,
}  # fmt: skip
WRONG = {
    "a branch on a thread": ("divergent-barrier", "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra END; bar.sync 0; END: " + STORE),
    "a branch to the end": ("exit-before-barrier", "mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n]; setp.ge.u32 %p1, %r1, %r2; @%p1 bra END; bar.sync 0; " + STORE.replace("ret;", "END: ret;")),
    "a branch to a branch to the end": ("exit-before-barrier", "mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n]; setp.ge.u32 %p1, %r1, %r2; @%p1 bra A; bar.sync 0; " + STORE.replace("ret;", "bra END; A: bra END; END: ret;")),
    "a branch on what each thread loads": ("divergent-barrier", "ld.param.u64 %rd3, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4; ld.global.u32 %r1, [%rd3]; setp.eq.u32 %p1, %r1, 0; @%p1 bra END; bar.sync 0; END: " + STORE),
    "a loop that threads leave apart": ("divergent-barrier", "mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n]; L: bar.sync 0; add.u32 %r1, %r1, 256; setp.lt.u32 %p1, %r1, %r2; @%p1 bra L; " + STORE),
    "a branch on half of a butterfly": ("divergent-barrier", "mov.u32 %r1, %tid.x; shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1; setp.eq.u32 %p1, %r5, 0; @%p1 bra END; bar.sync 0; END: " + STORE),
    "a warp at a barrier of the block": ("divergent-barrier", "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.eq.u32 %p1, %r2, 0; @!%p1 bra END; bar.sync 0; END: " + STORE),
    "one stage": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; mov.u32 %r5, 0; L: st.shared.u32 [%r4], %r1; bar.sync 0; ld.shared.u32 %r1, [s+4]; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 4; @%p1 bra L; " + STORE),
    "two stages, of which one is read": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; mov.u32 %r5, 0; L: st.shared.u32 [%r4], %r1; bar.sync 0; ld.shared.u32 %r1, [s+4]; xor.b32 %r4, %r4, 512; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 4; @%p1 bra L; " + STORE),
    "three stages of copies, of which one more is in flight": ("cp-async-no-wait", STAGES.format(left=2)),
    "a neighbour in another warp": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; bar.warp.sync -1; bar.warp.sync -1; ld.param.u32 %r5, [n]; " + STORE.replace("ret;", "ld.shared.u32 %r6, [s+128]; st.global.u32 [%rd1], %r6; ret;")),
    "a copy that is not awaited by others": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; ld.param.u64 %rd3, [y]; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4; cp.async.ca.shared.global [%r4], [%rd3], 4; cp.async.wait_all; ld.shared.u32 %r1, [s+128]; " + STORE),
    "a histogram that is not cleared first": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; mov.u32 %r5, 0; st.shared.u32 [%r4], %r5; ld.param.u64 %rd3, [y]; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4; ld.global.u32 %r6, [%rd3]; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r3; red.shared.add.u32 [%r6], 1; bar.sync 0; ld.shared.u32 %r1, [%r4]; " + STORE),
    "a histogram without atomics": ("missing-barrier", COUNTED.format(place="shl.b32 %r6, %r6, 2;", before="") + STORE),
    "a matrix that is loaded too early": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; and.b32 %r5, %r1, 31; shl.b32 %r5, %r5, 4; add.u32 %r5, %r5, %r3; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r10}, [%r5]; xor.b32 %r1, %r6, %r10; " + STORE),
    "a reduction that halves without a barrier": ("missing-barrier", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; bar.sync 0; ld.param.u32 %r5, [n]; L: setp.ge.u32 %p1, %r1, %r5; @%p1 bra A; ld.shared.u32 %r6, [%r4]; shl.b32 %r7, %r5, 2; add.u32 %r7, %r7, %r4; ld.shared.u32 %r8, [%r7]; add.u32 %r6, %r6, %r8; st.shared.u32 [%r4], %r6; A: shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra L; " + STORE),
    "a mask of half of a warp": ("partial-shuffle-mask", "mov.u32 %r1, %tid.x; shfl.sync.bfly.b32 %r1, %r1, 1, 31, 65535; " + STORE),
    "behind the end": ("shared-out-of-bounds", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 3; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; " + STORE),
    "a stride that is no vector's": ("misaligned-vector", "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r2, %r3; ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4]; " + STORE),
}  # fmt: skip
BLOCK = Launch((256, 1, 1))


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("launch", [None, BLOCK])
def test_right_kernels_are_silent(name, launch):
    assert not found(example(TRAPS[name]), launch)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_not(name):
    rule, body = WRONG[name]
    rules = {f.rule for f in found(example(body), BLOCK)}
    assert rule in rules and not ({"exit-before-barrier", "divergent-barrier"} - {rule} <= rules)
