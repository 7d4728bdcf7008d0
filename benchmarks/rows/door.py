"""Whole calls through compiled entries against NumPy's: small arrays, where what surrounds the kernel counts most.

A figure is our time over NumPy's, "beyond the kernel" the call with `out=` minus the same machine code called by
machine code.  The time of a call that does nothing is taken off each: the loop's 16 ns would be half of ours.
"""

import ctypes
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import trueno

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan, text
from benchmarks.timing import OURS, Thunk, bind, fastest, median, race

NUMPY = "numpy"
BEYOND = "beyond the kernel"
RATIOS: dict[tuple[str, int], float] = {
    ("add, out=", 10): 0.16, ("add, out=", 1_024): 0.25, ("add", 10): 0.35,
    ("dot", 10): 0.15, ("dot", 1_024): 0.25, ("sum", 10): 0.15, ("sum", 1_024): 0.25,
    ("a Python number", 1_024): 0.4, ("three dimensions", 1_024): 0.4, ("a matrix and a row", 1_024): 0.4,
    ("unpickled arrays", 1_024): 0.4, ("strided", 1_024): 2.0, ("strided, out=", 1_024): 2.0,
    ("Fortran order, out=", 1_024): 2.0, ("axis=0", 1_024): 2.0,
}  # fmt: skip
"""What is called on how many elements, and the share of NumPy's time that it may take."""
BEYOND_S = 35e-9
TENSOR = "softmax of a tensor, beyond that of an array"
TENSOR_S = 2e-6
N = 1_024
TIMES = 10_000


def cells(plan: Plan) -> Iterator[Cell]:
    for name, n in RATIOS:
        yield Cell("door", name, text((n,)), partial(_ratio, name, n, plan))
    yield Cell("door", BEYOND, text((N,)), partial(_beyond, plan))
    yield Cell("door", TENSOR, text((N,)), partial(_tensor, plan))


def _arrays(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random(n, np.float32), rng.random(n, np.float32)


def _calls(name: str, n: int) -> dict[str, Thunk]:
    """Our call and NumPy's."""
    x, y = _arrays(n)
    pair: Callable[..., dict[str, Thunk]] = lambda ours, theirs, *args, **given: {  # noqa: E731
        OURS: bind(ours, *args, **given), NUMPY: bind(theirs, *args, **given)
    }  # fmt: skip
    match name:
        case "add, out=":
            return pair(trueno.add, np.add, x, y, out=np.empty_like(x))
        case "dot" | "sum":
            return pair(getattr(trueno, name), getattr(np, name), *((x, y) if name == "dot" else (x,)))
        case "a Python number":
            return pair(trueno.mul, np.multiply, x, 2.0)
        case "three dimensions":
            return pair(trueno.add, np.add, x.reshape(4, 16, -1), y.reshape(4, 16, -1))
        case "a matrix and a row":
            return pair(trueno.add, np.add, x.reshape(32, -1), y[:32].copy())
        case "strided":
            return pair(trueno.add, np.add, *(np.repeat(a, 2)[::2] for a in (x, y)))
        case "strided, out=":
            return pair(trueno.add, np.add, np.repeat(x, 2)[::2], y, out=np.empty_like(x))
        case "Fortran order, out=":
            square, other = x.reshape(32, -1), y.reshape(32, -1)
            return pair(trueno.add, np.add, square.T, other, out=np.empty_like(square))
        case "axis=0":
            return pair(trueno.sum, np.sum, x.reshape(32, -1), axis=0, out=y[:32])
        case "unpickled arrays":  # their dtype is equal to float32, and another object
            return pair(trueno.add, np.add, *pickle.loads(pickle.dumps((x, y))))
    return pair(trueno.add, np.add, x, y)


def _ratio(name: str, n: int, plan: Plan) -> list[Record]:
    with trueno.use("simd"):
        calls = _calls(name, n)
        problem = "" if np.allclose(calls[OURS](), calls[NUMPY](), rtol=1e-5) else "another result than NumPy's"
        for _ in range(3):
            calls[OURS]()
        calls["nothing"] = _nothing
        runs = race(calls, plan.budget, tuple(calls))
    ratios = [(run[OURS] - run["nothing"]) / (run[NUMPY] - run["nothing"]) for run in runs]
    return [Record("door", name, text((n,)), "×", median(ratios), NUMPY, ratios, fastest(runs), "", problem)]


def _beyond(plan: Plan) -> list[Record]:
    x, y = _arrays(N)
    out = np.empty_like(x)
    with trueno.use("simd"):
        for _ in range(3):
            trueno.add(x, y, out=out)
        kernel = _in_a_loop(trueno.add.plan(x, y).code, x, y, out)  # type: ignore[attr-defined]
        calls = {"call": bind(trueno.add, x, y, out=out), "kernel": kernel, "nothing": _nothing}
        best = fastest(race(calls, plan.budget, tuple(calls)))
    best["kernel"] /= TIMES
    return [Record("door", BEYOND, text((N,)), "s", best["call"] - best["kernel"] - best["nothing"], seconds=best)]


def _tensor(plan: Plan) -> list[Record]:
    """What the way of a PyTorch tensor in and out costs: the same numbers, in turns."""
    try:
        import torch
    except ImportError:
        return [Record("door", TENSOR, text((N,)), "s", None, problem="PyTorch is not installed")]
    x, _ = _arrays(N)
    t = torch.from_numpy(x)
    with trueno.use("simd"):
        calls = {"tensor": bind(trueno.softmax, t), "array": bind(trueno.softmax, x)}
        for call in calls.values():
            for _ in range(3):
                call()
        best = fastest(race(calls, plan.budget, tuple(calls)))
    return [Record("door", TENSOR, text((N,)), "s", best["tensor"] - best["array"], seconds=best)]


def _nothing() -> None: ...


def _in_a_loop(code: int, *arrays: Any) -> Thunk:
    """The kernel of an addition, called so many times by machine code."""
    import llvmlite.binding as llvm
    from trueno_simd.door.text import Function
    from trueno_simd.llvm import convention

    f = Function("define void @repeat(ptr %code, ptr %x, ptr %y, ptr %out, i64 %n, i64 %times)")
    answer, error, i = f.slot("i64"), f.slot("ptr"), f.slot("i64", "0")
    f.goto("again")
    f.place("again")
    parts = [part for name in ("%x", "%y", "%out") for part in convention.array(f, name, "4", ["%n"])]
    f(f"call i32 %code({', '.join([f'ptr {answer}', f'ptr {error}', *parts])})")
    more = f(f"add i64 {f.load('i64', i)}, 1")
    f.store("i64", more, i)
    f.branch(f(f"icmp ult i64 {more}, %times"), "again", "done")
    f.place("done")
    f.do("ret void")
    target = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(f.text(), llvm.create_context()), target)
    engine.finalize_object()
    repeat = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64)(
        engine.get_function_address("repeat")
    )
    repeat.engine = engine  # type: ignore[attr-defined]  # its code lives as long
    return bind(repeat, code, *(a.ctypes.data for a in arrays), arrays[0].size, TIMES)
