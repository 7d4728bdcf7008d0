"""Quantized products with what follows them, and several of one input: rows of all of them are one parallel region.

    finish    the row program that follows a product, over some rows of the result, called by address
    kernel    Python's: it turns a call into a table of words (`trueno_simd.kernels.quant.together`) and runs that

The table holds addresses, so it is made for given arrays: a batch does so once (`resolve`).  A product with a tail is
in the first result before it is finished.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from trueno.backend import Call, FusedOp, Kernel, Member, SharedOp

from trueno_simd.codecache import modules
from trueno_simd.kernels.operands import NONE
from trueno_simd.kernels.quant.together import Product, Rows, compiled, job_of, resolved, rows_of
from trueno_simd.rows.epilogue import TailPrinter
from trueno_simd.rows.printer import Lines
from trueno_simd.rows.rowprogram import KEPT

Array = np.ndarray[Any, Any]
W, X = 0, 1  # operands of quant_matvec
LINE = 64
MOST_KNOWN = 256
"""Calls whose words a kernel remembers: what a guard or a trace looks at has no sequence, and words take 50 us."""


class WordsPrinter(TailPrinter):
    """Prints the module of one tail, which reads all that it is given as words of 8 bytes."""

    def text(self) -> str:
        more = "from trueno_simd.llvm.calls import finish_address\n"
        place = "\n".join([self.entry([]), "def kernel():", "    return finish_address(finish)"])
        head = self.heading() + more + self.imports() + "\n".join(self.constants())
        return "\n\n\n".join([head, self.finish(), place]) + "\n"

    def type_of(self, name: str) -> str:
        return "float64" if name in self.params else super().type_of(name)

    def unpacked(self) -> Lines:
        names = ["n", *self.read, *(f"{p}_" for p in self.params)]
        return [f"{', '.join(names)} = given(args)", *(f"{p} = T({p}_)" for p in self.params)]


class Tail(NamedTuple):
    """What follows a product: the address of the compiled function, the arrays that it reads, by name, and kinds."""

    address: int
    reads: tuple[str, ...]
    kinds: str


@lru_cache(maxsize=KEPT)
def tail(op: FusedOp) -> Tail:
    printer = WordsPrinter(op, "float32")
    text = printer.text()
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    place = modules.module(f"k_{op.epilogue.name}_tail_{digest}", text).kernel
    return Tail(int(place()), tuple(printer.read), op.kinds[1:])


class Part(NamedTuple):
    """One product: its rows, its tail, where its operands and results are, and which group computes it.

    sources: of w, x and what its tail reads, as in `Member`.  results: of each result, its number in the whole; -1 for
    one that is not kept.
    """

    rows: Rows
    tail: Tail | None
    sources: tuple[tuple[str, int], ...]
    results: tuple[int, ...]
    params: slice
    group: int


def parts_of(call: Call) -> list[Part]:
    """The products of a call, in order."""
    op: Any = call.op
    if isinstance(op, SharedOp):
        members, kept = op.members, op.kept
    else:
        operands = tuple(("operand", i) for i in range(len(op.operands)))
        members, kept = (Member(op, call.static, operands),), tuple((0, k) for k in range(len(op.signature.outputs)))
    parts: list[Part] = []
    first = 0
    for at, member in enumerate(members):
        static, count = dict(member.static), len(member.op.symbolic)
        results = [kept.index((at, k)) if (at, k) in kept else -1 for k in range(len(member.op.signature.outputs))]
        read = [i for where, i in member.sources if where == "result"]
        group = parts[read[0]].group if read else at
        for i in read:  # all that it reads is computed on the same rows
            parts = [p._replace(group=group) if p.group == parts[i].group else p for p in parts]
        rows = rows_of(static["format"], static["activations"])
        follows = tail(member.op) if isinstance(member.op, FusedOp) else None
        parts.append(Part(rows, follows, member.sources, tuple(results), slice(first, first + count), group))
        first += count
    return parts


def products(call: Call) -> Kernel:
    """The kernel of a quantized product with an epilogue, or of several that share their vector."""
    parts = parts_of(call)
    run = compiled()
    operands, results = len(call.op.operands), len(call.op.operands) + len(call.op.symbolic)
    known: dict[Any, tuple[tuple[Any, ...], Array, int]] = {}  # the words for arrays, which it does not keep alive

    def resolve(*args: Any) -> Any:
        arrays, outs = args[:operands], args[results:]
        if not _fit(parts, arrays, outs):
            return None
        return resolved(_shared(parts, arrays), _job(parts, arrays, args[operands:results], outs))

    def kernel(*args: Any) -> int:
        arrays, outs = (*args[:operands], *args[results:]), args[results:]
        key = (*map(id, arrays), *args[operands:results])
        refs, job, need = known.get(key, ((), NONE, 0))
        same = refs and all(r() is a for r, a in zip(refs, arrays, strict=True))
        if not same or not all(y.flags.writeable for y in outs):
            call = resolve(*args)
            if call is None:
                return -1
            _, (_, job), need = call
            known[key] = tuple(map(ref, arrays)), job, need
            while len(known) > MOST_KNOWN:
                known.pop(next(iter(known.copy()), key), None)  # another thread may do so at the same time
        return int(run(_shared(parts, args), job, np.empty(need, np.uint8)))

    kernel.resolve = resolve  # type: ignore[attr-defined]
    return kernel


def _shared(parts: Sequence[Part], arrays: Sequence[Array]) -> Array:
    return arrays[parts[0].sources[X][1]]


def _fit(parts: Sequence[Part], arrays: Sequence[Array], outs: Sequence[Array]) -> bool:
    """Whether all arrays have the types and shapes that the compiled code takes, and no result overlaps another."""
    x = _shared(parts, arrays)
    weights = {part.sources[W][1] for part in parts}
    for i, a in enumerate(arrays):
        if not _plain(a, np.uint8 if i in weights else np.float32) or not a.size:
            return False
    if x.ndim != 1 or not all(_plain(y, np.float32) and y.ndim == 1 and y.flags.writeable for y in outs):
        return False
    lengths: dict[int, int] = {}
    for at, part in enumerate(parts):
        w, f = arrays[part.sources[W][1]], part.rows.format
        if w.ndim != 2 or len(x) % f.elements or w.shape[1] != len(x) // f.elements * f.nbytes:
            return False
        lengths[at] = len(w)
        if any(len(outs[k]) != len(w) for k in part.results if k >= 0):
            return False
        for kind, (where, i) in zip(part.tail.kinds if part.tail else "", part.sources[2:], strict=True):
            shape = (lengths[i],) if where == "result" else arrays[i].shape
            if shape != ((len(w),) if kind == "e" else ()):
                return False
    spans = [(y.ctypes.data, y.ctypes.data + y.nbytes) for y in outs]
    others = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]
    return not any(
        start < end and first < stop
        for i, (start, stop) in enumerate(spans)
        for first, end in (*others, *spans[:i])
    )  # fmt: skip


def _plain(a: Any, dtype: Any) -> bool:
    ours = isinstance(a, np.ndarray) and not isinstance(a, np.ma.MaskedArray)
    return ours and a.dtype == dtype and a.flags.c_contiguous and a.flags.aligned


def _job(parts: Sequence[Part], arrays: Sequence[Array], numbers: Sequence[float], outs: Sequence[Array]) -> Array:
    """The words of one call."""
    groups: dict[int, list[Product]] = {}
    stored: list[Array | int] = []  # of each part, its first result: an array, or where it is in scratch
    room = 0
    for part in parts:
        w = arrays[part.sources[W][1]]
        y: Array | int = outs[part.results[0]] if part.results[0] >= 0 else room
        if isinstance(y, int):
            room += (4 * len(w) + LINE - 1) // LINE * LINE
        stored.append(y)
        product = Product(part.rows, w, y)
        if part.tail is not None:
            more, late = [len(w)], []
            for name in part.tail.reads:
                if name.startswith("out"):
                    a: Array | int = y if name == "out0" else outs[part.results[int(name[3:])]]
                else:
                    where, i = part.sources[1 + int(name[3:])]
                    a = stored[i] if where == "result" else arrays[i]
                if isinstance(a, int):
                    late.append((len(more), a))
                more.append(a if isinstance(a, int) else a.ctypes.data)
            words = np.array([numbers[part.params]], np.float64).view(np.int64).ravel().tolist()
            product = product._replace(finish=part.tail.address, more=(*more, *words), late=tuple(late))
        groups.setdefault(part.group, []).append(product)
    return job_of(list(groups.values()), room)


__all__ = ["products"]
