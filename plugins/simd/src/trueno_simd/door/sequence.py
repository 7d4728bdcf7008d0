"""Kernels with their arguments, one after the other, without Python between them.

A kernel and its arguments are a record: the address of its machine code, then each argument in the parts in which
Numba's convention passes it (`trueno_simd.llvm.convention`).  For each list of arguments there is one small function
that takes a record apart and calls the kernel; another goes through a table of such functions and records, and stops at
the first kernel that does not return 0.  Both are compiled once, as entries are.

A kernel says with `resolve` what a call comes down to, if that is not its own machine code: `resolve(*arguments)`
returns the compiled kernel, its arguments, and how many bytes of scratch come behind them, or None if there is no
such kernel for these arguments.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from trueno.backend import Kernel, ieee

from trueno_simd.door import build
from trueno_simd.door.text import Function
from trueno_simd.llvm import convention

Arguments = tuple[Any, ...]


def sequence(calls: Sequence[tuple[Kernel, Arguments] | None]) -> Callable[[int, int], int] | None:
    """The function that runs these calls, as `trueno.backend` describes it; None if it could run none of them."""
    resolved = [None if call is None else resolve(*call) for call in calls]
    scratch = np.empty(max((r[2] for r in resolved if r), default=0), np.uint8)
    kept: list[Any] = [scratch, calls]  # a kernel's words may hold addresses of its arrays
    table = np.zeros((len(calls), 2), np.int64)
    for at, call in enumerate(resolved):
        if call is None:
            continue
        kernel, arguments, need = call
        address, kinds = kernel.passed
        record = _record(address, kinds, (*arguments, scratch) if need else arguments)
        if record is None:
            continue
        table[at] = _step(kinds), record.ctypes.data
        kept += [arguments, record]
    if not table.any():
        return None
    go, start = _loop(), table.ctypes.data

    def run(first: int, last: int) -> int:
        with ieee():  # Numba's wrapper of a kernel sets it, and is not here
            return go(start, first, last)  # type: ignore[no-any-return]

    run.kept = (table, kept)  # type: ignore[attr-defined]  # what the table points to
    return run


def resolve(kernel: Kernel, arguments: Arguments) -> tuple[Any, Arguments, int] | None:
    """The compiled kernel to which a call comes down, its arguments, and the scratch behind them."""
    deeper = getattr(kernel, "resolve", None)
    call = deeper(*arguments) if deeper is not None else (kernel, arguments, 0)
    if call is None or not getattr(call[0], "passed", (0,))[0]:
        return None
    return call  # type: ignore[no-any-return]


def _record(address: int, kinds: tuple[str, ...], arguments: Arguments) -> Any:
    """The record of a call; None if an argument is not exactly what the kernel takes, as Numba's wrapper would find."""
    parts: list[int] = [address]
    if len(kinds) != len(arguments):
        return None
    for kind, x in zip(kinds, arguments, strict=True):
        if kind == convention.NUMBER:
            parts.append(int(np.float64(x).view(np.int64)))
        elif kind == convention.WHOLE:
            parts.append(int(x))
        elif not takes(kind, x):
            return None
        else:
            parts += [x.size, x.itemsize, x.ctypes.data, *x.shape, *x.strides]
    return np.array(parts, np.int64)


def takes(kind: str, x: Any) -> bool:
    """Whether an argument is exactly an array of this kind, as Numba's wrapper would find."""
    dtype, rank, use = kind.split()
    return (
        type(x) is np.ndarray
        and x.dtype == dtype
        and x.dtype.isnative
        and x.ndim == int(rank)
        and x.flags.c_contiguous
        and x.flags.aligned
        and (use == "in" or x.flags.writeable)
    )


@cache
def _step(kinds: tuple[str, ...]) -> int:
    """The address of the function that calls a kernel with these arguments from a record."""
    parts = tuple(kind if kind in (convention.NUMBER, convention.WHOLE) else int(kind.split()[1]) for kind in kinds)
    return _address("step", parts, lambda: _step_text(parts))


def _step_text(parts: tuple[str | int, ...]) -> str:
    f = Function("define i64 @step(ptr %record)")
    arguments, at = [], 1
    for part in parts:
        if isinstance(part, str):
            kind = "double" if part == convention.NUMBER else "i64"
            arguments.append(f"{kind} {f.load(kind, '%record', 8 * at)}")
            at += 1
            continue
        kinds = ["i64", "i64", "ptr", *["i64"] * 2 * part]
        arguments += ["ptr null", "ptr null"]
        arguments += [f"{kind} {f.load(kind, '%record', 8 * (at + i))}" for i, kind in enumerate(kinds)]
        at += len(kinds)
    result, exception = f.slot("i64"), f.slot("ptr")
    code = f.load("ptr", "%record")
    raised = f(f"call i32 {code}({', '.join([f'ptr {result}', f'ptr {exception}', *arguments])})")
    fine, status = f.same("i32", raised, 0), f.load("i64", result)
    f.do(f"ret i64 {f(f'select i1 {fine}, i64 {status}, i64 -1')}")
    return f.text()


@cache
def _loop() -> Any:
    address = _address("loop", (), lambda: _LOOP)
    return ctypes.PYFUNCTYPE(*[ctypes.c_int64] * 4)(address)  # holds the GIL, as callers of kernels do


_LOOP = """
define i64 @loop(ptr %table, i64 %first, i64 %last) {
start:
  br label %next
next:
  %i = phi i64 [ %first, %start ], [ %after, %fine ]
  %left = icmp slt i64 %i, %last
  br i1 %left, label %look, label %done
look:
  %entry = getelementptr [2 x ptr], ptr %table, i64 %i
  %step = load ptr, ptr %entry
  %place = getelementptr ptr, ptr %entry, i64 1
  %record = load ptr, ptr %place
  %none = icmp eq ptr %step, null
  br i1 %none, label %done, label %run
run:
  %status = call i64 %step(ptr %record)
  %ok = icmp eq i64 %status, 0
  br i1 %ok, label %fine, label %done
fine:
  %after = add i64 %i, 1
  br label %next
done:
  ret i64 %i
}
"""


def _address(symbol: str, facts: object, text: Callable[[], str]) -> int:
    code = build.object_code((symbol, facts), text)
    assert code is not None
    return int(build.mapped((code,)).get_function_address(symbol))
