"""Each kernel asks for the lowest `.version` that takes it: ptxas accepts that one and refuses the one before."""

import pytest
from trueno_cuda.ptx import TARGETS, BuildError, f32, kernel, ptr, tensor_map, u32
from trueno_cuda.ptx.targets import NEEDS, required_version, target
from unit.cuda.ptx.assembler import run

VERSIONS = [(6, 3), (6, 4), (6, 5), *((7, i) for i in range(9)), *((8, i) for i in range(9)), (9, 0)]
SKELETON = """.version {}.{}
.target {}
.address_size 64
.visible .entry t(.param .u64 x, .param .align 64 .b8 map[128]) .reqntid 128, 1, 1 {{
    .reg .pred %p<9>; .reg .f16 %h<9>; .reg .f16x2 %hx<9>; .reg .b16 %b<9>; .reg .b32 %q<9>; .reg .f32 %f<9>;
    .reg .u32 %r<9>; .reg .s32 %s<9>; .reg .u64 %rd<9>; .reg .b64 %w<9>;
    .shared .align 128 .b8 tile[1024];
    mov.u32 %r1, tile; ld.param.u64 %rd1, [x];
    {}
    ret;
}}
"""
PROBES = {  # an instruction, and the first architecture that has it
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%q1}, [%r1];": "sm_75",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%q1,%q2}, {%q3}, {%f1,%f2,%f3,%f4};": "sm_75",
    "abs.f16 %h1, %h2;": "sm_75",
    "tanh.approx.f32 %f1, %f2;": "sm_75",
    "ex2.approx.f16x2 %hx1, %hx2;": "sm_75",
    "ld.global.nc.L1::no_allocate.f32 %f1, [%rd1];": "sm_75",
    "ld.global.L2::128B.f32 %f1, [%rd1];": "sm_75",
    "mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;": "sm_75",
    "cp.async.ca.shared.global [%r1], [%rd1], 4;": "sm_80",
    "redux.sync.add.s32 %s1, %s2, -1;": "sm_80",
    "mbarrier.init.shared.b64 [%r1], 1;": "sm_80",
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;": "sm_80",
    "fma.rn.bf16x2 %q1, %q2, %q3, %q1;": "sm_80",
    "max.NaN.f32 %f1, %f2, %f3;": "sm_80",
    "cvt.rn.bf16x2.f32 %q1, %f1, %f2;": "sm_80",
    "cvt.rna.tf32.f32 %q1, %f1;": "sm_80",
    "createpolicy.fractional.L2::evict_first.b64 %w1, 1.0;": "sm_80",
    "cvt.rn.satfinite.e4m3x2.f32 %b1, %f1, %f2;": "sm_89",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
    "{%f1,%f2,%f3,%f4}, {%q1,%q2,%q3,%q4}, {%q5,%q6}, {%f1,%f2,%f3,%f4};": "sm_89",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%q1};": "sm_90",
    "add.rn.bf16x2 %q1, %q2, %q3;": "sm_90",
    "griddepcontrol.wait;": "sm_90",
    "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;": "sm_90",
    "mapa.shared::cluster.u32 %r2, %r1, %r3;": "sm_90",
    "mov.u32 %r2, %cluster_ctarank;": "sm_90",
    "elect.sync _|%p1, -1;": "sm_90",
    "fence.proxy.async;": "sm_90",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];": "sm_90",
    "mbarrier.arrive.expect_tx.shared.b64 %w1, [%r1], %r2;": "sm_90",
    "barrier.cluster.arrive.release.aligned;": "sm_90",
    "red.global.add.v4.f32 [%rd1], {%f1,%f2,%f3,%f4};": "sm_90",
    "wgmma.fence.sync.aligned;": "sm_90a",
    "setmaxnreg.inc.sync.aligned.u32 240;": "sm_90a",
    "ld.global.v8.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, [%rd1];": "sm_100",
}


@pytest.mark.parametrize("arch", TARGETS)
def test_base_version(arch: str) -> None:
    version = TARGETS[arch].version
    before = VERSIONS[VERSIONS.index(version) - 1] if version != (6, 3) else (6, 2)
    assert run(SKELETON.format(*version, arch, ""), arch)[0]
    assert not run(SKELETON.format(*before, arch, ""), arch)[0]


@pytest.mark.parametrize("probe", PROBES)
def test_version_is_the_lowest(probe: str) -> None:
    first = PROBES[probe]
    for arch in TARGETS:
        try:
            version = max(required_version(part.strip().split(";")[0], target(arch)) for part in probe.split("; "))
        except BuildError:
            older = TARGETS[arch].number < TARGETS[first].number
            assert older or TARGETS[first].special, f"{probe} was refused on {arch}"
            assert not run(SKELETON.format(9, 0, arch, probe), arch)[0], f"{probe} exists on {arch}"
            continue
        good, log = run(SKELETON.format(*version, arch, probe), arch)
        assert good, f"{probe} on {arch} at {version}: {log}"
        if version > TARGETS[arch].version:
            before = VERSIONS[VERSIONS.index(version) - 1]
            assert not run(SKELETON.format(*before, arch, probe), arch)[0], f"{probe} on {arch}: {before} suffices"


def test_every_row_of_the_table_is_probed() -> None:
    unprobed = [n.pattern.pattern for n in NEEDS if not any(n.pattern.search(p) for q in PROBES for p in q.split("; "))]
    assert not unprobed


def test_a_kernel_carries_the_highest_version_that_it_used() -> None:
    @kernel(threads=32)
    def plain(k, x: ptr(f32)):
        x.store(k.tid, x.load(k.tid) + 1.0)

    @kernel(threads=32)
    def hinted(k, x: ptr(f32)):
        x.store(k.tid, x.load(k.tid, cache="no_allocate") + 1.0)

    @kernel(threads=32)
    def mapped(k, x: ptr(f32), m: tensor_map, n: u32):
        k.prefetch_map(m)

    assert (plain.build("sm_80").version, hinted.build("sm_80").version) == ("7.0", "7.4")
    assert (plain.build("sm_90").version, hinted.build("sm_90").version) == ("7.8", "7.8")
    assert mapped.build("sm_90").version == "8.0"


def test_unknown_architecture() -> None:
    with pytest.raises(BuildError, match=r"arch 'sm_42' is not known; known: sm_75, .*sm_120"):
        target("sm_42")
