"""A product of a warp group without the fence ahead of it."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.products import unfenced


def check(entry: Entry) -> Iterator[Found]:
    for at in unfenced(entry):
        yield at, "some way leads here without wgmma.fence"


HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .b64 %rd<4>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [x]; mov.u64 %rd2, 0; mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
"""
FENCE = "wgmma.fence.sync.aligned;\n"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd2, %rd2, 1, 1, 1, 0, 0;\n"
COMMIT = "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
STORE = "st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3}; ret;\n}\n"
RULE = Rule(
    "wgmma-no-fence", "critical", "certain",
    "A way from the kernel's start leads to wgmma.mma_async without wgmma.fence.",
    "The product may read its accumulators, or shared memory, before the writes of the warp group have reached them.",
    "Put wgmma.fence.sync.aligned ahead of the first product, and again where other instructions wrote its registers.",
    bad=HEAD + PRODUCT + COMMIT + WAIT + STORE,
    good=HEAD + FENCE + PRODUCT + COMMIT + WAIT + STORE,
    check=check,
)  # fmt: skip
