"""The device itself compares float32 functions with its float64 ones: on hardware at every float32 there is.

That takes a GPU a second; the emulator tries a few thousand of them, which shows that the comparison is right.
"""

from typing import Any

import numpy as np
import pytest
from trueno_cuda.backend import CudaBackend
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.ptx import Kernel, Value, f32, f64, kernel, ptr, u32, u64
from trueno_cuda.rows.accuracy import ACCURACY
from trueno_cuda.rows.expressions import DOUBLE, SINGLE

THREADS = 256
UNARY = sorted(set(SINGLE) - {"pow"})


def ulps(k: Any, got: Value, want: Value) -> Value:
    """|got - want| in ulps of float32 at `want`; Inf for a NaN or the sign of a zero that is wrong."""
    nearest = want.to(f32)
    exponent = k.and_(k.unpack(want.bits(u64))[1], 0x7FF00000)
    step = k.pack(u64, k.const(u32, 0), k.max(exponent, (1023 - 126) << 20)).bits(f64) * 2.0**-23
    error = abs(got.to(f64) - want) / step
    error = k.select(k.compare("nan", error, error), np.inf, error)
    both = k.compare("nan", got, got) & k.compare("nan", want, want)
    error = k.select(both | ((got == nearest) & (abs(got) == np.inf)), 0.0, error)
    wrong = (got == 0.0) & (want == 0.0) & (got.bits(u32) != nearest.bits(u32))
    return k.select(wrong, np.inf, error).to(f32, "rp")


def comparison(kind: str, arch: str) -> Kernel:
    """out[0] = (bits of the largest error) · 2³² + (bits of an argument that has it), of so many turns a thread."""

    @kernel(threads=THREADS)
    def compared(k: Any, out: ptr(u64), stride: u32, turns: u32) -> None:
        most, worst = k.var(f32, 0.0), k.var(u32, 0)
        at = k.var(u32, (k.ctaid * THREADS + k.tid) * stride)
        step = k.nctaid * THREADS * stride
        for _ in k.range(turns):
            x = at.value.bits(f32)
            error = ulps(k, SINGLE[kind](k, x), DOUBLE[kind](k, x.to(f64)))
            larger = error > most
            if kind == "log1p_unit":
                larger = larger & (x >= 0.0) & (x <= 1.0)
            with k.when(larger):
                most.set(error)
                worst.set(at)
            at += step
        out.reduce("max", 0, k.pack(u64, worst.value, most.value.bits(u32)))

    return compared.build(arch=arch)


def worst(device: Any, kind: str, blocks: int, stride: int, turns: int) -> tuple[float, float]:
    """The largest error, in ulps, and where."""
    out = device.to_device(np.zeros(1, np.uint64))
    device.prepare(comparison(kind, device.arch), (blocks, 1, 1), (stride, turns))((out.data.ptr,))
    where, error = device.to_host(out).view(np.uint32).view(np.float32)
    return float(error), float(where)


@pytest.mark.parametrize("kind", UNARY)
def test_a_few_on_the_emulator(kind: str) -> None:
    error, where = worst(Emulator("sm_90"), kind, blocks=4, stride=2**21 + 1, turns=2)
    assert 0.3 < error <= ACCURACY.ulp[kind], f"{kind}({where!r}): {error:.3f} ulp"


def test_a_wrong_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SINGLE["log"]
    monkeypatch.setitem(SINGLE, "log", lambda k, x: k.select(x == 8.0, 2.0794420, right(k, x)))
    error, where = worst(Emulator("sm_90"), "log", blocks=2, stride=2**23, turns=1)
    assert where == 8.0 and 1.5 < error < 3


@pytest.mark.gpu
@pytest.mark.parametrize("kind", UNARY)
def test_all_on_hardware(kind: str) -> None:
    answer = CudaBackend().probe(2)
    if not answer.ok:
        pytest.skip(answer.reason)
    error, where = worst(CudaBackend().device, kind, blocks=2**12, stride=1, turns=2**12)
    print(f"{kind}: {error:.4f} ulp at {where!r}")
    assert error <= ACCURACY.ulp[kind], f"{kind}({where!r}): {error:.3f} ulp"
