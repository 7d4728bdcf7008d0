"""Kernels whose parameters depend on the call: a result, and the operands of an epilogue."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any, Literal

from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.ptx.kernel import Kernel, Source

Body = Callable[[Any, Any], None]
"""`body(k, p)` writes the kernel; the parameters are attributes of `p`."""


def build(
    name: str, arch: str, params: Mapping[str, ParamType], body: Body, threads: int, blocks_per_sm: int | None = None,
    overlap: bool | Literal["late"] = True, cluster: tuple[int, int, int] | None = None,
) -> Kernel:  # fmt: skip
    """The kernel of that name.  params: pointers, then whole numbers, then floats, as `Device.prepare` wants them.

    overlap, cluster: as of `ptx.kernel`.
    """

    def function(k: Any, *given: Any) -> None:
        body(k, SimpleNamespace(**dict(zip(params, given, strict=True))))

    function.__name__ = name
    function.body = body  # type: ignore[attr-defined]  # which writes the kernel
    given = [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD, annotation=t) for n, t in params.items()]
    function.__signature__ = Signature([Parameter("k", Parameter.POSITIONAL_OR_KEYWORD), *given])  # type: ignore[attr-defined]
    return Source(function, threads=threads, blocks_per_sm=blocks_per_sm, overlap=overlap, cluster=cluster).build(arch)
