"""Kernels of quant_matvec and quant_matmul, alone, with an epilogue, and several of one x in one launch.

A call becomes the parts of a launch (`rows`): matrices whose epilogues read each other's results are a section, whose
blocks have the same rows of all.  Sections share out the blocks of one wave by their bytes.  More rows of x than
`rows` takes at once are taken in turns, or, from some number on, by tensor cores (`many`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from trueno.backend import FORMATS, Call, Format, FusedOp, Kernel, Member, Reject, SharedOp, unit_shape

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.epilogue import spliced
from trueno_cuda.kernels.product import MOST_PLANS, Shape
from trueno_cuda.kernels.quant import staging
from trueno_cuda.kernels.quant.blocks import access_of
from trueno_cuda.kernels.quant.many import Together
from trueno_cuda.kernels.quant.rows import MOST_COLUMNS, MOST_SUMS, Form, Part, rows, units_of
from trueno_cuda.kernels.quant.task import Norm, Task, shares
from trueno_cuda.kernels.quant.tiling import BULK
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import TARGETS

W = {"quant_matvec": 0, "quant_matmul": 1}
"""Which operand is the matrix; the other one is x."""
THREADS = {1: 1024, 2: 640, 4: 512, 8: 320}
"""Threads that a block may have, by its columns, whose elements of x are in registers."""
BUSY = {64: 256, 128: 384}
"""Threads that a multiprocessor is to hold, by those of a block.  Fewer blocks round x less often, with more rows on
their way: on an H200, q, k and v of 1.5B take 3.6 us with four blocks of 64 threads, and 4.8 with eight."""
MANY, CROWDED = 640, 384
"""The same of larger blocks; at most where a unit takes more registers than `LARGE`, or there are 8 columns."""
LARGE = 12
MOST_AHEAD = 8
"""Rows of a part on their way: more of one vector gain nothing, and cost registers."""
REGISTERS, OWN, BESIDE = 65536, 45, 8
"""Registers of a multiprocessor, and of a thread beside units and its elements of x; more for each further column."""
MOST_ROWS = {"q8": 2, "f32": 16, "bf16": 0}
"""Rows of x above which tensor cores are quicker (`many`), and one row of 8 bits where `tiles` has bulk copies: on an
H200, gate and up of 7B take 25 us for 2 rows here, 30 with their norm, and 23 for up to 8 by `tiles`."""
MOST = 1 << 31
"""Below this lies every axis."""


class Product(NamedTuple):
    """One product of a call: where its operands and its result are, as in `Member`.

    sources: of the matrix, then of what its epilogue reads.  result: its number in the whole, -1 where it is not kept.
    numbers: its epilogue's parameters among the whole's.  group: the first of the products that its blocks compute.
    """

    format: str
    epilogue: Any
    matrix: int
    beside: tuple[tuple[str, int], ...]
    result: int
    numbers: slice
    group: int


def products_of(call: Call) -> tuple[list[Product], int, str, Norm | None]:
    """The products of a call, the operand that is their x, their activations, and what normalizes x."""
    op: Any = call.op
    place = W[op.table_op.name]
    if isinstance(op, SharedOp):
        members, kept = op.members, op.kept
    else:
        own = tuple(("operand", i) for i in range(len(op.signature.inputs)))
        members, kept = (Member(op, call.static, own),), ((0, 0),)
    result: list[Product] = []
    first, norm = 0, None
    if not members[0].op.structured:
        (_, x), (_, weight) = members[0].sources
        norm, first = Norm(weight, 0), len(members[0].op.symbolic)
        members = [replace(m, sources=tuple(map(partial(_behind, x), m.sources))) for m in members[1:]]
        kept = tuple((at - 1, number) for at, number in kept)
    for at, member in enumerate(members):
        static, count = dict(member.static), len(member.op.symbolic)
        beside = member.sources[2:]
        group = at
        for i in (i for where, i in beside if where == "result"):  # all that it reads is computed by the same blocks
            group = min(group, result[i].group)
            result = [p._replace(group=group) if p.group == result[i].group else p for p in result]
        result.append(
            Product(
                static["format"], spliced(member.op) if isinstance(member.op, FusedOp) else None,
                member.sources[place][1], beside, kept.index((at, 0)) if (at, 0) in kept else -1,
                slice(first, first + count), group,
            )
        )  # fmt: skip
        first += count
    return result, members[0].sources[1 - place][1], dict(members[0].static)["activations"], norm


def _behind(x: int, source: tuple[str, int]) -> tuple[str, int]:
    """Where an operand is, if products are counted without the norm before them, which makes its own operand x."""
    where, i = source
    return source if where == "operand" else (where, i - 1) if i else ("operand", x)


def refusal(call: Call) -> Reject | None:
    """Files' own order of rows is read alone: on a GPU there is nothing to gain from another."""
    op: Any = call.op
    statics = [m.static for m in op.members if m.op.structured] if isinstance(op, SharedOp) else [call.static]
    for name in (dict(s)["format"] for s in statics):
        if name not in FORMATS:
            return Reject("unsupported_op", f"{name}: rows are read as files hold them; q.plain() puts them back")
    return None


# ------------------------------------------------------------------------------------- plans


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a launch uses a multiprocessor: its blocks, rows of a part on their way, threads at most, groups of rows in
    shared memory.  0: as planned; staged -1: none."""

    resident: int = 0
    ahead: int = 0
    threads: int = 0
    staged: int = 0


PLANNED = Tuning()


def form_of(
    sections: tuple[tuple[Part, ...], ...], activations: str, count: int, k: int, wide: bool, guarded: bool,
    tuning: Tuning = PLANNED, *, norm: bool = False, arch: str = "sm_90a", shared: int = 227 << 10,
) -> Form:  # fmt: skip
    """The kernel for `count` rows of x of k elements.  norm: they are normalized first.

    shared: bytes of shared memory that a block may have.
    """
    step = next(c for c in THREADS if c >= count)
    formats = [FORMATS[part.format] for section in sections for part in section]
    chunks = -(-max(units_of(f, k) for f in formats) // (tuning.threads or THREADS[step]))
    threads = -(-max(units_of(f, k) for f in formats) // (32 * chunks)) * 32
    most = BUSY.get(-(-threads // 64) * 64, MANY)
    if max(map(_held, formats)) > LARGE or step == 8:
        most = min(most, CROWDED)
    resident = tuning.resident or max(1, min(most // threads, 16))
    together = max(sum(_held(FORMATS[part.format]) for part in section) for section in sections)
    free = min(REGISTERS // (resident * threads), 255) - OWN - BESIDE * (count - 1)
    free -= count * max(_seen(s, activations) for s in sections)
    ahead = tuning.ahead or max(min(free // (together + count), MOST_SUMS // count, MOST_AHEAD), 1)
    staged, stageable = max(tuning.staged, 0), chunks == 1 and asynchronous(arch) and _stageable(sections, k, threads)
    if not stageable:
        staged = 0
    elif not tuning.staged and activations == "q8" and step in staging.THREADS and all(f.nbytes % 8 for f in formats):
        blocks, group = staging.plan([f.name for f in formats], max(map(len, sections)), step, threads)
        staged, resident, ahead = staging.GROUPS, tuning.resident or blocks, tuning.ahead or group
    form = Form(sections, activations, count, threads, chunks, resident, ahead, wide, guarded, staged, norm)
    while form.nbytes > shared and form.staged and form.ahead > 1:
        form = replace(form, ahead=form.ahead // 2)
    return form if form.nbytes <= shared else replace(form, staged=0)


def asynchronous(arch: str) -> bool:
    """Whether copies to shared memory need no registers."""
    return TARGETS[arch].number >= 80


def _stageable(sections: tuple[tuple[Part, ...], ...], k: int, threads: int) -> bool:
    """Whether warps can copy what their lanes read: whole blocks, and every warp has some."""
    return all(
        part.access == staging.CHUNK and staging.span(part.format) and units_of(FORMATS[part.format], k) > threads - 32
        for section in sections for part in section
    )  # fmt: skip


def _held(f: Format) -> int:
    """About how many registers hold what is loaded of a unit."""
    vector = 4 if f.nbytes % 8 == 0 else 8
    head = 4 if f.nbytes % 16 == 0 else 1 + unit_shape(f.name).ways * bool(f.scales)
    return sum(2 if p.run == 1 else vector for p in f.planes) + head


def _seen(section: Sequence[Part], activations: str) -> int:
    """About how many registers hold a lane's elements of a row of x: once for each order of them in a section."""
    orders = {(unit_shape(part.format), FORMATS[part.format].activations) for part in section}
    elements = sum(shape.elements for shape, _ in orders)
    return elements if activations == "f32" else elements * 11 // 32


class Planned(NamedTuple):
    """A launch of some rows of x, the first of them, and how each pointer is found: operand or result, and bytes."""

    launch: Any
    pointers: list[tuple[str, int, int]]


Layout = tuple[Shape, ...]


class Products:
    """The kernel of one key: plans for the shapes of its calls."""

    def __init__(self, device: Device, call: Call) -> None:
        self.device, self.guarded = device, call.guarded
        self.products, self.x, self.activations, self.norm = products_of(call)
        self.vector = call.op.table_op.name == "quant_matvec"
        self.order = sorted(range(len(self.products)), key=lambda i: (self.products[i].group, i))
        """The products, those of one section behind each other."""
        self.plain = not any(p.epilogue for p in self.products)

    def agree(self, arrays: Sequence[Shape], outs: Sequence[Shape]) -> tuple[int, int] | None:
        """Rows of x and their elements, where all shapes agree."""
        x = arrays[self.x]
        if len(x) != (1 if self.vector else 2):
            return None
        m, k = (1, *x)[-2:]
        if self.norm and arrays[self.norm.weight] != (k,):
            return None
        lengths: list[int] = []
        for p in self.products:
            w, f = arrays[p.matrix], FORMATS[p.format]
            if len(w) != 2 or w[1] % f.nbytes or w[1] // f.nbytes * f.elements != k or max(*w, m, k) >= MOST:
                return None
            result = w[:1] if self.vector else (m, w[0])
            lengths.append(w[0])
            if (p.result >= 0 and outs[p.result] != result) or w[0] != lengths[p.group]:
                return None
            shapes = {"e": result, "w": result[-1:], "r": result[:-1], "u": ()}
            for (where, i), kind in zip(p.beside, p.epilogue.beside if p.epilogue else "", strict=True):
                if kind != "e" if where == "result" else arrays[i] != shapes[kind]:
                    return None
        return m, k

    def plan(self, arrays: Sequence[Shape], outs: Sequence[Shape], aligned: Sequence[int]) -> list[Planned] | None:
        """Launches for arrays of these shapes.  aligned: of each operand, its address modulo 16."""
        sizes = self.agree(arrays, outs)
        if sizes is None:
            return None
        m, k = sizes
        heights = [arrays[p.matrix][0] for p in self.products]
        if m * k == 0 or not any(heights):
            return []
        bulk = self.activations == "q8" and TARGETS[self.device.arch].number >= BULK
        if m > (1 if bulk else MOST_ROWS[self.activations]) or (self.norm and not self._whole(m, k)):
            return [self._many(arrays, outs, m, k)]
        planned: list[Planned] = []
        most, done = MOST_COLUMNS[self.activations], 0
        while done < m:
            count = min(most, m - done)
            planned.append(self._launch(arrays, aligned, k, done, count))
            done += count
        return planned

    def _whole(self, m: int, k: int) -> bool:
        """Whether a block has threads for all units of a row, so that it reads all of x before the matrix."""
        return max(units_of(FORMATS[p.format], k) for p in self.products) <= THREADS[next(c for c in THREADS if c >= m)]

    def _many(self, arrays: Sequence[Shape], outs: Sequence[Shape], m: int, k: int) -> Planned:
        """The launch of all products by tensor cores."""
        members: list[Any] = [None] * len(self.products)
        first = 0 if self.norm is None else 1
        for i in self.order:  # in which the parameters are given
            p = self.products[i]
            count = p.numbers.stop - p.numbers.start
            sizes = arrays[p.matrix][0], slice(first, first + count)
            members[i] = Task(p.format, p.epilogue, p.matrix, p.beside, p.result, *sizes, p.group)
            first += count
        own = self.device, members, self.activations, self.x, len(arrays), m, k, self.guarded
        launch = Together(*own, norm=self.norm)
        pointers = [("operand", i, 0) for i in range(len(arrays))] + [("result", i, 0) for i in range(len(outs))]
        return Planned(launch, pointers)

    def _launch(self, arrays: Sequence[Shape], aligned: Sequence[int], k: int, done: int, count: int) -> Planned:
        sections: dict[int, list[Part]] = {}
        pointers: list[tuple[str, int, int]] = [("operand", self.x, 4 * done * k)]
        if self.norm:
            pointers.append(("operand", self.norm.weight, 0))
        heights: dict[int, int] = {}
        places: dict[int, int] = {}
        for i in self.order:
            p, f = self.products[i], FORMATS[self.products[i].format]
            w = arrays[p.matrix]
            section = sections.setdefault(p.group, [])
            heights[p.group], places[i] = w[0], len(section)
            sources = tuple((where, places[n] if where == "result" else n) for where, n in p.beside)
            access = access_of(f, aligned[p.matrix], w[0] * w[1])
            section.append(Part(p.format, access, gcd(w[1], 16), p.epilogue, sources, p.result >= 0))
            pointers.append(("operand", p.matrix, 0))
            if p.result >= 0:
                pointers.append(("result", p.result, 4 * done * w[0]))
            moved = {"e": 4 * done * w[0], "r": 4 * done, "w": 0, "u": 0}
            for (where, n), kind in zip(p.beside, p.epilogue.beside if p.epilogue else "", strict=True):
                if where == "operand":
                    pointers.append(("operand", n, 0 if self.vector else moved[kind]))
        wide = aligned[self.x] % 16 == 0 and (self.norm is None or aligned[self.norm.weight] % 16 == 0)
        form = form_of(
            tuple(map(tuple, sections.values())), self.activations, count, k, wide, self.guarded,
            norm=self.norm is not None, arch=self.device.arch, shared=self.device.shared,
        )  # fmt: skip
        return Planned(prepared(self.device, form, k, list(heights.values())), pointers)


def prepared(device: Device, form: Form, k: int, heights: Sequence[int]) -> Any:
    """The launch of a form for x of k elements, and sections of so many rows."""
    nbytes = [[FORMATS[part.format].row_bytes(k) for part in section] for section in form.sections]
    each = shares(device.sms * form.resident, [(max(n, 1), sum(some)) for n, some in zip(heights, nbytes, strict=True)])
    numbers, start = [k, *(n for some in nbytes for n in some)], 0
    for n, share in zip(heights, each, strict=True):
        numbers += [n, share, start]
        start += -(-n // share)
    few = replace(form, ahead=_even(max(each), form.ahead))
    return device.prepare(rows(device.arch, few), (start, 1, 1), numbers)


def _even(share: int, most: int) -> int:
    """How many of `share` rows a block takes at a time, so that few turns leave little over."""
    if share >= 8 * most:
        return most
    choices = [-(-share // -(-share // a)) for a in (most, max(most - 1, 1))]
    return min(choices, key=lambda a: -(-share // a) * a)


def kernel_of(device: Device, call: Call) -> Kernel:
    """The kernel of a call's key."""
    own = Products(device, call)
    operands, results = len(call.op.signature.inputs), len(call.op.signature.outputs)
    order = [own.norm.eps] if own.norm else []
    order += [i for at in own.order for i in range(own.products[at].numbers.start, own.products[at].numbers.stop)]
    plans: dict[Any, list[Planned] | None] = {}
    laid = device.contiguous
    elementwise = {
        (n, p.result) for p in own.products if len(own.products) == 1
        for (where, n), kind in zip(p.beside, p.epilogue.beside if p.epilogue else "", strict=True)
        if where == "operand" and kind == "e"
    }  # fmt: skip

    def kernel(*args: Any) -> int:
        outs = args[len(args) - results :]
        arrays = [laid(a) for a in args[:operands]]
        if any(laid(out) is not out for out in outs):
            return -1
        given = [a.data.ptr for a in arrays]
        targets = [out.data.ptr for out in outs]
        key = tuple(a.shape for a in arrays), tuple(o.shape for o in outs), tuple(p & 15 for p in given)
        if key not in plans:
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plans[key] = own.plan(*key)
        planned = plans[key]
        if planned is None:
            return -1
        for j, (out, to) in enumerate(zip(outs, targets, strict=True)):
            end = to + out.nbytes
            for i, (a, p) in enumerate(zip(arrays, given, strict=True)):
                if p < end and to < p + a.nbytes and not (p == to and (i, j) in elementwise):
                    return -1
            if any(to < other + o.nbytes and other < end for o, other in zip(outs[:j], targets[:j], strict=True)):
                return -1
        if not planned:
            return _empty(device, own, outs)
        floats = [args[operands + i] for i in order]
        status = [device.status()] if own.guarded else []
        for launch, places in planned:
            found = [(given if where == "operand" else targets)[i] + more for where, i, more in places]
            launch([*found, *status], floats)
        return 0

    return kernel


def _empty(device: Device, own: Products, outs: Sequence[Any]) -> int:
    """Sums of nothing."""
    if any(out.size for out in outs) and not own.plain:
        return -1
    for out in outs:
        if out.size:
            device.write(np.zeros(out.shape, out.dtype), out)
    return 0


KERNELS.add("quant_matvec", "quant_matmul", rates=RATES, dtypes=("float32",), refusal=refusal)(kernel_of)
"""quant_matvec: w[n,b] bytes of blocks, x[k] -> out[n].  quant_matmul: x[m,k], w[n,b] -> out[m,n]."""
