"""The backend that the core carries: every op's own body under NumPy, in the call's dtype.

It ranks last and is slow on purpose.  It makes the core work alone, and is what others fall back to.
"""

from typing import Any, Literal

import numpy as np

from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.ops.evaluate import evaluate

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class ReferenceBackend:
    """NumPy, one call a node."""

    name = "reference"
    kind: Literal["cpu", "gpu"] = "cpu"
    accuracy = Accuracy()

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("NumPy"),))

    def supports(self, call: Call) -> Reject | None:
        return None if call.dtype in FLOATS else Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")

    def kernel(self, call: Call) -> Kernel:
        return _structured(call) if call.op.structured else _program(call)

    def rates(self, call: Call) -> Rates:
        """As measured on one core, rounded: NumPy's speed, but an array made for every node of a program.

        A product of two operands is one call of BLAS; other sums of products are several calls.
        """
        if call.op.structured:
            product = call.op.chain and call.op.shapes is None and len(call.op.operands) == 2
            launch = 2e-5 if call.op.chain and not product else 6e-6
            return Rates(launch, (2e11 if product else 3e10) / call.dtype.itemsize, 6e10 if product else 2e10)
        nodes = call.op.program(call.layout, **dict(call.static)).nodes
        return Rates(12e-6 + 1e-6 * len(nodes), 2e10 / call.dtype.itemsize, 1.2e10 if call.sizes[0] >= 23 else 5e10)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.empty(shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        return x

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return np.asarray(x)
        np.copyto(out, x)
        return out

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


def agree(operands: tuple[tuple[str, str], ...], arrays: tuple[Any, ...]) -> bool:
    """Whether the arrays have the canonical shapes of one call: equal `e`, and `w`, `r` that fit them."""
    shapes = {kind: np.shape(a) for (_, kind), a in zip(operands, arrays, strict=True)}
    whole = shapes.get("e") or (*shapes.get("r", ()), *shapes.get("w", ()))
    expected = {"e": whole, "w": whole[-1:], "r": whole[:-1], "u": ()}
    return all(np.shape(a) == expected[kind] for (_, kind), a in zip(operands, arrays, strict=True))


def _typed(dtypes: list[np.dtype[Any]], arrays: tuple[Any, ...]) -> bool:
    return all(type(a) is np.ndarray and a.dtype == d for d, a in zip(dtypes, arrays, strict=True))


def _status(results: tuple[Any, ...]) -> int:
    nan = any(np.isnan(r).any() for r in results if np.asarray(r).dtype.kind == "f")
    inf = any(np.isinf(r).any() for r in results if np.asarray(r).dtype.kind == "f")
    return nan * 1 | inf * 2


def _program(call: Call) -> Kernel:
    program = call.op.program(call.layout, **dict(call.static))
    operands, params = len(program.operands), len(program.params)

    dtypes = [np.dtype(np.int64) if spec.index else call.dtype for spec in call.op.signature.outputs]

    def kernel(*args: Any) -> int:
        outs = args[operands + params :]
        given = [call.dtype] * operands
        if (
            not agree(program.operands, args[:operands])
            or not _typed(given, args[:operands])
            or not _typed(dtypes, outs)
        ):
            return -1
        results = evaluate(program, args[:operands], args[operands : operands + params], call.dtype)
        for out, result in zip(outs, results, strict=True):
            if out.size != result.size:
                return -1
        for out, result in zip(outs, results, strict=True):
            out[...] = result.reshape(out.shape)
        return _status(results) if call.guarded else 0

    return kernel


def _structured(call: Call) -> Kernel:
    op = call.op
    static = dict(call.static)
    operands, symbolic = len(op.operands), op.symbolic
    given = [np.dtype(np.int64) if spec.index else call.dtype for spec in op.signature.inputs]
    dtypes = [np.dtype(np.int64) if spec.index else call.dtype for spec in op.signature.outputs]

    def kernel(*args: Any) -> int:
        params = dict(zip(symbolic, args[operands:], strict=False))
        outs = args[operands + len(symbolic) :]
        if not _typed(given, args[:operands]) or not _typed(dtypes, outs):
            return -1
        with np.errstate(all="ignore"):
            result = op.body(*args[:operands], **params, **static)
        results = result if isinstance(result, tuple) else (result,)
        for out, value in zip(outs, results, strict=True):
            if out.shape != np.shape(value):
                return -1
        for out, value in zip(outs, results, strict=True):
            out[...] = value
        return _status(results) if call.guarded else 0

    return kernel
