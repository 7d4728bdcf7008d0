"""attention, and its versions with sinks, with a mask, and of sequences, in the table of kernels."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates, settings

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.device.repeated import quick
from trueno_cuda.kernels.attention.form import OPERANDS
from trueno_cuda.kernels.attention.fragments import Parts
from trueno_cuda.kernels.attention.plan import NO_CAP, Choice, Plan, numbers, plan, sizes_of
from trueno_cuda.kernels.operands import FLOATS, SHAPES, Shape
from trueno_cuda.kernels.product import overlaps
from trueno_cuda.kernels.table import KERNELS

RATES = Rates(launch_s=1e-5, flops=4e13, bytes=4e12, link_s=2e-5, link_bytes=8e9)
"""An H200's, of float32."""
HALF = np.dtype(np.float16)
ALIGNED = 16


def rough() -> bool:
    """Whether weights of 16-bit operands may be rounded to 16 bits; where no manifest declares that, they may not."""
    declared = settings.all()
    return "TRUENO_CUDA_ROUGH_WEIGHTS" in declared and bool(declared["TRUENO_CUDA_ROUGH_WEIGHTS"].value)


def run(
    device: Device, planned: Plan, pointers: Sequence[int], size: int, d: int, scale: float, softcap: float
) -> None:
    """Launch what was planned.  pointers: q, k, v, what follows them, the result, and the word for guards."""
    form = planned.form
    q, k, v, *rest = pointers
    floats = numbers(scale, softcap, d, form)
    key_size = size
    if planned.split is not None:
        halves = device.empty((planned.scratch,), HALF)
        start = halves.data.ptr
        planned.split((k, v, start, start + 2 * planned.second))
        k, v, key_size = start, start + 2 * planned.second, 2
    place = len(OPERANDS[form.extra])
    for step in planned.steps:
        of_q, of_k, of_v, of_mask, of_out = step.offsets
        moved = [q + of_q * size, k + of_k * key_size, v + of_v * key_size, *rest]
        moved[3 + place] += of_out * size
        if form.extra == "mask":
            moved[3] += of_mask * size
        step.launch(moved, floats)


@KERNELS.add("attention", "attention_sinks", "attention_masked", "attention_ragged", rates=RATES, dtypes=tuple(FLOATS))
def attention(device: Device, call: Call) -> Kernel:
    """q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e], and sinks, a mask or offsets -> out[...,t,hq,e]."""
    static, guarded = dict(call.static), call.guarded
    causal, window = static["causal"], static["window"]
    extra = {"masked": "mask"}.get(name := call.op.table_op.name.removeprefix("attention").lstrip("_"), name)
    element, size = FLOATS[call.dtype.name], call.dtype.itemsize
    contiguous, inputs = device.contiguous, 3 + len(OPERANDS[extra])

    @lru_cache(SHAPES)
    def planned(capped: bool, aligned: bool, *shapes: Shape) -> Plan | None:
        q, k, v, *more, out = shapes
        sizes = sizes_of(extra, q, k, v, more, out)
        if sizes is None:
            return None
        parts = Parts(1, 1, 1) if static.get("products") == "bf16" or (element.bits == 16 and rough()) else None
        return plan(
            device, sizes, element, extra, causal, window, capped=capped, guarded=guarded, aligned=aligned, parts=parts
        )

    def of(arrays: Sequence[Any], softcap: float) -> Plan | None:
        aligned = not any(x.data.ptr % ALIGNED for x in (*arrays[:3], arrays[-1]))
        return planned(softcap > 0, aligned, *(x.shape for x in arrays))

    def kernel(*given: Any) -> int:
        *operands, scale, softcap, out = given
        softcap = softcap if softcap < NO_CAP else 0.0
        arrays = [*map(contiguous, operands), out]
        if contiguous(out) is not out:
            return -1
        if not out.size:
            return 0 if sizes_of(extra, *_shapes(arrays)) is not None else -1
        chosen = of(arrays, softcap)
        if chosen is None or any(overlaps(out, x) for x in arrays[:-1]):
            return -1
        pointers = [x.data.ptr for x in arrays] + ([device.status()] if guarded else [])
        run(device, chosen, pointers, size, arrays[0].shape[-1], scale, softcap)
        return 0

    def seen(arrays: Sequence[Any]) -> Launch | None:
        """What repeats a call on these arrays, which are in C order, with any numbers."""
        d, plans = arrays[0].shape[-1], [of(arrays, cap) for cap in (0.0, 1.0)]
        if not arrays[-1].size or None in plans:
            return None

        def repeated(pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
            scale, softcap = floats
            softcap = softcap if softcap < NO_CAP else 0.0
            run(device, plans[softcap > 0], pointers, size, d, scale, softcap)  # type: ignore[arg-type]

        return repeated  # type: ignore[return-value]

    return kernel if guarded or not device.alone else quick(kernel, seen, inputs, 2, 1)


def _shapes(arrays: Sequence[Any]) -> tuple[Any, ...]:
    q, k, v, *more, out = (x.shape for x in arrays)
    return q, k, v, more, out


def launch(
    device: Device, q: Any, k: Any, v: Any, out: Any, *, causal: bool = False, window: int = 0, scale: float = 0.0,
    parts: Parts | None = None, choice: Choice | None = None,
) -> Callable[[], None]:  # fmt: skip
    """Prepare `attention` with a kernel of the caller's choice, for benchmarks; calling what this returns launches.

    parts: of 16-bit operands, `Parts(1, 1, 1)` rounds weights to 16 bits, as other libraries do.
    ValueError for shapes that do not agree.
    """
    sizes = sizes_of("", q.shape, k.shape, v.shape, [], out.shape)
    if sizes is None or not q.dtype == k.dtype == v.dtype == out.dtype:
        raise ValueError(f"attention.launch: q{q.shape}, k{k.shape}, v{v.shape} and out{out.shape} do not agree")
    element = FLOATS[q.dtype.name]
    planned = plan(
        device, sizes, element, "", causal, window, choice=choice, parts=parts,
        aligned=not any(x.data.ptr % ALIGNED for x in (q, k, v, out)),
    )  # fmt: skip
    pointers = [x.data.ptr for x in (q, k, v, out)]
    return lambda: run(device, planned, pointers, q.dtype.itemsize, sizes.d, scale, 0.0)
