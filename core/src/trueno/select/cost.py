"""The cost of a call: its work, from the key alone, and the predicted seconds at a backend's speeds.

The op gives flops and bytes, a backend five numbers (`Rates`), and the core combines them:
launch + max(flops / rate, bytes / rate), and the link for host arrays.  Measured speeds (`trueno calibrate`)
replace declared ones; they are stored by class of op and by band of sizes, because not every op is measured.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from trueno.discovery.protocol import Call, Rates
from trueno.ops.op import Op
from trueno.programs.program import ELEMENTS, FOLDS

GROUPS: dict[str, str] = {
    **dict.fromkeys(("div", "sqrt", "rsqrt"), "root"),
    **dict.fromkeys(("exp", "exp2", "expm1", "tanh", "erf"), "exp"),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "log1p_unit"), "log"),
    **dict.fromkeys(("sin", "cos", "atan"), "trig"),
    "pow": "pow",
    **dict.fromkeys(("argmax", "argmin"), "position"),
}
"""Groups of element kinds and folds whose cost moves together from backend to backend; the others are `plain`."""

BANDS: dict[str, int] = {"small": 13, "medium": 16, "large": 21, "huge": 64}
"""Each band's last size class.  Up to 8 191 elements launching counts; up to 65 535 a core's own cache; up to two
million threads and the shared cache; from there on memory."""

INDEX_BYTES = 8
LONGEST_ROW = 1024.0
"""The most elements per row that are assumed where the key says only how many there are in all rows."""


class Work(NamedTuple):
    """The computation and data of a call, estimated from its size classes.

    flops; bytes: read and written on the device; arrays, moved: number of arrays, and bytes, that a link would carry
    for host arrays; elements: of the largest array.
    """

    flops: float
    bytes: float
    arrays: int
    moved: float
    elements: float


def elements(size: int) -> float:
    """The number of elements that a size class stands for: the middle of 2**(size − 1) to 2**size − 1."""
    return 0.75 * 2.0**size if size > 1 else float(size)


def work(call: Call) -> Work:
    """Flops and bytes of a call."""
    return _work(call.op, call.dtype.itemsize, call.layout, call.rank, call.sizes, call.static)


@lru_cache(maxsize=1024)
def op_class(op: Op) -> str:
    """The class in which an op is measured: `elementwise exp`, `fold plain`, `row log`.

    A structured op is its own class, whatever follows it.
    """
    if op.structured:
        return op.table_op.name
    nodes = op.program().nodes
    along = {node.kind for node in nodes if node.space == "e"} & ELEMENTS.keys()  # work once per row hardly counts
    folds = {node.kind for node in nodes} & FOLDS.keys()
    heavy = max(along & GROUPS.keys(), key=lambda k: (ELEMENTS[k].flops, k), default="") or min(
        folds & GROUPS.keys(), default=""
    )
    group = GROUPS.get(heavy, "plain")
    form = "elementwise" if op.over is None else "fold" if op.reduces else "row"
    return f"{form} {group}"


def band(call: Call) -> str:
    """The band of sizes in which a call is measured."""
    size = work(call).elements.__ceil__().bit_length()
    return next(name for name, last in BANDS.items() if size <= last or name == "huge")


def seconds(rates: Rates, work: Work, *, linked: bool = False) -> float:
    """The model: launch + the larger of compute and memory; + the link."""
    total = rates.launch_s + max(work.flops / rates.flops, work.bytes / rates.bytes)
    if linked and (rates.link_s or rates.link_bytes != math.inf):
        total += work.arrays * rates.link_s + work.moved / rates.link_bytes
    return total


def refuse(rates: Any) -> str:
    """Why these are not valid speeds, as a sentence naming field, value and remedy; "" if they are."""
    if not isinstance(rates, Rates):
        return f"rates() returned {type(rates).__name__}; it must be Rates(launch_s, flops, bytes)"
    for field in ("launch_s", "flops", "bytes", "link_s", "link_bytes"):
        value = getattr(rates, field)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or math.isnan(value):
            return f"rates().{field} is {value!r}; it must be a number"
        if field in ("launch_s", "link_s"):
            if not 0 <= value < math.inf:
                return f"rates().{field} is {value!r}; it must be 0 or more seconds"
        elif value <= 0 or (value == math.inf and field != "link_bytes"):
            return f"rates().{field} is {value!r}; it must be above 0 and finite, in units per second"
    return ""


@lru_cache(maxsize=1024)
def _work(
    op: Op, item: int, layout: str, rank: int, sizes: tuple[int, ...], static: tuple[tuple[str, Any], ...]
) -> Work:
    return (
        _structured(op, item, rank, sizes, static)
        if op.structured
        else _program(op, item, layout, rank, sizes[0], static)
    )


def _program(op: Op, item: int, layout: str, rank: int, size: int, static: tuple[tuple[str, Any], ...]) -> Work:
    """A row program: each operand is read once and each result written once, whatever the number of passes."""
    many, (element, row) = elements(size), op.program(layout, **dict(static)).flops
    n = min(many, LONGEST_ROW, max(math.sqrt(many), 1.0)) if rank > 1 else many
    rows = many / n if n else 0.0
    extents = {"e": many, "w": n, "r": rows, "u": 1.0}
    outputs = (("e" if op.over is None or op.over in s.dims else "r", s.index) for s in op.signature.outputs)
    moved = sum(extents[k] * item for k in layout)
    moved += sum(extents[k] * (INDEX_BYTES if index else item) for k, index in outputs)
    arrays = len(layout) + len(op.signature.outputs)
    return Work(many * element + rows * row, moved, arrays, moved, many)


def _structured(op: Op, item: int, rank: int, sizes: tuple[int, ...], static: tuple[tuple[str, Any], ...]) -> Work:
    """A structured op: extents as equal as the operands' sizes allow."""
    inputs, outputs = op.signature.inputs, op.signature.outputs
    blocks = op.blocks(dict(static))
    widths = {"": float(item), "index": float(INDEX_BYTES), "bytes": 1.0}
    if blocks:
        widths |= dict.fromkeys(("blocks", "cache"), blocks.bits / 8)
    symbols, matrix = _evenly(op, rank)
    counts = [elements(sizes[min(i, len(sizes) - 1)]) for i in range(len(inputs))]
    if blocks:  # a size is one of bytes there
        counts = [n * 8 / blocks.bits if s.blocks else n for n, s in zip(counts, inputs, strict=True)]
    if not all(counts):
        return Work(0.0, 0.0, len(inputs) + len(outputs), 0.0, max(counts))
    logs = [math.log2(n) for n in counts]
    solved = [2.0 ** max(sum(w * x for w, x in zip(line, logs, strict=True)), 0.0) for line in matrix]
    extents = dict(zip(symbols, solved, strict=True))
    rows = extents.pop("...", 1.0)
    first, known = inputs[0], {**dict(static), **extents}
    results = []
    for spec in outputs:
        # A result's symbol that is in no operand is a parameter, or (an image's height after a filter) about the first
        # operand's.
        dims = [known.get(d) or known[first.dims[i - len(spec.dims)]] for i, d in enumerate(spec.dims)]
        results.append(math.prod(dims) * (rows if spec.leading else 1.0))
    written = sum(r * widths[s.type] for r, s in zip(results, outputs, strict=True))
    read = moved = 0.0
    looked_up = any(spec.index for spec in inputs)
    for spec, many in zip(inputs, counts, strict=True):
        size = many * widths[spec.type]
        moved += size
        read += min(size, written) if looked_up and not spec.index else size  # of a table, only the rows looked up
    flops = op.flops(known, rows)  # type: ignore[arg-type]
    return Work(flops, read + written, len(inputs) + len(outputs), moved + written, max(*counts, *results))


@lru_cache(maxsize=256)
def _evenly(op: Op, rank: int) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """The signature's symbols (`...` for leading axes), and the matrix from log sizes of operands to their logarithms.

    Sizes alone rarely determine extents: of all consistent ones, those that vary least are used, so that a
    matmul of equal sizes is square.
    """
    inputs = op.signature.inputs
    stacked = not inputs[0].leading or rank > len(inputs[0].dims)
    rows = [[*s.dims, *(("...",) if s.leading and (stacked or s.index) else ())] for s in inputs]
    symbols = tuple(dict.fromkeys(d for row in rows for d in row))
    n, m = len(symbols), len(inputs)
    count = np.array([[row.count(s) for s in symbols] for row in rows], dtype=float)
    system = np.zeros((n + m, n + m))
    system[:n, :n] = np.eye(n) - 1 / n
    system[:n, n:], system[n:, :n] = count.T, count
    solved = np.linalg.pinv(system)[:n, n:]
    return symbols, tuple(tuple(map(float, line)) for line in solved)
