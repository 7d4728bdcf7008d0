"""Mutants of small kernels: each defect is found, with its line, and the kernel without it is clean."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import re

import numpy as np
import pytest
from trueno_cuda.ptx import bf16, f16, f32, kernel, ptr, s32, u32
from trueno_cuda.ptx.emulate import LaunchError, StepLimit, load
from trueno_cuda.ptx.emulate.findings import KINDS

from .conftest import kernel_text

SUM = """
    .shared .align 4 .b8 s[1024];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
    ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; mad.wide.u32 %rd3, %r4, 4, %rd1;
    ld.global.f32 %f1, [%rd3];
    shl.b32 %r5, %r1, 2; mov.u32 %r6, s; add.u32 %r7, %r6, %r5;
    st.shared.f32 [%r7], %f1;
    bar.sync 0; // first
    mov.u32 %r8, 128;
LOOP: setp.ge.u32 %p1, %r1, %r8; @%p1 bra NEXT;
    shl.b32 %r9, %r8, 2; add.u32 %r10, %r7, %r9;
    ld.shared.f32 %f2, [%r10]; ld.shared.f32 %f3, [%r7]; add.f32 %f3, %f3, %f2; st.shared.f32 [%r7], %f3;
NEXT: bar.sync 0; // second
    shr.u32 %r8, %r8, 1; setp.gt.u32 %p2, %r8, 0; @%p2 bra LOOP;
    setp.ne.u32 %p3, %r1, 0; @%p3 bra END;
    ld.shared.f32 %f4, [s]; mad.wide.u32 %rd4, %r2, 4, %rd2; st.global.f32 [%rd4], %f4;
END: ret;
"""


def launch(body: str, block: int = 256, blocks: int = 3, **options):
    rng = np.random.default_rng(7)
    x = rng.standard_normal(block * blocks).astype(np.float32)
    y = np.zeros(blocks, np.float32)
    text = kernel_text(body, ".param .u64 px, .param .u64 py")
    report = load(text).launch("k", blocks, block, [x, y], **options)
    return report, y, x.reshape(blocks, block).sum(1), text


def line_of(text: str, piece: str) -> int:
    return next(k for k, line in enumerate(text.splitlines(), 1) if piece in line)


def test_clean_sum():
    report, y, want, _ = launch(SUM)
    assert not report.findings, report
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    assert report.flops["f32"] == 3 * 255 and report.completed


def only(report, kind: str):
    """The finding of a kind; every finding of the report must be of that kind."""
    assert report.findings and {f.kind for f in report.findings} == {kind}, report
    return report.findings[0]


@pytest.mark.parametrize("name", KINDS)
def test_the_example_of_a_finding_has_it(name):
    text = kernel_text(f"{KINDS[name].example} ret;", ".param .u64 px")
    report = load(text).launch("k", 1, 128, [np.zeros(128, np.uint32)], global_races=name == "global-race")
    found = report.findings[0]
    assert (found.kind, found.severity) == (name, KINDS[name].severity), report


def test_missing_first_barrier():
    report, *_, text = launch(SUM.replace("bar.sync 0; // first", ""))
    found = next(f for f in report.findings if f.kind == "shared-race")
    assert found.array == "s" and found.line == line_of(text, "ld.shared.f32 %f2")
    assert "ld.shared.f32 %f2, [%r10]" in found.text


def test_missing_second_barrier():
    report, *_ = launch(SUM.replace("bar.sync 0; // second", ""))
    assert {f.kind for f in report.findings} == {"shared-race"}


def test_barrier_under_divergent_branch():
    report, *_, text = launch(SUM.replace("@%p1 bra NEXT;", "@%p1 bra LATE;").replace(
        "NEXT: bar.sync 0; // second", "bar.sync 0; LATE:"))  # fmt: skip
    found = [f for f in report.findings if f.kind == "divergent-barrier"]
    assert found and found[0].text == "bar.sync 0" and found[0].line == line_of(text, "LATE:")


def test_out_of_bounds_names_the_array_and_lane():
    report, *_ = launch(SUM.replace("ld.global.f32 %f1, [%rd3]", "ld.global.f32 %f1, [%rd3+8]"))
    found = only(report, "out-of-bounds")
    assert (found.array, found.block, found.warp, found.lane, found.count) == ("px", (2, 0, 0), 7, 30, 2)
    report, *_ = launch(SUM.replace("ld.shared.f32 %f4, [s]", "ld.shared.f32 %f4, [s+1024]"))
    assert "1024 bytes of shared memory" in only(report, "out-of-bounds").message


def test_misaligned_vector():
    report, *_ = launch(SUM.replace("ld.global.f32 %f1, [%rd3]", "ld.global.v2.f32 {%f1, %f9}, [%rd3]"))
    assert "misaligned" in {f.kind for f in report.findings}
    found = next(f for f in report.findings if f.kind == "misaligned")
    assert found.lane == 1 and found.array == "px"


def test_uninitialised_register():
    report, *_ = launch(SUM.replace("mov.u32 %r8, 128;", ""))
    assert "%r8" in next(f for f in report.findings if f.kind == "uninitialised-register").message
    clean = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 5; @%p1 mov.u32 %r2, 7; {0} add.u32 %r3, %r2, 1; ret;"
    assert not launch(clean.format("@!%p1 mov.u32 %r2, 8;"))[0].findings
    assert not launch(clean.format("@!%p1 ret;"))[0].errors
    assert only(launch(clean.format(""))[0], "uninitialised-register").lane == 5


def test_uninitialised_shared_memory():
    report, *_ = launch(SUM.replace("st.shared.f32 [%r7], %f1;", ""))
    assert "uninitialised-shared" in {f.kind for f in report.findings}


def test_generic_address_in_shared_access():
    report, *_ = launch(SUM.replace("mov.u32 %r6, s; add.u32 %r7, %r6, %r5;", """mov.u64 %rd9, s; cvta.shared.u64 %rd9, %rd9;
        cvt.u64.u32 %rd8, %r5; add.u64 %rd9, %rd9, %rd8; mov.u32 %r6, s; add.u32 %r7, %r6, %r5;""").replace(
        "st.shared.f32 [%r7], %f1", "st.shared.f32 [%rd9], %f1"))  # fmt: skip
    assert "address-space" in {f.kind for f in report.findings}
    report, *_ = launch("mov.u32 %r1, 4096; cvt.u64.u32 %rd1, %r1; ld.global.u32 %r2, [%rd1]; ret;")
    assert only(report, "address-space").address == 4096


def test_early_exit_is_a_risk_not_an_error():
    report, *_ = launch("mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 200; @%p1 ret; bar.sync 0; ret;")
    assert only(report, "early-exit").severity == "risk" and not report.errors


def test_shuffle_under_divergence():
    body = """mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.ge.u32 %p1, %r2, 16; @%p1 bra END;
        shfl.sync.bfly.b32 %r3, %r1, 1, 31, {0}; END: ret;"""
    assert "missing-lanes" in {f.kind for f in launch(body.format(-1))[0].findings}
    assert not launch(body.format("0xffff"))[0].findings


def test_write_conflict_within_an_instruction():
    report, *_ = launch("""
        .shared .align 4 .b8 s[64]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 15; mov.u32 %r3, s; mad.lo.u32 %r3, %r2, 4, %r3;
        st.shared.u32 [%r3], %r1; ret;""", block=32)  # fmt: skip
    assert "several lanes" in only(report, "shared-race").message
    same = """.shared .align 4 .b8 s[64]; mov.u32 %r1, 5; st.shared.u32 [s], %r1; ret;"""
    assert not launch(same)[0].findings


def test_warp_synchronous_code_needs_its_barrier():
    body = """
        .shared .align 4 .b8 s[128]; mov.u32 %r1, %tid.x; mov.u32 %r3, s; mad.lo.u32 %r3, %r1, 4, %r3;
        st.shared.u32 [%r3], %r1; {0} xor.b32 %r4, %r1, 1; mov.u32 %r5, s; mad.lo.u32 %r5, %r4, 4, %r5;
        ld.shared.u32 %r6, [%r5]; ret;"""
    assert only(launch(body.format(""), block=32)[0], "shared-race").count == 96
    assert not launch(body.format("bar.warp.sync -1;"), block=32)[0].findings


def test_global_race_on_request():
    body = """mov.u32 %r1, %tid.x; ld.param.u64 %rd2, [py]; {0} ret;"""
    store = body.format("st.global.u32 [%rd2], %r1;")
    assert not launch(store)[0].findings
    assert only(launch(store, global_races=True)[0], "global-race").array == "py"
    add = body.format("red.global.add.u32 [%rd2], %r1;")
    assert not launch(add, global_races=True)[0].findings
    assert not launch(SUM, global_races=True)[0].findings


def test_read_only_memory():
    x = np.zeros(4, np.uint32)
    x.flags.writeable = False
    text = kernel_text("ld.param.u64 %rd1, [px]; st.global.u32 [%rd1], 1; ret;", ".param .u64 px")
    assert only(load(text).launch("k", 1, 1, [x]), "read-only").array == "px"
    assert (x == 0).all()


def test_null_and_wild_pointers():
    text = kernel_text("ld.param.u64 %rd1, [px]; ld.u32 %r1, [%rd1]; ret;", ".param .u64 px")
    assert only(load(text).launch("k", 1, 1, [0]), "address-space").address == 0
    assert only(load(text).launch("k", 1, 1, [np.zeros(0, np.float32)]), "out-of-bounds").array == "px"


def test_endless_loop_is_bounded():
    with pytest.raises(StepLimit, match=r"line \d+: .*bra L"):
        launch("L: bra L;", max_steps=1000)


def test_deadlock_names_each_warp():
    report, *_ = launch("""mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra OTHER;
        bar.sync 1, 64; ret;
    OTHER: bar.sync 2, 64; ret;""", block=64, blocks=1)  # fmt: skip
    found = only(report, "deadlock")
    assert "warp 0 waits" in found.message and "warp 1 waits" in found.message and not report.completed


def test_trap_and_failed_assertions():
    report, *_ = launch("mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 3; @%p1 bra OK; trap; OK: ret;")
    assert only(report, "trap").lane == 3 and not report.completed


def test_bank_conflicts_and_coalescing():
    report, *_ = launch("""
        .shared .align 16 .b8 s[8192]; mov.u32 %r1, %tid.x; mov.u32 %r2, s;
        mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], %r1; mad.lo.u32 %r3, %r1, 8, %r2; bar.sync 0;
        st.shared.u32 [%r3], %r1; bar.sync 0;
        mad.lo.u32 %r3, %r1, 128, %r2; and.b32 %r3, %r3, 0x1fff; mad.lo.u32 %r3, %r1, 16, %r2; st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};
        ld.param.u64 %rd1, [px]; mad.wide.u32 %rd2, %r1, 64, %rd1; ld.global.u32 %r4, [%rd2]; ld.global.u32 %r5, [%rd1]; ret;""",
        block=32, blocks=64, sample=None)  # fmt: skip
    ways = [round(b.ways, 2) for b in report.bank_conflicts.values()]
    assert ways == [1, 2, 1]
    strided, uniform = report.coalescing.values()
    assert (strided.sectors_per_request, strided.efficiency) == (32, 0.125)
    assert (uniform.sectors_per_request, uniform.efficiency) == (1, 1)
    text = str(report)
    assert "2.00-way bank conflict" in text and "sectors a request" in text


# ------------------------------------------------------------------------------------- which array was meant

COPY = """
    ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 32, %r2; mul.wide.s32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
"""


def copied(access: str, x: np.ndarray, y: np.ndarray, blocks: int = 4, before: str = COPY):
    text = kernel_text(f"{before} {access} ret;", ".param .u64 px, .param .u64 py")
    return load(text).launch("k", blocks, 32, [x, y])


@pytest.mark.parametrize(
    "offset, first, side",
    [
        (0, 100, "past the end"),  # the first thread beyond it
        (4096, 0, "past the end"),  # the gap between the arrays, nearer to py
        (8096, 0, "past the end"),
        (-1000000, 0, "before the start"),
    ],
)
def test_the_array_that_was_indexed_is_named(offset, first, side):
    for x, y in ((100, 2000), (100, 8), (100, 100)):  # whichever comes first in memory
        report = copied(f"ld.global.f32 %f1, [%rd4+{offset}];", np.zeros(x, np.float32), np.zeros(y, np.float32))
        found = only(report, "out-of-bounds")
        wanted = f"px[{first + offset // 4}]: {side} of px, which has 100 elements (float32[100])"
        assert found.array == "px" and found.message.startswith(wanted)
        assert (found.block, found.thread) == ((first // 32, 0, 0), (first % 32, 0, 0))
        assert f"block {found.block}, thread {found.thread}" in str(found)


def test_an_element_of_another_array_is_told():
    """An address past x that lies in y is no less wrong: on a GPU it would be silently read."""
    x, y = np.zeros(4096, np.float32), np.zeros(256, np.float32)
    for offset, there in ((4096 * 4 + 4096, 0), (4096 * 4 + 4096 + 40, 10)):
        found = only(copied(f"ld.global.f32 %f1, [%rd4+{offset}];", x, y), "out-of-bounds")
        assert found.array == "px" and found.message.endswith(f"; py[{there}] lies there") and found.count == 128


def test_neighbours_and_bytes_are_told_apart():
    x, y = np.zeros(128, np.float32), np.zeros(128, np.float32)
    wide = COPY.replace("mul.wide.s32 %rd3, %r3, 4", "mul.wide.s32 %rd3, %r3, 16")
    report = copied("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4];", x, y, before=wide)
    assert only(report, "out-of-bounds").message.startswith("px[128] to [131]: past the end of px")
    byte = "cvt.u64.u32 %rd6, %r3; add.s64 %rd6, %rd1, %rd6; ld.global.u8 %r9, [%rd6+513];"
    assert only(copied(byte, x, y, 1), "out-of-bounds").message.startswith("byte 513 of px: past the end")


def test_a_pointer_that_may_be_either_blames_the_nearest():
    x, y = np.zeros(128, np.float32), np.zeros(128, np.float32)
    either = "setp.lt.u32 %p1, %r2, 16; selp.b64 %rd7, %rd4, %rd5, %p1; ld.global.f32 %f1, [%rd7+{0}];"
    assert not copied(either.format(0), x, y).findings
    assert only(copied(either.format(496), x, y, 1), "out-of-bounds").array == "px"
    assert only(copied(either.format(-16), x, y, 1), "out-of-bounds").message.startswith("px[-4]: before the start")
    loaded = "ld.global.u64 %rd8, [%rd1]; ld.global.u32 %r9, [%rd8];"  # out of memory: no address at all
    assert only(copied(loaded, x, y, 1), "address-space").array is None


def test_part_of_an_array_may_be_left():
    """Two pointers into one allocation: what lies beside a part is the allocation's."""
    whole = np.zeros(256, np.float32)
    assert not copied("ld.global.f32 %f1, [%rd5+-256];", whole, whole[64:]).findings
    found = only(copied("ld.global.f32 %f1, [%rd5+512];", whole, whole[64:]), "out-of-bounds")
    assert found.message.startswith("py[192]: past the end of py, which has 192 elements")


def test_a_loop_carries_its_pointer():
    loop = """mov.u32 %r9, 0; NEXT: ld.global.f32 %f1, [%rd4]; add.s64 %rd4, %rd4, 128; add.u32 %r9, %r9, 1;
        setp.lt.u32 %p1, %r9, 5; @%p1 bra NEXT;"""
    report = copied(loop, np.zeros(128, np.float32), np.zeros(5000, np.float32), 1)
    found = only(report, "out-of-bounds")
    assert found.array == "px" and found.message.startswith("px[128]") and found.count == 32


def test_shared_arrays_do_not_run_into_each_other():
    body = """.shared .align 4 .f32 a[32]; .shared .align 4 .b8 b[128]; mov.u32 %r1, %tid.x; mov.u32 %r2, {0};
        mad.lo.u32 %r3, %r1, 4, %r2; st.shared.f32 [%r3+{1}], %f9; ret;"""
    body = body.replace("mov.u32 %r1,", "mov.f32 %f9, 0f3F800000; mov.u32 %r1,", 1)
    assert not launch(body.format("a", 0), block=32)[0].findings
    found = only(launch(body.format("a", 4), block=32)[0], "out-of-bounds")
    assert found.message.startswith("a[32]: past the end of a, which has 32 elements") and found.lane == 31
    found = only(launch(body.format("b", 4), block=32)[0], "out-of-bounds")
    assert found.message.startswith("b[32]: past the end of b, which has 32 elements") and found.array == "b"


def test_findings_come_first_and_name_the_source():
    text = kernel_text(f"{COPY} .loc 1 12 0\n ld.global.f32 %f1, [%rd4+512]; ret;", ".param .u64 px, .param .u64 py")
    text += '\n.file 1 "there/add.py"\n'  # where nvcc puts it
    x = np.zeros(128, np.float32)
    report = load(text).launch("k", 4, (8, 4), [x, x.copy()])
    found = only(report, "out-of-bounds")
    assert found.source == "there/add.py:12" and "there/add.py:12, line" in str(found)
    assert str(report).splitlines()[1:] == [f"  {found}"], "of a launch that went wrong counts say nothing"
    lines = list(report.lines())
    assert lines[1] == f"  {found}" and lines[2].startswith("  instructions:") and "no findings" not in str(report)
    second = next(iter(copied("ld.global.f32 %f1, [%rd4+512];", x, x.copy()).findings))
    assert second.source == "" and "PTX: ld.global.f32" in str(second)


def test_threads_are_counted_along_all_axes():
    text = kernel_text(f"{COPY} setp.ne.u32 %p1, %r2, 3; @%p1 bra END; mov.u32 %r9, %tid.y; setp.eq.u32 %p2, %r9, 2; "
                       "@%p2 ld.global.f32 %f1, [%rd4+512]; END: ret;", ".param .u64 px, .param .u64 py")  # fmt: skip
    x = np.zeros(128, np.float32)
    found = only(load(text).launch("k", 1, (8, 4), [x, x.copy()]), "out-of-bounds")
    assert found.thread == (3, 2, 0) and found.lane == 19


# ------------------------------------------------------------------------------------- what findings say to an author


def test_shared_memory_is_named_by_array_and_element():
    """Two threads of one array meet within stages chosen on the GPU, which the builder cannot see."""

    @kernel(threads=64)
    def racing(k, y: ptr(f32)):
        k.shared(f32, 8).store(k.tid & 7, 0.0)
        ring, now = k.shared(f32, 64, stages=2), k.var(u32, 1)
        ring[now.value].store(k.tid, k.tid.to(f32))
        y.store(k.tid, ring[now.value].load(63 - k.tid))

    report = load(racing.build().text).launch("racing", 1, 64, [np.zeros(64, np.float32)])
    found = only(report, "shared-race")
    assert re.match(
        r"shared_2\[\d+\] reads what warp \d lane \d+ wrote, .*as bar\.sync \(k\.sync\(\)\) does", found.message
    )
    element = int(found.message.partition("[")[2].partition("]")[0])
    assert element == 64 + 63 - found.thread[0] and found.array == "shared_2"

    @kernel(threads=64)
    def unwritten(k, y: ptr(f32)):
        k.shared(f32, 8).store(k.tid & 7, 0.0)
        y.store(k.tid, k.shared(f32, 64).load(k.tid))

    report = load(unwritten.build().text).launch("unwritten", 1, 64, [np.zeros(64, np.float32)])
    found = only(report, "uninitialised-shared")
    assert found.message == "shared_2[0] is read before it was written; store it first, then bar.sync (k.sync())"


def test_an_index_that_wrapped_says_so():
    @kernel(threads=32)
    def before(k, y: ptr(f32)):
        y.store(k.tid - 1, 1.0)

    found = only(load(before.build().text).launch("before", 1, 32, [np.zeros(32, np.float32)]), "out-of-bounds")
    assert (
        found.message.startswith("y[4294967295]: past the end")
        and "wraps below 0, and 4294967295 is -1" in found.message
    )

    @kernel(threads=32)
    def beyond(k, y: ptr(f32)):
        y.store(k.tid + 1, 1.0)

    found = only(load(beyond.build().text).launch("beyond", 1, 32, [np.zeros(32, np.float32)]), "out-of-bounds")
    assert "y[32]" in found.message and "wraps" not in found.message


def test_an_endless_loop_names_its_line_of_python():
    @kernel(threads=32)
    def endless(k, y: ptr(f32)):
        with k.loop() as loop:
            y.store(k.tid, 1.0)
            loop.leave_if(k.tid > 32)

    module = load(endless.build(loc=True).text)
    with pytest.raises(StepLimit, match=r"test_findings\.py:\d+, line \d+: .*max_steps="):
        module.launch("endless", 1, 32, [np.zeros(32, np.float32)], max_steps=1000)


def test_a_built_kernel_has_dtypes_that_its_text_has_not():
    @kernel(threads=32)
    def halves(k, x: ptr(f16), b: ptr(bf16), i: ptr(s32), n: u32):
        x.store(k.tid, x.load(k.tid), where=k.tid < n)
        b.store(k.tid, b.load(k.tid))
        i.store(k.tid, i.load(k.tid))

    built = halves.build()
    good = [np.ones(32, np.float16), np.ones(32, np.uint16), np.ones(32, np.int32), 32]
    assert not load(built).launch("halves", 1, 32, good).findings
    for at, dtype, said in (
        (0, np.float64, "x is float64, but its elements are f16"),
        (0, np.int16, "x is int16, but its elements are f16"),
        (1, np.float32, "b is float32, but its elements are bf16"),
        (2, np.uint32, "i is uint32, but its elements are s32"),
    ):
        wrong = [*good[:at], np.ones(32, dtype), *good[at + 1 :]]
        with pytest.raises(LaunchError, match=f"halves: {said}"):
            load(built).launch("halves", 1, 32, wrong)
    wide = [np.ones(32), *good[1:]]
    assert not load(built.text).launch("halves", 1, 32, wide).findings, "a text knows nothing of them"


FOREIGN = """.version 7.8
.target sm_80
.address_size 64
.visible .entry f(.param .u64 x, .param .u64 y, .param .u64 z)
{
 .reg .b64 %rd<9>; .reg .b32 %r<3>;
 ld.param.u64 %rd1,[x]; ld.param.u64 %rd2,[y]; ld.param.u64 %rd3,[z];
"""


def test_a_number_that_is_added_to_a_pointer_leaves_it_its_array():
    """Also where it is as wide as a pointer, and leads into another array."""
    text = FOREIGN + " add.s64 %rd4,%rd1,%rd3; ld.global.u8 %r1,[%rd4]; st.global.u8 [%rd2],%r1; ret; }"
    x, y = np.arange(16, dtype="u1"), np.full(16, 200, "u1")
    report = load(text).launch("f", 1, 1, [x, y, 4352])
    assert [f.kind for f in report.findings] == ["out-of-bounds"] and "byte 4352 of x" in str(report.findings[0])


def test_a_distance_between_pointers_is_no_pointer():
    """A pointer out of memory, moved by as much as two others are apart."""
    text = (
        FOREIGN
        + """ st.global.u64 [%rd3],%rd2; add.u64 %rd4,%rd1,8; sub.u64 %rd5,%rd4,%rd1; ld.global.u64 %rd6,[%rd3];
 add.u64 %rd7,%rd6,%rd5; ld.global.u32 %r1,[%rd7]; st.global.u32 [%rd1],%r1; ret; }"""
    )
    x, y, table = np.zeros(4, "u4"), np.arange(4, dtype="u4"), np.zeros(1, "u8")
    report = load(text).launch("f", 1, 1, [x, y, table])
    assert not report.findings and x[0] == 2
