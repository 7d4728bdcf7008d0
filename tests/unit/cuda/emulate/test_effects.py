"""What the emulator knows of an instruction before it runs: the facts beside its form in the opcode table."""

import pytest
from trueno_cuda.ptx.emulate import effects
from trueno_cuda.ptx.emulate.errors import UnknownInstruction
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tree import Instruction

from .conftest import kernel_text


def instruction(text: str) -> Instruction:
    body = parse(kernel_text(f"{text} L: ret;", ".param .u64 px")).functions["k"].body
    return body[0]


def names(registers) -> list[str]:
    return sorted(r.name for r in registers)


@pytest.mark.parametrize(
    "text, written, read",
    [
        ("add.f32 %f1, %f2, %f3;", ["%f1"], ["%f2", "%f3"]),
        ("@%p1 add.f32 %f1, %f2, %f3;", ["%f1"], ["%f2", "%f3", "%p1"]),
        ("ld.global.v2.f32 {%f1, %f2}, [%rd1];", ["%f1", "%f2"], ["%rd1"]),
        ("st.global.f32 [%rd1], %f1;", [], ["%f1", "%rd1"]),
        ("red.global.add.f32 [%rd1], %f1;", [], ["%f1", "%rd1"]),
        ("atom.global.add.f32 %f1, [%rd1], %f2;", ["%f1"], ["%f2", "%rd1"]),
        ("prefetch.global.L1 [%rd1];", [], ["%rd1"]),
        ("nanosleep.u32 %r1;", [], ["%r1"]),
        ("bar.sync %r1;", [], ["%r1"]),
        ("bar.warp.sync %r1;", [], ["%r1"]),
        ("bar.red.popc.u32 %r1, %r2, %p1;", ["%r1"], ["%p1", "%r2"]),
        ("barrier.cluster.arrive;", [], []),
        ("mbarrier.init.shared.b64 [%rd1], %r1;", [], ["%r1", "%rd1"]),
        ("mbarrier.arrive.shared.b64 %rd2, [%rd1];", ["%rd2"], ["%rd1"]),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%rd1];", [], ["%rd1"]),
        ("mbarrier.test_wait.shared.b64 %p1, [%rd1], %rd2;", ["%p1"], ["%rd1", "%rd2"]),
        ("cp.async.ca.shared.global [%rd1], [%rd2], 16;", [], ["%rd1", "%rd2"]),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%rd1], {%r1};", [], ["%r1", "%rd1"]),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r1, %r2}, %rd1, %rd2, %p1, 1, 1, 0, 0;", ["%r1", "%r2"],
         ["%p1", "%r1", "%r2", "%rd1", "%rd2"]),
        ("wgmma.wait_group.sync.aligned 0;", [], []),
    ],
)  # fmt: skip
def test_registers(text, written, read):
    ins = instruction(text)
    assert (names(effects.written(ins)), names(effects.read(ins))) == (written, read)


@pytest.mark.parametrize(
    "text, meeting, masked",
    [
        ("add.f32 %f1, %f2, %f3;", "", False),
        ("activemask.b32 %r1;", "", False),
        ("shfl.sync.idx.b32 %r1, %r2, %r3, 31, %r4;", "warp", True),
        ("elect.sync %r1|%p1, %r2;", "warp", True),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", "warp", False),
        ("bar.warp.sync %r1;", "warp", True),
        ("bar.sync 0;", "block", False),
        ("bar.red.popc.u32 %r1, 0, %p1;", "block", False),
        ("barrier.sync 0;", "block", False),
        ("barrier.cluster.wait;", "cluster", False),
        ("mbarrier.try_wait.shared.b64 %p1, [%rd1], %rd2;", "phase", False),
        ("mbarrier.test_wait.shared.b64 %p1, [%rd1], %rd2;", "", False),
        ("wgmma.fence.sync.aligned;", "group", False),
    ],
)
def test_where_lanes_meet(text, meeting, masked):
    ins = instruction(text)
    assert (effects.meets(ins), effects.masked(ins)) == (meeting, masked)


@pytest.mark.parametrize(
    "text, spins",
    [
        ("ld.volatile.global.u32 %r1, [%rd1];", True),
        ("ld.relaxed.gpu.global.u32 %r1, [%rd1];", True),
        ("ld.global.u32 %r1, [%rd1];", False),
        ("atom.global.cas.b32 %r1, [%rd1], 0, 1;", True),
        ("red.global.add.u32 [%rd1], 1;", False),
        ("nanosleep.u32 20;", True),
        ("mbarrier.test_wait.shared.b64 %p1, [%rd1], %rd2;", True),
        ("mbarrier.try_wait.shared.b64 %p1, [%rd1], %rd2;", False),
    ],
)
def test_what_waits_in_a_loop(text, spins):
    assert effects.spins(instruction(text)) is spins


@pytest.mark.parametrize(
    "text, flops",
    [
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", {"f32": 2}),
        ("mad.lo.u32 %r1, %r2, %r3, %r4;", {}),
        ("add.f16x2 %r1, %r2, %r3;", {"f16x2": 2}),
        ("max.f64 %d1, %d2, %d3;", {"f64": 1}),
        ("ex2.approx.f32 %f1, %f2;", {"f32": 1}),
        ("neg.f32 %f1, %f2;", {}),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2};",
         {"f64 mma": 2 * 8 * 8 * 4 / 32}),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r1, %r2}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
         {"f16 wgmma": 2 * 64 * 8 * 16 / 128}),
        ("wgmma.fence.sync.aligned;", {}),
    ],
)  # fmt: skip
def test_flops_of_a_lane(text, flops):
    assert effects.flops(instruction(text)) == flops


@pytest.mark.parametrize("text, ends", [("bra L;", True), ("@%p1 exit;", True), ("trap;", True), ("brkpt;", False)])
def test_what_ends_a_basic_block(text, ends):
    assert effects.ends(instruction(text)) is ends


def test_nothing_is_told_of_an_opcode_that_the_table_lacks():
    with pytest.raises(UnknownInstruction, match="does not know"):
        effects.meets(Instruction("frobnicate", (), [], 1, "frobnicate;"))
