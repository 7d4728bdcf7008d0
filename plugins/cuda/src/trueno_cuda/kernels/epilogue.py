"""What follows a product, in its registers: an elementwise row program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from trueno.discovery.protocol import Call, Reject
from trueno.ops.op import Op

from trueno_cuda.ptx import Value


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A program over one sum.  beside: kinds of the arrays that it reads; numbers: how many parameters it takes."""

    name: str
    beside: str
    numbers: int

    def write(self, k: Any, made: Value, beside: Sequence[Value], numbers: Sequence[Value]) -> Value:
        """The program's result for one element."""
        raise NotImplementedError


def refusal(call: Call) -> Reject | None:
    """Why a product does not take in what follows it; None if it does."""
    return Reject("unsupported_op", f"{call.op.name}: no epilogues yet")


def spliced(op: Op, dtype: np.dtype[Any]) -> Epilogue:
    """The epilogue of an op that a batch made."""
    raise NotImplementedError(op.name, dtype)
