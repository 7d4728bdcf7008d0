"""The methods of a batch, one per op, generated from the table like the functions."""

import inspect
from typing import Any

from trueno.border import refused
from trueno.dispatch.parameters import parameters
from trueno.ops.op import Op


def method(op: Op) -> Any:
    """The method of an op: the op's signature, without `out`."""
    listed = [p for p in parameters(op) if p.name != "out"]
    shown, keyword = ["self"], False
    for p in listed:
        if p.kind is p.KEYWORD_ONLY and not keyword:
            shown.append("*_more")
            keyword = True
        shown.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    shown += [*([] if keyword else ["*_more"]), "**_other"]
    scalars = ", ".join(f"{p.name!r}: {p.name}" for p in listed if p.name not in op.operands)
    source = f"def {op.name}({', '.join(shown)}):\n"
    source += "    if _more or _other:\n        _refused(_op, _more, _other, out=False)\n"
    source += f"    return self._record(_op, ({', '.join(op.operands)},), {{{scalars}}})\n"
    namespace: dict[str, Any] = {"_op": op, "_refused": refused}
    exec(compile(source, f"<trueno.Batch.{op.name}>", "exec"), namespace)
    function: Any = namespace[op.name]
    function.__doc__ = f"{op.doc}\n\nRecords the op: operands are handles or numbers, and so is what it gives."
    function.__signature__ = inspect.Signature(
        [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *listed]
    )
    function.__qualname__, function.__module__ = f"Batch.{op.name}", "trueno.batch"
    return function
