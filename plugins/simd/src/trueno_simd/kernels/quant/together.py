"""Several quantized products of one vector, as one parallel region: x is quantized once, rows of all are shared out.

A job is a table of words that Python fills for given arrays, so that one compiled kernel runs any number of products in
any formats: rows are multiplied by the compiled function of their format, called by address, with the results that
`quant_matvec` gives, bit for bit.  What follows a product is a compiled function too (`trueno_simd.rows.products`),
called on the rows that a thread has just multiplied.  A result that is read by such a function alone lies in scratch,
where a run of rows is a few kilobytes that stay in the thread's first cache.

Several regions are one, and small matrices, which alone are not worth a region, are shared out as well.  Measured on
two Zen 5 cores with the shapes of Qwen2.5 0.5B, us: queries, keys and values 12.3 apart, 9.9 together; gate, up and
swiglu 77.7 and 76.6; all products of a layer with what is between them 126 and 122.  One product with a bias takes as
long as the two kernels, 7.2, and one of 4864 rows with silu 38.1 instead of 38.3.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types
from trueno.backend import FORMATS, INTERLEAVED, ROWS, Format

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.operands import NONE, SCRATCH, reader, source, target
from trueno_simd.kernels.quant import matvec, printed
from trueno_simd.kernels.quant.activations import quantized_q8_0, quantized_q8_k
from trueno_simd.kernels.quant.matvec import SHARES
from trueno_simd.kernels.quant.printed import CHUNK
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.tile import address, get_word, put_word
from trueno_simd.llvm.calls import address_of, call_finish, call_piece, pack
from trueno_simd.llvm.jit import outer

Array = np.ndarray[Any, Any]

SMALL, LARGE, FLOATS = 0, 1, 2  # how a product reads x: in blocks of 32 codes, of 256, as it is
HEAD = 9
"""Words: SMALL and LARGE are wanted, chunks, where their ends are, runs, patches and how many, bytes of scratch."""
RUN, PART = 3, 7  # words of a run (of what, first row, end) and of a product

PIECE_JOB = reader(5)


@outer
def piece(args, index):
    """Some runs of rows, each of some products that belong together."""
    job, x, k, small, large = PIECE_JOB(args)
    ends, runs = job + get_word(job, 3) * 8, job + get_word(job, 4) * 8
    for r in range(get_word(ends, index), get_word(ends, index + 1)):
        run = runs + r * RUN * 8
        group, start, stop = job + get_word(run, 0) * 8, get_word(run, 1), get_word(run, 2)
        for p in range(get_word(group, 0)):
            part = group + 8 + p * PART * 8
            rows, form, pitch, y = get_word(part, 0), get_word(part, 1), get_word(part, 3), get_word(part, 4)
            w, n = get_word(part, 2) + start * pitch, stop - start
            if form == FLOATS:
                call_piece(rows, pack((w, pitch, x, k, y + 4 * start, n, n)), 0)
            else:
                codes = small if form == SMALL else large
                sums = codes + k
                call_piece(rows, pack((w, pitch, codes, sums + k // 8, sums, k, y + 4 * start, n, n)), 0)
            finish = get_word(part, 5)
            if finish:
                call_finish(finish, get_word(part, 6), 0, 1, start, n)
    return 0


def _kernel(x, job, scratch):
    at, k = address(job), x.size
    room = (k + k // 8 + k // 8 + 63) // 64 * 64
    wanted = get_word(at, 0) + get_word(at, 1)
    need = 64 + wanted * room + get_word(at, 7)
    if need > scratch.size:
        return need
    start = (address(scratch) + 63) // 64 * 64
    small = start
    large = start + get_word(at, 0) * room
    if get_word(at, 0):
        quantized_q8_0(address(x), k, small, small + k + k // 8, small + k)
    if get_word(at, 1):
        quantized_q8_k(address(x), k, large, large + k + k // 8, large + k)
    rest = start + wanted * room
    patches = at + get_word(at, 5) * 8
    for p in range(get_word(at, 6)):
        put_word(at, get_word(patches, 2 * p), rest + get_word(patches, 2 * p + 1))
    share_out(address_of(piece), pack((at, address(x), k, small, large)), get_word(at, 2))
    return 0


@cache
def compiled() -> Any:
    """The kernel `(x, job, scratch)`, which answers how many bytes it needs if they are too few."""
    return kernel_entry(types.intp(source(types.float32, 1), target(types.int64, 1), SCRATCH))(_kernel)


def resolved(x: Array, job: Array) -> tuple[Any, tuple[Array, Array], int]:
    """The compiled kernel of a job, its arguments, and the scratch behind them (`trueno_simd.door.sequence`)."""
    return compiled(), (x, job), compiled()(x, job, NONE)


ADDRESS = """

@kernel_entry(types.int64())
def kernel():
    return address_of(rows)
"""


class Rows(NamedTuple):
    """How rows of a format are multiplied: format of the bytes, address of the compiled function, and what it reads."""

    format: Format
    address: int
    form: int


@cache
def rows_of(name: str, activations: str) -> Rows:
    """The function of a format, which may be interleaved."""
    f = INTERLEAVED.get(name) or FORMATS[name]
    plain = f.plain or f.name
    if activations == "f32":
        text, partner = matvec.FLOAT, ""
    else:
        text, partner = matvec.GROUPED if f.plain else matvec.QUANTIZED, f.activations
    words = {"partner": partner, "block": FORMATS[partner].elements} if partner else {}
    text = text[: text.index("@kernel_entry")].rstrip() + "\n" + ADDRESS
    place = printed.compiled(f"quant_rows_{activations}{'_interleaved' * bool(f.plain)}", text, plain, **words)
    form = FLOATS if not partner else SMALL if FORMATS[partner].encoder == "absmax" else LARGE
    return Rows(f, int(place()), form)


class Product(NamedTuple):
    """A product and what follows it.

    y: an array, or the offset of the result in scratch.  finish: the address of a compiled function, 0 for none; more:
    its words, those of `late` offsets in scratch by place.
    """

    rows: Rows
    w: Array
    y: Array | int
    finish: int = 0
    more: tuple[int, ...] = ()
    late: tuple[tuple[int, int], ...] = ()


def job_of(groups: Sequence[Sequence[Product]], scratch: int) -> Array:
    """The words of some groups of products; those of a group have as many rows, and run one after another on each."""
    forms = {product.rows.form for group in groups for product in group}
    sizes = [(len(group[0].w), sum(p.w.shape[1] for p in group)) for group in groups]
    chunks = cut(sizes)
    words: list[int] = [0] * HEAD
    patches: list[tuple[int, int]] = []
    addresses: list[int] = []  # words that hold the index of a word, and will hold its address
    places = []
    for group in groups:
        places.append(len(words))
        words.append(len(group))
        first, end = len(words), len(words) + PART * len(group)
        words += [0] * (end - first)
        for p, product in enumerate(group):
            at, y = first + p * PART, product.y
            words[at : at + 4] = product.rows.address, product.rows.form, product.w.ctypes.data, product.w.shape[1]
            if isinstance(y, int):
                patches.append((at + 4, y))
            else:
                words[at + 4] = y.ctypes.data
            if product.finish:
                words[at + 5 : at + 7] = product.finish, len(words)
                addresses.append(at + 6)
                patches += [(len(words) + place, offset) for place, offset in product.late]
                words += product.more
    ends = [0]
    for chunk in chunks:
        ends.append(ends[-1] + len(chunk))
    words[0:3] = SMALL in forms, LARGE in forms, len(chunks)
    words[3] = len(words)
    words += ends
    words[4] = len(words)
    words += [word for chunk in chunks for group, start, stop in chunk for word in (places[group], start, stop)]
    words[5:8] = len(words), len(patches), scratch
    words += [word for patch in patches for word in patch]
    job = np.array(words, np.int64)
    for at in addresses:
        job[at] = job.ctypes.data + 8 * job[at]
    return job


def cut(sizes: Sequence[tuple[int, int]]) -> list[list[tuple[int, int, int]]]:
    """Chunks of runs (group, first row, end), of about as many bytes each; sizes: rows of a group, and bytes of a row.

    Runs begin at multiples of `ROWS`, which interleaved rows need.
    """
    total = sum(rows * pitch for rows, pitch in sizes)
    share = total / min(max(total // CHUNK, 1), SHARES)
    chunks: list[list[tuple[int, int, int]]] = [[]]
    filled = 0.0
    for group, (rows, pitch) in enumerate(sizes):
        start = 0
        while start < rows:
            many = max(round((share - filled) / pitch / ROWS), 1) * ROWS
            stop = min(start + many, rows)
            if rows - stop < ROWS:  # too few for a run of their own
                stop = rows
            chunks[-1].append((group, start, stop))
            filled += (stop - start) * pitch
            start = stop
            if filled > share - ROWS * pitch / 2:
                filled -= share
                chunks.append([])
    return chunks if chunks[-1] else chunks[:-1]


__all__ = ["Product", "Rows", "compiled", "cut", "job_of", "resolved", "rows_of"]
