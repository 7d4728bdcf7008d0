"""The core's own backend: every op's own body under NumPy, in the call's dtype.

It ranks last and is slow on purpose.  It makes the core work alone, and is the fallback of the others.
"""

from typing import Any, Literal

import numpy as np

from trueno.discovery.protocol import Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.errors import KernelError, ShapeError
from trueno.formats.lz4 import missing
from trueno.ops.op import FusedOp
from trueno.programs.evaluate import evaluate

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class ReferenceBackend:
    """NumPy, one call per node."""

    name = "reference"
    kind: Literal["cpu", "gpu"] = "cpu"
    accuracy = Accuracy()

    def probe(self, level: int) -> Probe:
        return Probe(True, devices=(Device("NumPy"),))

    def supports(self, call: Call) -> Reject | None:
        if call.op.name in ("lz4_compress", "lz4_decompress") and (problem := missing()):
            return Reject("unsupported_op", problem)
        return None if call.dtype in FLOATS else Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")

    def kernel(self, call: Call) -> Kernel:
        return _structured(call) if call.op.structured else _program(call)

    def rates(self, call: Call) -> Rates:
        """As measured on one core, rounded: NumPy's speed, but with a new array for every node of a program.

        A product of two operands is one call of BLAS; other sums of products are several calls.
        """
        if call.op.structured:
            op = call.op.table_op
            product = op.chain and op.shapes is None and len(op.operands) == 2
            if op.quantized:  # decoded, or searched for, in some ten passes over arrays of the matrix's size
                return Rates(1e-4, 4e8 if op.chain is None and op.check else 1e10, 4e7)
            if op.family == "attention":  # some thirty calls of NumPy; sines, or exponentials and two products
                return Rates(7e-5, (3e9 if op.chain else 3e10) / call.dtype.itemsize, 1e10)
            if op.family == "compression":  # page by page, and sequence by sequence in Python where blocks are read
                return Rates(2e-5, 1e9, {"lz4_pack": 1e9, "lz4_compress": 3e8}.get(op.name, 1e7))
            launch = 2e-5 if op.chain and not product else 6e-6
            if isinstance(call.op, FusedOp):
                launch += 6e-6 + 1e-6 * len(call.op.epilogue.program(call.op.kinds).nodes)
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


def agree(call: Call, arrays: tuple[Any, ...]) -> bool:
    """Whether operands and results of a row program have the canonical shapes of one call of this key."""
    op = call.op
    along = ("e" if op.over is None or op.over in o.dims else "r" for o in op.signature.outputs)
    shapes = [(kind, np.shape(a)) for kind, a in zip((*call.layout, *along), arrays, strict=True)]
    shape_of = dict(shapes)
    whole = shape_of.get("e") or (*shape_of.get("r", ()), *shape_of.get("w", ()))
    expected = {"e": whole, "w": whole[-1:], "r": whole[:-1], "u": ()}
    return len(whole) == call.rank and all(shape == expected[kind] for kind, shape in shapes)


def _writable(outs: tuple[Any, ...]) -> bool:
    """Whether every result can be written, and no two share memory: so either all of them are written or none."""
    apart = not any(np.may_share_memory(a, b) for i, a in enumerate(outs) for b in outs[:i])
    return apart and all(a.flags.writeable for a in outs)


def _typed(dtypes: list[np.dtype[Any]], arrays: tuple[Any, ...]) -> bool:
    return all(type(a) is np.ndarray and a.dtype == d for d, a in zip(dtypes, arrays, strict=True))


def _status(results: tuple[Any, ...]) -> int:
    nan = any(np.isnan(r).any() for r in results if np.asarray(r).dtype.kind == "f")
    inf = any(np.isinf(r).any() for r in results if np.asarray(r).dtype.kind == "f")
    return nan * 1 | inf * 2


def _program(call: Call) -> Kernel:
    program = call.op.program(call.layout, **dict(call.static))
    operands, params = len(program.operands), len(program.params)
    operand_dtypes = [call.dtype] * operands
    dtypes = [spec.holds(call.dtype) for spec in call.op.signature.outputs]

    def kernel(*args: Any) -> int:
        arrays, outs = args[:operands], args[operands + params :]
        if (
            not _typed([*operand_dtypes, *dtypes], (*arrays, *outs))
            or not agree(call, (*arrays, *outs))
            or not _writable(outs)
        ):
            return -1
        results = evaluate(program, arrays, args[operands : operands + params], call.dtype)
        for out, result in zip(outs, results, strict=True):
            out[...] = result.reshape(out.shape)
        return _status(results) if call.guarded else 0

    return kernel


def _structured(call: Call) -> Kernel:
    op = call.op
    static = dict(call.static)
    operands, symbolic = len(op.operands), op.symbolic
    given = [spec.holds(call.dtype) for spec in op.signature.inputs]
    dtypes = [spec.holds(call.dtype) for spec in op.signature.outputs]

    def kernel(*args: Any) -> int:
        arrays, params = args[:operands], dict(zip(symbolic, args[operands:], strict=False))
        outs = args[operands + len(symbolic) :]
        if not _typed([*given, *dtypes], (*arrays, *outs)) or not _writable(outs):
            return -1
        try:
            shapes = op.result_shapes(tuple(a.shape for a in arrays), static)
        except ShapeError:
            return -1
        if shapes != tuple(out.shape for out in outs):
            return -1
        try:
            with np.errstate(all="ignore"):
                result = op.body(*arrays, **params, **static)
        except np.linalg.LinAlgError as error:
            raise KernelError(f"{op.name}: {error}; scale {op.operands[0]} towards 1 and the result back") from error
        results = result if isinstance(result, tuple) else (result,)
        for out, value in zip(outs, results, strict=True):
            out[...] = value
        return _status(results) if call.guarded else 0

    return kernel
