"""How the kernels of this family stand in the table: the formats that they read, and what guards their results."""

from collections.abc import Callable
from functools import wraps

from trueno.backend import FORMATS, Call, Kernel, Reject

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.kernels.quant.guard import guarded
from trueno_wgpu.kernels.table import KERNELS, RATES

Factory = Callable[[Gpu, Call], Kernel]


def declared(op: str) -> Callable[[Factory], Factory]:
    """Decorate the factory of an op's kernels; what it makes need not look for NaN and Inf itself."""

    def added(factory: Factory) -> Factory:
        @wraps(factory)
        def with_guard(gpu: Gpu, call: Call) -> Kernel:
            plain = factory(gpu, call)
            return guarded(gpu, plain) if call.guarded else plain

        return KERNELS.add(op, rates=RATES, refusal=_refusal)(with_guard)

    return added


def _refusal(call: Call) -> Reject | None:
    """Files' own order of rows is read alone: on a GPU there is nothing to gain from another."""
    static = dict(call.static)
    name = static["format"]
    if static.get("activations") == "bf16":
        return Reject("unsupported_op", "bfloat16: WGSL has none; use q8 or f32")
    if name in FORMATS:
        return None
    return Reject("unsupported_op", f"{name}: rows are read as files hold them; q.plain() puts them back")
