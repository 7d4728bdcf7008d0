"""Every row op from one table of node kinds, and matrix ops by name: PyTorch computes, NumPy's arrays hold.

A kernel computes into tensors of its own and copies into the results at the end, so what raises has written nothing.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from trueno.backend import TABLE, Accuracy, Call, Device, Kernel, Probe, Rates, Reject
from trueno.errors import ShapeError

DTYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}
NAMED = """neg abs floor ceil trunc maximum minimum copysign where isnan isinf add sub mul div lt le gt ge eq ne
sqrt rsqrt exp exp2 expm1 log log2 log10 log1p tanh erf sin cos atan pow"""  # as PyTorch names them too
ELEMENT: dict[str, Callable[..., Tensor]] = {kind: getattr(torch, kind) for kind in NAMED.split()} | {
    "rint": torch.round,  # halves to even
    "log1p_unit": torch.log1p,
    "fma": lambda x, y, z: torch.addcmul(z, x, y),
    **{kind: getattr(torch, f"logical_{kind}") for kind in ("and", "or", "not")},
}
FOLD: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin, "any": torch.any, "all": torch.all,
    "fsum": lambda x, axis, keep: x.sum(axis, keep, dtype=torch.float64).to(x.dtype),
    "argmax": torch.argmax, "argmin": torch.argmin,
}  # fmt: skip


def plain(x: np.ndarray[Any, Any]) -> bool:
    """Whether torch takes the array: writable, aligned, contiguous; an axis of 1 may have run backwards even so."""
    return x.flags.carray and min(x.strides, default=0) >= 0


def convolve2d(x: Tensor, kernel: Tensor, mode: str) -> Tensor:
    (p, q), result = kernel.shape[-2:], (*kernel.shape[:-3], -1)
    if mode == "same":
        x = torch.nn.functional.pad(x, ((q - 1) // 2, q // 2, (p - 1) // 2, p // 2))
    image, taps = (x[None], kernel) if x.ndim == 3 else (x[None, None], kernel[None, None])
    return torch.conv2d(image, taps).reshape(*result, x.shape[-1] - q + 1)


STRUCTURED: dict[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("matmul", "matvec", "vecmat", "batched_matmul"), torch.matmul),
    "transpose": torch.t, "outer": torch.outer, "convolve2d": convolve2d,
}  # fmt: skip


def interpreter(call: Call) -> Callable[..., list[Tensor]]:
    """Runs a row program with one torch call a node; values are [rows or 1, n or 1]."""
    program, dtype = call.op.program(call.layout, **dict(call.static)), DTYPES[call.dtype]
    shapes = {"e": (-1, 0), "w": (1, -1), "r": (-1, 1), "u": (1, 1)}

    def run(operands: list[Tensor], scalars: tuple[float, ...], whole: tuple[int, ...]) -> list[Tensor]:
        n, rows = whole[-1], whole[0] if len(whole) > 1 else 1
        held: dict[Any, Any] = dict(zip(program.params, scalars, strict=True))
        for (name, kind), x in zip(program.operands, operands, strict=True):
            held[name] = x.reshape([size or n for size in shapes[kind]])
        values: list[Tensor] = []
        for node in program.nodes:
            args = [values[a] for a in node.args]
            match node.kind:
                case "leaf":
                    values.append(held[node.value])
                case "param" | "const" | "count":
                    number = n if node.kind == "count" else held.get(node.value, node.value)
                    values.append(torch.full((1, 1), number, dtype=dtype))
                case "position" | "cast":
                    values.append((args[0] if args else torch.arange(n)[None]).to(dtype))
                case kind:
                    values.append(FOLD[kind](args[0].expand(-1, n), -1, True) if kind in FOLD else ELEMENT[kind](*args))
        return [values[o].expand(rows, n if program.nodes[o].space == "e" else 1) for o in program.outputs]

    return run


class TorchBackend:
    name = "torch"
    kind: Literal["cpu", "gpu"] = "cpu"
    accuracy = Accuracy(ulp={"sqrt": 1.0}, default=4.0, chain=280)
    """Its vector functions promise 1 ulp, square roots too; some combine two.  Sums climb 4 levels of 64 terms."""

    def probe(self, level: int) -> Probe:
        devices = (Device(f"PyTorch {torch.__version__}", torch.backends.cpu.get_cpu_capability().lower()),)
        x, y = np.ones(8), np.zeros(8)
        if level > 1 and (self.kernel(Call(TABLE["add"], x.dtype, "ee", 1, (4,)))(x, x, y) or (y != 2).any()):
            return Probe(False, "1 + 1 is not 2 under this PyTorch; reinstall torch", devices)
        return Probe(True, devices=devices)

    def supports(self, call: Call) -> Reject | None:
        if call.dtype not in DTYPES:
            return Reject("unsupported_dtype", f"{call.dtype}: float32 or float64")
        if call.op.structured:
            return None if call.op.name in STRUCTURED else Reject("unsupported_op", "PyTorch would need other code")
        if call.dtype == np.float64 and any(node.kind == "fsum" for node in call.op.program().nodes):
            return Reject("unsupported_dtype", "PyTorch adds in nothing wider than float64")
        return None

    def kernel(self, call: Call) -> Kernel:
        op, static, count = call.op, dict(call.static), len(call.op.operands)
        last, program = count + len(op.symbolic), None if op.structured else interpreter(call)
        kinds = [*call.layout, *("re"[op.over in (None, *spec.dims)] for spec in op.signature.outputs)]

        def kernel(*arguments: Any) -> int:
            arrays, scalars, outs = arguments[:count], arguments[count:last], arguments[last:]
            shapes = tuple(x.shape for x in arrays)
            by_kind = dict(zip(call.layout, shapes, strict=True))
            whole = by_kind.get("e") or (*by_kind.get("r", ()), *by_kind.get("w", ()))
            fits = {"e": whole, "w": whole[-1:], "r": whole[:-1], "u": ()}
            try:
                wanted = tuple(fits[k] for k in kinds) if program else (*shapes, *op.result_shapes(shapes, static))
            except ShapeError:
                return -1
            if (*shapes, *(y.shape for y in outs)) != wanted or (program and len(whole) != call.rank):
                return -1
            overlap = (np.may_share_memory(y, x) for k, y in enumerate(outs) for x in (*arrays, *outs[:k]))
            if not all(map(plain, outs)) or any(overlap):
                return -1
            tensors = [torch.from_numpy(x if plain(x) else x.copy()) for x in arrays]
            results = program(tensors, scalars, whole) if program else [STRUCTURED[op.name](*tensors, **static)]
            for y, value in zip(outs, results, strict=True):
                torch.from_numpy(y).copy_(value.reshape(y.shape))
            floats = [v for v in results if call.guarded and v.is_floating_point()]
            return any(map(torch.any, map(torch.isnan, floats))) | any(map(torch.any, map(torch.isinf, floats))) << 1

        return kernel

    def rates(self, call: Call) -> Rates:
        steps = 1 if call.op.structured else sum(bool(node.args) for node in call.op.program().nodes)
        return Rates(launch_s=1e-5 + 2e-6 * steps, flops=5e10, bytes=5e10 / steps)  # each step crosses memory

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype)

    def to_device(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x

    def to_host(self, x: np.ndarray[Any, Any], out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        return x if out is None else np.positive(x, out)

    def synchronize(self) -> None: ...

    def close(self) -> None: ...
