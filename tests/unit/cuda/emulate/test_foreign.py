"""What other compilers write and ours does not: long products, video instructions, parts of a warp, tables of functions."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import PtxError, UnknownInstruction, load

from .conftest import kernel_text

MASK = 2**64 - 1
START = """ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd3, %r1, {0}, %rd1; mad.wide.u32 %rd4, %r1, {1}, %rd2;"""


def run(body: str, x: np.ndarray, y: np.ndarray, sizes=(4, 4), threads: int = 32, **options):
    text = kernel_text(START.format(*sizes) + body + " ret;", ".param .u64 px, .param .u64 py", **options)
    report = load(text).launch("k", 1, threads, [x, y])
    assert report.completed
    return report


def test_products_of_128_bits(rng):
    """mad.lo.cc gives a carry and madc takes it: a schoolbook product of two pairs of words."""
    x = rng.integers(0, 2**64, (32, 2), dtype=np.uint64)
    x[0], x[1], x[2] = MASK, (MASK, 1), (2**63, 2)
    y = np.zeros((32, 2), np.uint64)
    body = """.reg .b64 %a, %b, %c, %d, %e; .reg .b32 %al, %ah, %bl, %bh, %w0, %w1, %w2, %w3;
        ld.global.v2.u64 {%a, %b}, [%rd3]; mov.b64 {%al, %ah}, %a; mov.b64 {%bl, %bh}, %b;
        mul.lo.u32 %w0, %al, %bl; mul.hi.u32 %w1, %al, %bl;
        mad.lo.cc.u32 %w1, %al, %bh, %w1; madc.hi.u32 %w2, %al, %bh, 0;
        mad.lo.cc.u32 %w1, %ah, %bl, %w1; madc.hi.cc.u32 %w2, %ah, %bl, %w2; addc.u32 %w3, 0, 0;
        mad.lo.cc.u32 %w2, %ah, %bh, %w2; madc.hi.u32 %w3, %ah, %bh, %w3;
        mov.b64 %c, {%w0, %w1}; mov.b64 %d, {%w2, %w3}; st.global.v2.u64 [%rd4], {%c, %d};"""
    assert not run(body, x, y, (16, 16)).findings
    assert [int(low) | int(high) << 64 for low, high in y] == [int(a) * int(b) for a, b in x]


def test_a_carry_under_a_guard(rng):
    """Lanes that do not run it keep the carry that they had."""
    x, y = rng.integers(0, 2**32, 32, dtype=np.uint64).astype(np.uint32), np.zeros(32, np.uint32)
    body = """ld.global.u32 %r2, [%rd3]; add.cc.u32 %r3, %r2, 0; setp.lt.u32 %p1, %r1, 16;
        @%p1 mad.lo.cc.u32 %r3, %r2, 1, %r2; addc.u32 %r4, 0, 0; st.global.u32 [%rd4], %r4;"""
    assert not run(body, x, y).findings
    np.testing.assert_array_equal(y, (x >= 2**31) & (np.arange(32) < 16))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["vadd", "vsub", "vmin", "vmax", "vavrg", "vabsdiff"])
@pytest.mark.parametrize("sign", ["s", "u"])
@pytest.mark.parametrize("rest", ["", ".sat", ".add"])
def test_video(rng, count, name, sign, rest):
    x = rng.integers(0, 2**32, (32, 2), dtype=np.uint64).astype(np.uint32)
    x[0], x[1] = (0xFFFFFFFF, 0x80008000), (0x7FFF807F, 0x80FF8080)
    y = np.zeros(32, np.uint32)
    kind = f"{sign}32"
    body = f"""ld.global.v2.u32 {{%r2, %r3}}, [%rd3]; mov.u32 %r5, 77;
        {name}{count}.{kind}.{kind}.{kind}{rest} %r4, %r2, %r3, %r5; st.global.u32 [%rd4], %r4;"""
    assert not run(body, x, y, (8, 4)).findings
    bits = 32 // count
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "s" else (0, (1 << bits) - 1)
    functions = {"vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vmin": min, "vmax": max,
                 "vavrg": lambda a, b: (a + b + 1) >> 1, "vabsdiff": lambda a, b: abs(a - b)}  # fmt: skip

    def lanes(word: int) -> list[int]:
        found = [word >> bits * k & ((1 << bits) - 1) for k in range(count)]
        return [v - (1 << bits) if sign == "s" and v >> bits - 1 else v for v in found]

    for (a, b), got in zip(x.tolist(), y.tolist(), strict=True):
        made = [functions[name](p, q) for p, q in zip(lanes(a), lanes(b), strict=True)]
        made = [min(max(v, low), high) for v in made] if rest == ".sat" else made
        want = (
            sum(made) + 77 if rest == ".add" else sum((v & ((1 << bits) - 1)) << bits * k for k, v in enumerate(made))
        )
        assert got == want & 0xFFFFFFFF, (hex(a), hex(b))


TILES = """mov.u32 %r2, %laneid; and.b32 %r3, %r2, 24; mov.u32 %r4, 255; shl.b32 %r5, %r4, %r3;
    ld.global.u32 %r6, [%rd3];"""


def test_parts_of_a_warp_name_each_their_own_lanes(rng):
    """Four groups of eight lanes in one instruction, each with its mask, as cooperative groups write it."""
    x, y = rng.integers(0, 100, 32).astype(np.uint32), np.zeros(32, np.uint32)
    body = (
        TILES
        + """shfl.sync.bfly.b32 %r7, %r6, 1, 6175, %r5; max.u32 %r6, %r6, %r7;
        shfl.sync.bfly.b32 %r7, %r6, 2, 6175, %r5; max.u32 %r6, %r6, %r7;
        shfl.sync.bfly.b32 %r7, %r6, 4, 6175, %r5; max.u32 %r6, %r6, %r7; st.global.u32 [%rd4], %r6;"""
    )
    assert not run(body, x, y).findings
    np.testing.assert_array_equal(y, np.repeat(x.reshape(4, 8).max(1), 8))
    late = (
        TILES
        + """setp.ge.u32 %p1, %r2, 24; @%p1 bra END; redux.sync.add.u32 %r6, %r6, %r5;
        vote.sync.ballot.b32 %r7, %p1, %r5; add.u32 %r6, %r6, %r7; bar.warp.sync %r5; st.global.u32 [%rd4], %r6; END:"""
    )
    y[:] = 7
    assert not run(late, x, y).findings, "the last group of eight is elsewhere, and not waited for"
    np.testing.assert_array_equal(y, [*np.repeat(x.reshape(4, 8).sum(1), 8)[:24], *[7] * 8])


def test_a_lane_outside_of_its_own_mask_is_found(rng):
    x, y = rng.integers(0, 100, 32).astype(np.uint32), np.zeros(32, np.uint32)
    wrong = TILES.replace("and.b32 %r3, %r2, 24", "and.b32 %r3, %r2, 16")
    report = run(wrong + "shfl.sync.bfly.b32 %r7, %r6, 1, 6175, %r5; st.global.u32 [%rd4], %r7;", x, y)
    (found,) = report.findings
    assert found.kind == "missing-lanes" and "own member mask" in found.message and found.lane == 8


def test_directives_need_no_blanks():
    y = np.zeros(32, np.uint32)
    body = "{.reg.b16 lo, hi; .shared.align 4 .b8 s[4]; mov.b32 {lo, hi}, 0x00020001; mov.b32 %r2, {hi, lo}; st.global.u32 [%rd4], %r2;}"
    assert not run(body, y, y).findings
    assert (y == 0x00010002).all()


def test_shared_memory_of_the_system():
    y = np.zeros(32, np.uint32)
    run(
        "mov.u32 %r2, %reserved_smem_offset_begin; mov.u32 %r3, %reserved_smem_offset_end; sub.u32 %r2, %r3, %r2; st.global.u32 [%rd4], %r2;",
        y,
        y,
    )
    assert (y == 1024).all()


FUNCTIONS = """.version 8.0
.target sm_80
.address_size 64
.global .align 8 .u64 table[2] = {one, two};
.func (.param .b32 r) one (.param .b32 a) { .reg .b32 %r<2>; ld.param.b32 %r1, [a]; st.param.b32 [r], %r1; ret; }
.func (.param .b32 r) two (.param .b32 a) { .reg .b32 %r<2>; ld.param.b32 %r1, [a]; st.param.b32 [r], %r1; ret; }
.visible .entry plain(.param .u64 py) {
    .reg .b64 %rd<2>; ld.param.u64 %rd1, [py]; st.global.u32 [%rd1], 5; ret;
}
.visible .entry chosen(.param .u64 py) {
    .reg .b64 %rd<4>; .reg .b32 %r<4>; ld.global.u64 %rd1, [table];
    { .param .b32 p0; st.param.b32 [p0], 7; .param .b32 back;
    prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (back), %rd1, (p0), prototype_0;
    ld.param.b32 %r1, [back]; }
    ret;
}
"""


def test_a_call_through_a_table_is_refused_by_itself():
    """Its neighbours in the module run."""
    module, y = load(FUNCTIONS), np.zeros(1, np.uint32)
    assert not module.launch("plain", 1, 1, [y]).findings and y[0] == 5
    with pytest.raises(UnknownInstruction, match=r"line 14: call .*: calls through a register are not emulated"):
        module.launch("chosen", 1, 1, [y])
    with pytest.raises(PtxError, match=r"line 4: .*'three' is not declared"):
        load(FUNCTIONS.replace("{one, two}", "{one, three}"))


def test_a_function_without_registers_is_called_twice():
    """nvcc -G makes one of __threadfence; each call returns to what follows it."""
    fence = ".func fence() { membar.gl; ret; }\n"
    body = """ld.global.u32 %r2, [%rd3]; call.uni fence, (); add.u32 %r2, %r2, 1; call.uni fence, (); add.u32 %r2, %r2, 10;
        st.global.u32 [%rd4], %r2; ret;"""
    text = kernel_text(START.format(4, 4) + body, ".param .u64 px, .param .u64 py")
    x, y = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    report = load(text.replace(".visible", fence + ".visible")).launch("k", 1, 32, [x, y])
    np.testing.assert_array_equal(y, x + 11)
    assert report.instructions["membar.gl"] == 64
