"""Every row of the instruction tables: each form for each type on each architecture is accepted by ptxas."""

import pytest
from trueno_cuda.ptx import (
    TARGETS,
    Builder,
    BuildError,
    Kernel,
    bf16,
    bf16x2,
    e4m3x2,
    f16,
    f16x2,
    f32,
    f64,
    kernel,
    pred,
    ptr,
    s8,
    s8x4,
    s16,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from trueno_cuda.ptx.instructions import ATOMICS, CLOCKS, COMPARISONS, INSTRUCTIONS, OPTIONS, SPECIAL_REGISTERS
from trueno_cuda.ptx.types import TYPES
from unit.cuda.ptx.assembler import assembled

HELD = [t for t in TYPES.values() if t.register]


def make(body, arch: str = "sm_90", threads: int = 128) -> Kernel:
    """A kernel of `body(k)` alone."""

    @kernel(threads=threads)
    def made(k):
        body(k)

    return made.build(arch)


def text_of(body, arch: str = "sm_90") -> str:
    """The instructions of `body`, which ptxas accepts."""
    built = make(body, arch)
    assembled(built)
    return built.text


def some(k: Builder, kind):
    """A value of any type."""
    if kind is pred:
        return k.lane < 3
    if kind.kind == "x" and kind.bits == 32:
        return k.copy(k.lane).bits(kind)
    if kind.kind == "x":
        return k.const(u16, 1).bits(kind)
    return k.const(kind, 1)


def exists(opcode: str, arch: str) -> bool:
    """Whether the PTX ISA has it there: bfloat16 from sm_80 on, its plain arithmetic from sm_90."""
    number = TARGETS[arch].number
    if "bf16" in opcode:
        return number >= (80 if opcode.startswith(("fma", "min", "max", "neg", "abs")) else 90)
    return number >= 80 or not (opcode.startswith(("min", "max")) and ".f16" in opcode)


@pytest.mark.parametrize("arch", TARGETS)
def test_every_form_is_accepted(arch: str) -> None:
    used, lacking = set(), set()

    def body(k):
        values = {t.name: some(k, t) for t in HELD}
        for name, forms in INSTRUCTIONS.items():
            for form in forms:
                operands = [3 if t is None else values[t.name] for t in form.operands]
                if not exists(form.opcode, arch):
                    with pytest.raises(BuildError, match="needs sm_"):
                        k.apply(name, *operands)
                    lacking.add(name)
                    continue
                assert k.apply(name, *operands).type is form.result
                used.add(name)

    assembled(make(body, arch))
    assert used == set(INSTRUCTIONS)
    if arch in ("sm_90", "sm_90a", "sm_100", "sm_120"):
        assert not lacking


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_every_option_is_accepted(arch: str) -> None:
    def body(k):
        values = {t.name: some(k, t) for t in HELD}
        for name, forms in INSTRUCTIONS.items():
            for form in forms:
                operands = [3 if t is None else values[t.name] for t in form.operands]
                for option, words in OPTIONS.items():
                    if f"{{{option}}}" in form.opcode and not (arch == "sm_80" and "bf16" in form.opcode):
                        for word in words:
                            k.apply(name, *operands, **{option: word})

    assembled(make(body, arch))


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_special_registers_and_comparisons(arch: str) -> None:
    def body(k):
        for name, (text, _, _) in SPECIAL_REGISTERS.items():
            if "cluster" not in text or arch != "sm_75":
                assert getattr(k, name) is getattr(k, name)
        for name in CLOCKS:
            assert getattr(k, name)().text != getattr(k, name)().text
        for kind in (u16, s16, u32, s32, u64, s64, f16, f32, f64):
            for how in COMPARISONS:
                if kind.kind == "f" or (len(how) == 2 and how != "nan"):
                    k.compare(how, some(k, kind), some(k, kind))
            k.select(some(k, kind) == 1, some(k, kind), 2)
            k.var(kind, 1).set(some(k, kind))

    assembled(make(body, arch))


def test_operators_emit_one_instruction_each() -> None:
    def body(k):
        a, b, i, s = some(k, f32), some(k, f32), some(k, u32), some(k, s32)
        k.comment("begin")
        _ = a + b, a - b, a * b, a / b, -a, abs(a), 1.0 - a, 2.0 / a, a < b, a != b, a == b
        _ = i + 1, i * 3, 7 - i, i // 5, i % 5, 100 // i, i & 3, i | 3, i ^ 3, i << 2, i >> 2, ~i, i < 9, i != 9
        _ = -s, s >> 1, s < -4, abs(s), s * -3
        k.comment("end")

    lines = text_of(body).split("// begin\n")[1].split("    // end")[0]
    assert [line.split()[0] for line in lines.splitlines()] == [
        "add.rn.f32",
        "sub.rn.f32",
        "mul.rn.f32",
        "div.rn.f32",
        "neg.f32",
        "abs.f32",
        "sub.rn.f32",
        "div.rn.f32",
        "setp.lt.f32",
        "setp.neu.f32",
        "setp.eq.f32",
        "add.u32",
        "mul.lo.u32",
        "sub.u32",
        "div.u32",
        "rem.u32",
        "div.u32",
        "and.b32",
        "or.b32",
        "xor.b32",
        "shl.b32",
        "shr.u32",
        "not.b32",
        "setp.lt.u32",
        "setp.ne.u32",
        "neg.s32",
        "shr.s32",
        "setp.lt.s32",
        "abs.s32",
        "mul.lo.s32",
    ]
    assert "sub.rn.f32 %f5, 0f3F800000, %f1;" in text_of(body) or "0f3F800000, %f1" in lines


def test_adding_nothing_emits_nothing() -> None:
    def body(k):
        i = some(k, u32)
        assert i + 0 is i
        assert 0 + i is i
        assert i * 1 is i
        assert i << 0 is i
        v = k.var(u32, 1)
        assert v + 0 is not v  # it may change later
        f = some(k, f32)
        assert f + 0.0 is not f  # -0.0 + 0.0 is 0.0

    make(body)


def test_options() -> None:
    def body(k):
        a = some(k, f32)
        k.add(a, a, rnd="rz", ftz=True, sat=True)
        k.fma(a, a, a, rnd="rp")
        k.max(a, a, nan=True)
        k.exp2(a, ftz=True)
        k.fma(some(k, f16), some(k, f16), 1.0, relu=True)

    text = text_of(body)
    for opcode in ("add.rz.ftz.sat.f32", "fma.rp.f32", "max.NaN.f32", "ex2.approx.ftz.f32", "fma.rn.relu.f16"):
        assert opcode in text


def test_bit_operations() -> None:
    def body(k):
        i = some(k, u32)
        k.lop3(i, i, i, 0x96)
        k.prmt(i, i, 0x3210)
        k.bfe(i, 4, 8)
        k.bfi(i, i, 4, 8)
        k.dp4a(some(k, s8x4), some(k, s8x4), some(k, s32))
        k.mad_wide(i, 4, some(k, u64))
        assert k.mul_wide(some(k, s32), some(k, s32)).type is s64
        assert k.popc(some(k, u64)).type is u32

    text = text_of(body)
    for line in ("lop3.b32 ", ", 150;", "prmt.b32 ", ", 12816;", "bfe.u32 ", "dp4a.s32.s32 ", "mad.wide.u32 "):
        assert line in text


CONVERSIONS = {
    (f32, f16, None): "cvt.rn.f16.f32",
    (f32, bf16, None): "cvt.rn.bf16.f32",
    (f32, bf16, "rz"): "cvt.rz.bf16.f32",
    (f32, tf32, None): "cvt.rna.tf32.f32",
    (f64, f32, "rm"): "cvt.rm.f32.f64",
    (f32, f64, None): "cvt.f64.f32",
    (f16, f32, None): "cvt.f32.f16",
    (s32, f32, None): "cvt.rn.f32.s32",
    (u64, f16, "rz"): "cvt.rz.f16.u64",
    (f32, s32, "rz"): "cvt.rzi.s32.f32",
    (f16, u32, "rn"): "cvt.rni.u32.f16",
    (f64, s64, "rp"): "cvt.rpi.s64.f64",
    (u32, u64, None): "cvt.u64.u32",
    (s32, s64, None): "cvt.s64.s32",
    (u64, u32, None): "cvt.u32.u64",
    (s32, s8, None): "cvt.s8.s32",
    (pred, u32, None): "selp.u32",
}


@pytest.mark.parametrize("source, kind, rnd", CONVERSIONS)
def test_conversion(source, kind, rnd) -> None:
    text = text_of(lambda k: some(k, source).to(kind, rnd))
    assert f"    {CONVERSIONS[source, kind, rnd]} " in text


def test_saturating_conversion_of_quantized_values() -> None:
    def body(k):
        lanes = [some(k, f32).to(s8, "rn", sat=True) for _ in range(4)]
        assert all(v.type is s32 for v in lanes)
        assert k.pack(s8x4, *lanes).type is s8x4

    text = text_of(body, "sm_75")
    assert "cvt.rni.sat.s8.f32" in text
    assert text.count("cvt.pack.sat.s8.s32.b32") == 2


def test_bf16_widens_everywhere() -> None:
    def body(k):
        half = k.const(u16, 0x3F80).bits(bf16)
        half.to(f32)
        k.unpack(k.lane.bits(bf16x2), f32)

    text = text_of(body, "sm_75")
    assert "mov.b32 %f1, {%us" in text
    assert "shl.b32 %f2, %bx1, 16;" in text
    assert ".version 6.3" in text


def test_packs() -> None:
    def body(k):
        f, h = some(k, f32), some(k, f16)
        for pack, lanes in ((f16x2, (f, f)), (bf16x2, (f, f)), (f16x2, (h, h)), (e4m3x2, (f, f))):
            assert k.pack(pack, *lanes).type is pack
        low, high = k.unpack(k.pack(f16x2, h, h))
        assert low.type is high.type is f16
        assert [v.type for v in k.unpack(some(k, u64))] == [u32, u32]
        assert [v.type for v in k.unpack(some(k, s8x4))] == [s32] * 4
        assert [v.type for v in k.unpack(k.pack(e4m3x2, f, f), f32)] == [f32, f32]
        assert k.pack(u64, some(k, u32), some(k, u32)).type is u64

    text = text_of(body)
    assert "cvt.rn.bf16x2.f32 %bx1, %f1, %f1;" in text


@pytest.mark.parametrize("arch", TARGETS)
def test_atomics(arch: str) -> None:
    @kernel(threads=32)
    def atomics(k, p: ptr(u8)):
        for name, kinds in ATOMICS.items():
            for kind in kinds:
                for memory in (p.cast(kind), k.shared(kind, 4)):
                    operands = [some(k, kind)] * (2 if name == "cas" else 1)
                    shared = memory is not p and memory.root.space == "shared"
                    if shared and kind.name in ("f16", "f16x2", "bf16", "bf16x2"):
                        continue
                    if kind in (bf16, bf16x2) and TARGETS[arch].number < 90:
                        with pytest.raises(BuildError, match="needs sm_90"):
                            memory.atomic(name, 0, *operands)
                        continue
                    assert memory.atomic(name, 0, *operands).type is kind
                    if name not in ("exch", "cas"):
                        memory.reduce(name, 1, *operands, order="relaxed", scope="gpu")

    assembled(atomics.build(arch))


def test_asm_is_counted() -> None:
    def body(k):
        value = k.asm("brev.b32 {out}, {0};", u32, [some(k, u32)])
        assert value is not None
        k.asm("membar.gl")
        value + 1

    built = make(body)
    assembled(built)
    assert built.escapes == ("brev.b32 {out}, {0};", "membar.gl")
    assert make(lambda k: k.asm("st.async.weak.shared::cluster [%r1], 1;")).version == "8.1"


def test_division_by_a_power_of_two_is_a_shift_or_a_mask():
    """ptxas divides by it as by any other number; other numbers, and signed ones, are divided."""

    @kernel(threads=32)
    def divided(k, out: ptr(u32), n: u32):
        left = k.var(u32, n)
        left //= 16
        signed = k.div(n.bits(s32), 8).bits(u32)
        for i, value in enumerate((n // 8, n % 8, k.div(n, 1 << 31), n // 12, n % 12, left.value, signed)):
            out.store(i, value)

    text = divided.build("sm_80").text
    assert [text.count(word) for word in ("shr.u32", "and.b32", "div.u32", "rem.u32", "div.s32")] == [3, 1, 1, 1, 1]
