"""Calls of an op's public function on the judged backend, and the messages for failures."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

import trueno
from trueno.discovery import registry
from trueno.discovery.protocol import Call, Reject
from trueno.dispatch.canonical import canonical
from trueno.dispatch.fallback import words
from trueno.dispatch.half import WIDE, is_half
from trueno.errors import KernelError
from trueno.ops.op import Op
from trueno.testing.case import Case
from trueno.testing.expected import split


@dataclass
class Report:
    """The outcome of one op on one backend in one dtype."""

    op: str
    backend: str
    dtype: str
    cases: int = 0
    size: int = 0
    worst: float = 0.0
    free: float = 0.0
    declined: int = 0  # cases whose key `supports` rejects
    layouts: list[str] = field(default_factory=list)  # those that it rejects for their layout


def invoke(op: Op, operands: tuple[Any, ...], kwargs: dict[str, Any], backend: str, out: Any = None) -> tuple[Any, ...]:
    """The op's public function on one backend; always a tuple of results.  Declined if the backend may reject it."""
    try:
        with trueno.use(backend):
            result = getattr(trueno, op.name)(*operands, **kwargs, out=out)
    except KernelError:
        call = _key(op, operands, kwargs)
        reject = registry.load(backend).supports(call)
        if reject is not None:
            raise Declined(call, reject) from None
        raise
    return result if isinstance(result, tuple) else (result,)


def takes(op: Op, case: Case, backend: str) -> bool:
    """Whether the backend takes a case: it may reject its format, or another static choice."""
    return registry.load(backend).supports(_key(op, case.operands, case.kwargs)) is None


class Declined(Exception):
    """The backend takes the op, but rejects the key of this call: another size, layout or static choice."""

    def __init__(self, call: Call, reject: Reject) -> None:
        super().__init__(call, reject)
        self.call, self.reject = call, reject


def _key(op: Op, operands: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    arrays = [np.asarray(x) for x in operands]
    static = tuple(split(op, kwargs)[1].items())
    # Ops on blocks need float32, and 16-bit floats are widened to it.
    dtype = next((a.dtype for a in arrays if a.dtype.kind == "f" and not is_half(a.dtype)), WIDE)
    if op.structured:
        layout, rank, sizes = op.layout, arrays[0].ndim, tuple(a.size.bit_length() for a in arrays)
    else:
        form = canonical(op.name, tuple(a.shape for a in arrays))
        layout, rank, sizes = form.layout, form.rank, ((form.rows * form.n).bit_length(),)
    return Call(op, dtype, layout, rank, sizes, static)


@contextmanager
def strict_warnings() -> Iterator[None]:
    """NumPy's warnings in a kernel are errors: the caller of an op would see them and could do nothing."""
    with catch_warnings():
        simplefilter("error", RuntimeWarning)
        yield


def explained(error: BaseException) -> str:
    """`raised …`, or that it warned, and what to do about it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RuntimeWarning):
            return f'warned users of "{cause}"; compute inside `with np.errstate(all="ignore")`'
        cause = cause.__cause__ or cause.__context__
    return f"raised {words(error)}"


@contextmanager
def told(case: Case, backend: str, seed: int, report: Report | None = None) -> Iterator[None]:
    """Errors inside name the case, and how to repeat it; declined cases are counted separately."""
    try:
        with strict_warnings():
            yield
    except Declined as error:
        if report is not None:
            report.cases, report.declined = report.cases - 1, report.declined + 1
            if error.reject.code == "unsupported_layout" and error.call.layout not in report.layouts:
                report.layouts.append(error.call.layout)
    except Exception as error:
        where = f"{backend}: {case}, seed {seed}"
        if isinstance(error, AssertionError):
            raise AssertionError(f"{where}: {error}") from None
        raise AssertionError(f"{where} {explained(error)}") from error
