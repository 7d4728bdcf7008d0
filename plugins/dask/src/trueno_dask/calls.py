"""The lazy results of a public function: which rule splits a call is a question to its entry in the table of ops."""

from typing import Any

from trueno.ops.op import Op

from trueno_dask import rows, structured
from trueno_dask.request import requested


def run(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> Any:
    """The lazy result of a call, or a tuple of them."""
    request = requested(op, operands, scalars)
    return structured.run(request) if op.structured else rows.run(request)
