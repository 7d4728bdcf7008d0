"""A product and its tail in one kernel: the product is compiled once, the tail is printed.

    finish    the row program over a block of the result, called by address on the thread that made the block
    kernel    what Python calls: checks, packs what `finish` reads, and calls the product with both addresses

The product is in the first result before it is finished; each element is read before any result of it is written.
"""

from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numba import types
from trueno.backend import Call, FusedOp, Kernel, lower

from trueno_simd.codecache import modules
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import PRODUCTS
from trueno_simd.kernels.matmul import ELSEWHERE
from trueno_simd.kernels.operands import NONE, resolved
from trueno_simd.llvm import isa
from trueno_simd.rows.printer import Lines, Printer, indent
from trueno_simd.rows.rowprogram import KEPT
from trueno_simd.rows.variant import Variant


class TailPrinter(Printer):
    """Prints what follows one product."""

    span = ("left", "left + width")

    def __init__(self, op: FusedOp, dtype: str) -> None:
        title = f"{op.name}: {op.signature.text}, {op.kinds}, {dtype}.  {op.doc}"
        super().__init__(lower(op.epilogue.program(op.kinds)), dtype, isa.block(dtype), Variant(2, False, (), title))
        self.product, *self.beside = self.kinds
        self.slots[self.product] = self.slots["out0"]  # one memory, so one slot
        self.read = [a for a in self.arrays if a != self.product]

    def heading(self) -> str:
        return f'"""{self.variant.title}\n\n{self.program.text}\n"""\n\n'

    def finish_types(self) -> str:
        kinds = ["int64", *(self.type_of(v) for v in [*self.read, *self.params])]
        return f"types.Tuple(({', '.join(kinds)},))"

    def unpacked(self) -> Lines:
        """What `finish` reads."""
        return [f"{', '.join(['n', *self.read, *self.params])} = given(args)"]

    def finish(self) -> str:
        body = self.unpacked()
        body += [f"{self.product} = out0"] if self.product in self.arrays else []
        body += ["for r in range(first, first + height):", *indent(self.row(False)), "return 0"]
        head = [f"given = unpack({self.finish_types()})", "", "", "@outer"]
        return "\n".join([*head, "def finish(args, first, height, left, width):", *indent(body)])


class EpiloguePrinter(TailPrinter):
    """Prints the module of one product with one epilogue."""

    def __init__(self, op: FusedOp, dtype: str, rank: int) -> None:
        super().__init__(op, dtype)
        self.head = PRODUCTS[op.head.name]
        self.axes = [a or rank for a in self.head.axes]
        self.operands = [f"operand{i}" for i in range(len(op.head.operands))]

    def text(self) -> str:
        imports = self.imports() + "\n".join(self.constants())
        more = [
            "from trueno_simd.llvm.calls import finish_address",
            "from trueno_simd.rows.finish import over_all",
            *(
                f"from {f.py_func.__module__} import {f.py_func.__name__} as {name}"
                for name, f in (("fits", self.head.fits), ("run", self.head.run))
            ),
            "",
        ]
        return "\n\n\n".join([self.heading() + "\n".join(more) + imports, self.finish(), self.kernel()]) + "\n"

    def kernel(self) -> str:
        scalar, (*operand_axes, whole) = f"types.{self.dtype}", self.axes
        dims = {"e": whole, "w": 1, "r": whole - 1, "u": 0}
        ranks = [*operand_axes, *(dims[self.kinds[name]] for name in self.beside)]
        kinds = [f'types.Array({scalar}, {rank}, "C", readonly=True)' for rank in ranks]
        kinds += ["float64"] * len(self.params) + [f'types.Array({scalar}, {whole}, "C")'] * len(self.outs)
        kinds += ["int64", "types.Array(types.uint8, 1, 'C')"]
        operands = ", ".join(f"{name}_" for name in self.operands)
        names = [f"{name}_" for name in [*self.operands, *self.beside, *self.params, *self.outs]]
        lines = [
            "n = out0_.shape[-1]",
            "if (",
            *indent([f"{'or ' if i else ''}{wrong}" for i, wrong in enumerate(self.wrong())]),
            "):",
            "    return -1",
            *(f"{p} = T({p}_)" for p in self.params),
            *(f"{a} = pointer({a}_)" for a in self.read),
            f"more = pack(({', '.join(['n', *self.read, *self.params])},))",
            "if multiply_at == 0:",
            "    return over_all(finish_address(finish), more, out0_.size // max(n, 1), n)",
            f"return run(multiply_at, {operands}, out0_, scratch, finish_address(finish), more)",
        ]
        head = [
            self.entry(kinds),
            f"def kernel({', '.join([*names, 'multiply_at', 'scratch'])}):",
        ]
        return "\n".join([*head, *indent(lines)])

    def wrong(self) -> Lines:
        """Conditions under which the kernel refuses."""
        *_, whole = self.axes
        tests = [f"not fits({''.join(f'{o}_, ' for o in self.operands)}out0_)"]
        for name, kind in [*((b, self.kinds[b]) for b in self.beside), *((o, "e") for o in self.outs if o != "out0")]:
            if kind in ("e", "r"):
                tests += [f"{name}_.shape[{i}] != out0_.shape[{i}]" for i in range(whole if kind == "e" else whole - 1)]
            elif kind == "w":
                tests.append(f"{name}_.shape[0] != n")
        for k, out in enumerate(self.outs):
            others = [*self.beside, *list(self.outs)[:k], *(self.operands if k else [])]
            tests += [f"not apart({out}_, {other}_)" for other in others]
        return tests


def printed(op: FusedOp, dtype: str, rank: int) -> str:
    """Source of the module that holds one kernel."""
    return EpiloguePrinter(op, dtype, rank).text()


@lru_cache(maxsize=KEPT)
def _compiled(op: FusedOp, dtype: str, rank: int) -> Any:
    text = printed(op, dtype, rank)
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return modules.module(f"k_{op.name}_{dtype}_{digest}", text).kernel


@cache
def _address(name: str, dtype: str) -> Any:
    return kernel_entry(types.int64())(PRODUCTS[name].address(dtype))


def with_epilogue(call: Call) -> Kernel:
    """The kernel of a product with an epilogue."""
    op: FusedOp = call.op
    head = op.head
    finished, multiply_at = _compiled(op, call.dtype.name, call.rank), _address(head.name, call.dtype.name)()
    first = len(call.op.operands) + len(call.op.symbolic)

    def kernel(*args: Any) -> int:
        need: int = finished(*args, multiply_at, NONE)
        if need > 0:
            need = finished(*args, multiply_at, np.empty(need, np.uint8))
        if need != ELSEWHERE:
            return need
        np.matmul(args[0], args[1], out=args[first])
        return finished(*args, 0, NONE)  # type: ignore[no-any-return]

    kernel.resolve = lambda *args: resolved(finished, *args, multiply_at)  # type: ignore[attr-defined]
    return kernel
