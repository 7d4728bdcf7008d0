"""Shared parts of hand-written kernels: typed variants of one function, status bits, and calls on device arrays."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from math import inf
from typing import Any

from trueno_cuda.device.protocol import ArrayLaunch, Device, Launch
from trueno_cuda.device.repeated import quick
from trueno_cuda.ptx import Builder, Kernel, Pointer, Source, Type, Value, Var, bf16, f16, f32, f64, kernel, ptr, u32

Shape = tuple[int, ...]
VECTOR = 16
"""Bytes of the widest access."""
SHAPES = 64
"""Sets of shapes whose launches a kernel object keeps."""
REACH = 1 << 30
"""Rows, and columns, that one launch covers: indices stay well inside of u32, and larger arrays take several."""
NAN, INF = 1, 2
FLOATS = {"float16": f16, "bfloat16": bf16, "float32": f32, "float64": f64}
"""Elements by their dtypes' names."""

# ------------------------------------------------------------------------------------- one function, many types


def typed(
    function: Callable[..., None],
    name: str,
    threads: int,
    operands: Mapping[str, Any],
    blocks_per_sm: int | None = None,
    cluster: int | tuple[int, ...] | None = None,
) -> Source:
    """A kernel of `function` whose launch parameters are these, by name and type, in this order.

    The function takes them by name, and its keyword-only parameters are the constants, as ever; an operand that is not
    named here keeps the function's default, which is how `status` is left out of kernels that are not guarded.
    """
    names = list(operands)

    def build(k: Builder, *given: Any, **constants: Any) -> None:
        function(k, **dict(zip(names, given, strict=True)), **constants)

    own = inspect.signature(function).parameters.values()
    any_place = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter("k", any_place), *(Parameter(n, any_place, annotation=t) for n, t in operands.items())]
    parameters += [p for p in own if p.kind is Parameter.KEYWORD_ONLY]
    build.__name__ = name
    build.__wrapped__ = function  # type: ignore[attr-defined]  # the builder reads the function's own text
    build.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return kernel(threads=threads, blocks_per_sm=blocks_per_sm, cluster=cluster, overlap=True)(build)


def element(itemsize: int) -> Type:
    return {4: f32, 8: f64}[itemsize]


# ------------------------------------------------------------------------------------- status


def look(k: Builder, bits: Var, value: Value) -> None:
    """Note in `bits` whether a float is a NaN or an Inf."""
    special = k.select(value != value, k.const(u32, NAN), k.select(abs(value) == inf, k.const(u32, INF), 0))
    bits |= special


def tell(k: Builder, bits: Var, status: Pointer) -> None:
    """OR the warp's bits into the status word, where there are any.  Whole warps must get here."""
    whole = k.warp_reduce(bits, "or_")
    assert isinstance(whole, Value)
    status.reduce("or", 0, whole, where=(whole != 0) & (k.lane == 0))


# ------------------------------------------------------------------------------------- calls


Plan = Sequence[ArrayLaunch] | None
"""The launches of a call, none where there is nothing to do; None for shapes that do not agree."""


def called(device: Device, plan: Callable[..., Plan], guarded: bool, inputs: int) -> Callable[..., int]:
    """The kernel object whose launches are `plan(*shapes, wide)`, made once for each set of shapes.

    shapes: of the operands, so many inputs, and of the result.  wide: whether all of them allow vector accesses.
    It refuses results that overlap an operand or do not lie in C order: nothing here works in place.
    """
    kept = lru_cache(SHAPES)(plan)
    contiguous = device.contiguous

    def call(*arrays: Any) -> int:
        out = arrays[-1]
        dense = [contiguous(x) for x in arrays]
        if dense[-1] is not out:
            return -1
        pointers = [x.data.ptr for x in dense]
        aligned = 0
        for p in pointers:
            aligned |= p
        launches = kept(*(x.shape for x in arrays), aligned % VECTOR == 0)
        if launches is None:
            return -1
        start = pointers[-1]
        end = start + out.nbytes
        for x, p in zip(dense[:-1], pointers, strict=False):
            if p < end and start < p + x.nbytes:
                return -1
        after = [device.status()] if guarded and launches else []
        for launch, offsets in launches:
            launch([p + o for p, o in zip(pointers, offsets, strict=True)] + after if offsets else pointers + after)
        return 0

    def seen(arrays: Sequence[Any]) -> Launch | None:
        """The launch that a call on these arrays is, where it is one."""
        aligned = all(x.data.ptr % VECTOR == 0 for x in arrays)
        launches = kept(*(x.shape for x in arrays), aligned)
        return launches[0].launch if launches and len(launches) == 1 and not launches[0].offsets else None

    return call if guarded or not device.alone else quick(call, seen, inputs, 0, 1)


def bands(count: int) -> list[tuple[int, int]]:
    """(first, how many) of the parts of `count` rows or columns that one launch covers each."""
    return [(first, min(REACH, count - first)) for first in range(0, count, REACH)]


def prepared(device: Device, source: Source, constants: dict[str, Any], blocks: int, numbers: Sequence[int]) -> Launch:
    """A launch of so many blocks of the kernel, built for the device's architecture."""
    return device.prepare(build(source, device.arch, tuple(constants.items())), (blocks, 1, 1), numbers)


def build(source: Source, arch: str, constants: tuple[tuple[str, Any], ...]) -> Kernel:
    """`source.build`, each text written once a process."""
    key = source.function, arch, constants
    if key not in _built:
        _built[key] = source.build(arch, **dict(constants))
    return _built[key]


_built: dict[tuple[Any, ...], Kernel] = {}


def status_parameter(guarded: bool) -> dict[str, Any]:
    """The parameter that guarded kernels have behind their other pointers."""
    return {"status": ptr(u32)} if guarded else {}


def power(n: int) -> int:
    """The least power of two that is n or more."""
    return 1 << (n - 1).bit_length()


def powers(first: int, last: int) -> tuple[int, ...]:
    """Powers of two from one of them to another: what a constant may be."""
    return tuple(1 << e for e in range(first.bit_length() - 1, last.bit_length()))
