"""Matrix products: every shape of the tables is accepted on every architecture that has it."""

import pytest
from trueno_cuda.ptx import (
    TARGETS,
    BuildError,
    bf16,
    bf16x2,
    e4m3,
    f16,
    f16x2,
    f32,
    f64,
    kernel,
    s8,
    s8x4,
    s32,
    tf32,
    u8,
    u8x4,
)
from trueno_cuda.ptx.tensor_cores import MMA, WGMMA_K
from unit.cuda.ptx.assembler import assembled

FIRST = {"m16n8k8 half f16x2": 75, "m16n8k8 packed f16x2": 75, "m8n8k16 int8 s8x4": 75, "m8n8k16 int8 u8x4": 75}


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("row", MMA)
def test_mma(row: str, arch: str) -> None:
    kinds, accs, (a_regs, b_regs, c_regs) = MMA[row]
    number = TARGETS[arch].number
    available = [t for t in kinds if number >= FIRST.get(f"{row} {t}", 89 if "fp8" in row else 80)]

    @kernel(threads=32)
    def multiplying(k):
        for kind in available or kinds:
            value = k.const(f64, 1.0) if kind is f64 else k.copy(k.lane).bits(kind)
            k.mma(row.split()[0], k.vars(accs[0], c_regs), [value] * a_regs, [value] * b_regs)

    if not available:
        with pytest.raises(BuildError, match=r"mma\.sync.* needs sm_"):
            multiplying.build(arch)
        return
    built = multiplying.build(arch)
    assembled(built)
    for kind in available:
        lane = kind.lane or kind
        assert f".row.col.{(accs[0].lane or accs[0])}.{lane}.{lane}." in built.text


def test_mixed_signs_of_integers() -> None:
    @kernel(threads=32)
    def mixed(k):
        a, b = k.lane.bits(u8x4), k.lane.bits(s8x4)
        k.mma("m16n8k32", k.vars(s32, 4), [a] * 4, [b] * 2)

    built = mixed.build()
    assembled(built)
    assert "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32" in built.text


@pytest.mark.parametrize("element, kind", [(f16, f16x2), (bf16, bf16x2), (f32, tf32), (s8, s8x4), (u8, u8x4)])
def test_ldmatrix_and_stmatrix(element, kind) -> None:
    @kernel(threads=32)
    def moving(k):
        row = 16 // element.bytes
        tile, other = k.shared(element, 1024), k.shared(element, 1024)
        for count in (1, 2, 4):
            got = k.ldmatrix(tile, k.lane * row, count)
            assert [v.type for v in got] == [kind] * count
            k.ldmatrix(tile, k.lane * row, count, transposed=True)
            k.stmatrix(other, k.lane * row, got)

    built = moving.build("sm_90")
    assembled(built)
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in built.text


@pytest.mark.parametrize("element", [f16, bf16, f32, s8, u8, e4m3])
@pytest.mark.parametrize("n", [8, 64, 256])
def test_wgmma(element, n: int) -> None:
    depth = WGMMA_K[element.name]
    acc_type = s32 if element in (s8, u8) else f32

    @kernel(threads=128)
    def multiplying(k):
        a, b = k.shared(element, 64, depth * 4), k.shared(element, n, depth * 4)
        acc = k.vars(acc_type, n // 2)
        left, right = k.matrix(a, stride=8 * depth * 4), k.matrix(b, stride=8 * depth * 4)
        k.wgmma_fence()
        for q in range(4):
            further = [k.deeper(m, q * depth, element) for m in (left, right)]
            k.wgmma(f"m64n{n}k{depth}", acc, *further, element, accumulate=q > 0)
        k.wgmma_commit()
        k.wgmma_wait(0)
        out = k.shared(acc_type, 128)
        out.store(k.tid, acc[0])

    built = multiplying.build("sm_90a")
    report = assembled(built)
    assert report.spilled == 0
    name = "tf32" if element is f32 else element.name
    assert built.text.count(f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{acc_type}.{name}.{name}") == 4
    assert built.static_shared % 128 == 0 or built.dynamic_shared


def test_wgmma_with_a_fragment() -> None:
    @kernel(threads=128)
    def multiplying(k):
        b = k.shared(bf16, 64, 64)
        acc, a = k.vars(f32, 32), [k.copy(k.lane).bits(bf16x2) for _ in range(4)]
        k.wgmma_fence()
        k.wgmma("m64n64k16", acc, a, k.matrix(b, stride=512), bf16, transposed=(False, True))
        k.wgmma_commit()
        k.wgmma_wait(0)
        k.set_max_registers("inc", 240)

    built = multiplying.build("sm_90a")
    assembled(built)
    assert ", 1, 1, 1;" in built.text


@pytest.mark.parametrize("swizzle, code", [(128, 1), (64, 2), (32, 3), (0, 0)])
def test_matrix_descriptors(swizzle: int, code: int) -> None:
    @kernel(threads=128)
    def describing(k):
        tile = k.shared(bf16, 64, 64)
        k.matrix(tile, 8, leading=64, stride=512, swizzle=swizzle)

    built = describing.build("sm_90a")
    assembled(built)
    word = int(built.text.split("or.b64 %desc1, ")[1].split(", ")[1].split(";")[0], 16)
    assert word >> 62 == code
    assert word >> 32 & 0x3FFF == 512 * 2 // 16
    assert word >> 16 & 0x3FFF == 64 * 2 // 16
