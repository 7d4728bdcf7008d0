"""The parameters of the ops' public functions, from which the functions, the stubs and the docs are generated."""

import inspect

from trueno.ops.op import Op

BLOCKS = "QuantizedMatrix | NDArray[Any]"
"""The accepted types of an operand in blocks."""
CACHE = "Pages | NDArray[Any]"
"""The accepted types of a cache of keys or values."""
BYTES = "NDArray[Any]"
"""The accepted type of bytes."""


def parameters(op: Op) -> list[inspect.Parameter]:
    """The public parameters of an op's function, in order."""
    P = inspect.Parameter
    taken = {"blocks": BLOCKS, "cache": CACHE, "bytes": BYTES}
    listed = [
        P(s.name, P.POSITIONAL_OR_KEYWORD, annotation=taken.get(s.type, "ArrayLike")) for s in op.signature.inputs
    ]
    for p in op.params:
        kind = P.KEYWORD_ONLY if p.keyword else P.POSITIONAL_OR_KEYWORD
        listed.append(P(p.name, kind, default=p.default, annotation=p.type.__name__))
    if op.over is not None and not op.structured:
        along = P.POSITIONAL_OR_KEYWORD if len(listed) == 1 else P.KEYWORD_ONLY
        listed.append(P("axis", along, default=-1, annotation="int | tuple[int, ...] | None" if op.reduces else "int"))
        if op.reduces:
            listed.append(P("keepdims", P.KEYWORD_ONLY, default=False, annotation="bool"))
    listed.append(P("out", P.KEYWORD_ONLY, default=None, annotation="Any"))
    return listed
