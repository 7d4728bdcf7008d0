"""Calls of the CUDA backend's kernels on the emulator, and what their sums of products may be off by."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from seeds import fresh_seed
from trueno.discovery.protocol import Call
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import KERNELS
from trueno_cuda.kernels.gemm.choice import Choice
from trueno_cuda.kernels.gemm.matmul import ELEMENTS, product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.product import ProductLaunch
from trueno_cuda.kernels.store import PLAIN, Store
from trueno_cuda.ptx import Kernel
from trueno_cuda.ptx.emulate import Report, load

FLOATS = (np.float32, np.float64)
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def fresh() -> np.random.Generator:
    """A seed that no run had before; pytest shows it when a test fails."""
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def floats(rng: np.random.Generator, dtype: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(dtype)


def called(device: Any, op: str, *operands: Any, guarded: bool = False) -> Any:
    """The kernel for operands like these."""
    sizes = tuple(int(np.size(x)).bit_length() for x in operands)
    call = Call(TABLE[op], operands[0].dtype, "e" * len(operands), np.ndim(operands[0]), sizes, (), "cuda_emulated",
                guarded)  # fmt: skip
    assert KERNELS.refusal(call) is None
    return KERNELS.kernel(call, device)


def compute(device: Any, op: str, shape: tuple[int, ...], *operands: Any, guarded: bool = False) -> Any:
    """Result of an op's kernel, which leaves its operands alone."""
    out = device.to_device(np.full(shape, np.nan, operands[0].dtype))
    given = [device.to_device(x) for x in operands]
    assert called(device, op, *operands, guarded=guarded)(*given, out) == 0
    for x, array in zip(operands, given, strict=True):
        assert device.to_host(array).tobytes() == np.ascontiguousarray(x).tobytes(), "an operand was changed"
    return device.to_host(out)


def assert_right(op: str, got: Any, *operands: Any) -> None:
    """Within the op's own bound."""
    verdict = judge_structured(TABLE[op], list(operands), {}, got.dtype, [got])
    assert verdict, verdict


def assert_product(got: Any, a: Any, b: Any, unit: float = 0.0) -> None:
    """|got - want| <= (k + 4) u sum |a b|, in float64 for float32, in longdouble for float64; NaN never passes."""
    wide = np.float64 if got.dtype != np.float64 else np.longdouble
    x, y = a.astype(wide), b.astype(wide)
    slack = (a.shape[-1] + 4) * (unit or UNIT[got.dtype.name]) * (np.abs(x) @ np.abs(y))
    excess = np.abs(got.astype(wide) - x @ y) - slack
    assert got.shape == excess.shape and (excess <= 0).all(), f"worst excess {np.max(excess)}"


def run(
    device: Any, launches: Sequence[ProductLaunch], a: Any, b: Any, shape: tuple[int, ...], ends: Sequence[int] = (),
    numbers: Sequence[float] = (),
) -> Any:  # fmt: skip
    """Result of planned launches."""
    given = [device.to_device(x) for x in (a, b)]
    out = device.to_device(np.full(shape, np.nan, a.dtype))
    size = a.dtype.itemsize
    for planned in launches:
        x, y, first, _ = planned.offsets
        pointers = (given[0].data.ptr + x * size, given[1].data.ptr + y * size)
        to = out.data.ptr + first * size
        if planned.then is None:
            planned.launch((*pointers, to, *ends), numbers)
        else:
            parts = device.to_device(np.full(planned.scratch, np.nan, a.dtype))
            planned.launch((*pointers, parts.data.ptr))
            planned.then((parts.data.ptr, to, *ends), numbers)
    return device.to_host(out)


def planned(
    device: Any, choice: Choice, a: Any, b: Any, *, aligned: bool = True, store: Store = PLAIN, ends: Sequence[int] = ()
) -> Any:
    """A product by the kernel that is named."""
    (m, depth), n = a.shape, b.shape[1]
    launches = product_launches(device, Problem(m, n, depth), ELEMENTS[a.dtype.name], store, aligned, choice)
    return run(device, launches, a, b, (m, n), ends)


def measured(kernel: Kernel, grid: tuple[int, int, int], arrays: Sequence[Any], numbers: Sequence[int]) -> Report:
    """What the emulator saw of one launch."""
    report = load(kernel.text).launch(
        kernel.name, grid, kernel.threads or 1, [*arrays, *numbers], shared=kernel.dynamic_shared, sample=None
    )
    assert not report.findings, report
    return report


EMULATED = {arch: Emulator(arch) for arch in ("sm_80", "sm_90")}
DEVICE = EMULATED["sm_90"]
