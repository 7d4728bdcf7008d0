"""The example kernels are accepted wherever they claim to run, and say what a launcher needs."""

import pytest
from trueno_cuda.ptx import BuildError
from unit.cuda.ptx.assembler import assembled
from unit.cuda.ptx.examples import ARCHES, CONSTANTS, EXAMPLES, mma_gemm, rms_norm, vector_add, wgmma_gemm

CASES = [(name, arch) for name in EXAMPLES for arch in ARCHES[name]]


@pytest.mark.parametrize("name, arch", CASES)
def test_ptxas_accepts_it_without_a_spill(name: str, arch: str) -> None:
    kernel = EXAMPLES[name].build(arch, **CONSTANTS.get(name, {}))
    report = assembled(kernel)
    assert report.spilled == 0
    assert report.registers <= 168


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_is_the_same_every_time(name: str) -> None:
    arch, constants = ARCHES[name][-1], CONSTANTS.get(name, {})
    one, two = (EXAMPLES[name].build(arch, **constants) for _ in range(2))
    assert one == two
    assert one.key == two.key
    assert one.text.isascii()


def test_what_a_launcher_needs() -> None:
    kernel = rms_norm.build("sm_90", N=2048)
    assert kernel.name == "rms_norm_N2048_V4"
    assert (kernel.arch, kernel.version) == ("sm_90", "7.8")
    assert kernel.threads == (256, 1, 1)
    assert kernel.constants == {"N": 2048, "V": 4}
    assert [(p.name, repr(p.type), p.offset, p.bytes) for p in kernel.params] == [
        ("x", "ptr(f32)", 0, 8),
        ("w", "ptr(f32)", 8, 8),
        ("y", "ptr(f32)", 16, 8),
        ("eps", "f32", 24, 4),
    ]
    assert [(p.read, p.written, p.align) for p in kernel.params[:3]] == [
        (True, False, 16),
        (True, False, 16),
        (False, True, 16),
    ]
    assert kernel.param_bytes == 28
    assert (kernel.static_shared, kernel.dynamic_shared, kernel.shared_bytes) == (32, 0, 32)
    assert kernel.escapes == ()


def test_a_scalar_kernel_asks_for_no_more_alignment_than_it_needs() -> None:
    assert [p.align for p in vector_add.build(V=1).params[:3]] == [4, 4, 4]
    assert [p.align for p in vector_add.build(V=2).params[:3]] == [8, 8, 8]
    assert "ld.global.nc.L1::no_allocate.v2.f32" in vector_add.build(V=2).text


def test_much_shared_memory_becomes_dynamic() -> None:
    small, large = mma_gemm.build(STAGES=3), mma_gemm.build(STAGES=6)
    assert (small.static_shared, small.dynamic_shared) == (30720, 0)
    assert (large.static_shared, large.dynamic_shared) == (0, 61440)
    assert ".extern .shared .align 16 .b8 dynamic[];" in large.text
    assembled(large)
    with pytest.raises(BuildError, match=r"102400 bytes of shared memory .*sm_86 has 101376"):
        mma_gemm.build("sm_86", STAGES=10)


def test_a_row_whose_length_no_vector_divides_is_refused() -> None:
    with pytest.raises(BuildError, match=r"a vector of 4 must start at a multiple of 4.*one of 2"):
        rms_norm.build(N=2046)
    assembled(rms_norm.build(N=2046, V=2))


def test_wgmma_is_for_one_architecture() -> None:
    with pytest.raises(BuildError, match="exists on sm_90a alone; this kernel is built for sm_100"):
        wgmma_gemm.build("sm_100")
    with pytest.raises(BuildError, match="needs sm_90 or newer; this kernel is built for sm_80"):
        wgmma_gemm.build("sm_80")
