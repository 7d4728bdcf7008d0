"""An entry's last steps: the result, given or made, the call of the kernel, and what is returned."""

from trueno_simd.door import strided
from trueno_simd.door.arrays import dtype, flags, shape
from trueno_simd.door.frame import ALIGNED, PLAIN, WRITEABLE, Frame
from trueno_simd.llvm import convention


def finish(frame: Frame, code: str) -> None:
    """Run the kernel into `out`, or into a new array or number, and return that."""
    f, kind = frame.f, frame.kind
    result_dtype = frame.word("whole") if kind.index else f.load("ptr", frame.native)
    cell, target = f.slot("i64"), f.slot("ptr")
    given, absent, none, ready = f.label("given"), f.label("absent"), f.label("none"), f.label("ready")
    out = f.load("ptr", frame.out)
    f.branch(f.null(out), absent, given)
    f.place(given)
    is_array = f.same("ptr", frame.part(out, "type"), frame.word("ndarray"))
    f.require(is_array, none)
    if kind.index:
        f.require(f.same("ptr", frame.part(out, "dtype"), result_dtype), "slow")
    else:
        dtype(frame, out)
    flags(frame, out, (PLAIN if kind.reduces else ALIGNED) | WRITEABLE)
    shape(frame, out, "r" if kind.reduces else "e")
    f.store("ptr", frame.part(out, "data"), target)
    if not kind.reduces:
        f.unless(strided.contiguous(frame, out), lambda: strided.check_out(frame, out, target))
    f.goto(ready)
    f.place(none)
    f.branch(f.same("ptr", out, frame.word("none")), absent, "slow")  # the default, given
    f.place(absent)
    rank = frame.part(frame.first, "ndim", "i32")
    if kind.reduces:  # of one row: a number, without an array
        boxed, array = f.label("boxed"), f.label("array")
        f.store("ptr", cell, target)
        f.branch(f.same("i32", rank, 1), ready, array)
        f.place(array)
        rank = f(f"sub i32 {rank}, 1")
    fresh = _made(frame, result_dtype, rank)
    f.store("ptr", fresh, frame.fresh)
    f.store("ptr", frame.part(fresh, "data"), target)
    f.goto(ready)
    f.place(ready)
    _run(frame, code, target)
    fresh, own, kept = f.load("ptr", frame.fresh), f.label("own"), f.label("kept")
    f.branch(f.given(fresh), own, kept)
    f.place(own)
    f.do(f"ret ptr {fresh}")
    f.place(kept)
    if kind.reduces:
        theirs = f.label("theirs")
        f.branch(f.same("ptr", f.load("ptr", target), cell), boxed, theirs)
        f.place(boxed)
        f.do(f"ret ptr {frame.call('ptr', 'scalar_new', f'ptr {cell}', f'ptr {result_dtype}', 'ptr null')}")
        f.place(theirs)
    frame.retain(out)
    f.do(f"ret ptr {out}")


def _made(frame: Frame, result_dtype: str, rank: str) -> str:
    """A new array; without room for it, the Python function raises the error that explains."""
    frame.retain(result_dtype)  # the next call takes this reference
    new = frame.call(
        "ptr", "array_new", f"ptr {frame.word('ndarray')}", f"ptr {result_dtype}", f"i32 {rank}",
        f"ptr {frame.part(frame.first, 'shape')}", "ptr null", "ptr null", "i32 0", "ptr null",
    )  # fmt: skip
    frame.f.require(frame.f.given(new), "clear")
    return new


def _run(frame: Frame, code: str, into: str) -> None:
    """Call the kernel, of one dimension or of two; a new array of a call that it refuses is freed.

    into: a slot with the address for the result.
    """
    f = frame.f
    answer, error, status = f.slot("i64"), f.slot("ptr"), f.slot("i32")
    rows, n = f.load("i64", frame.rows), f.load("i64", frame.n)
    itemsize = f(f"shl i64 4, {f.load('i64', frame.wide)}")
    strided.gather(frame, itemsize, into)
    target = f.load("ptr", into)
    done, ranks = f.label("done"), {1: f.label("row"), 2: f.label("rows")}
    if frame.twin:
        ranks = {2: ranks[2]} if "w" in frame.kinds else {1: ranks[1]}
        f.goto(next(iter(ranks.values())))
    else:
        f.branch(f.load("i1", frame.deep), ranks[2], ranks[1])
    for rank, label in ranks.items():
        f.place(label)
        parts = [f"ptr {answer}", f"ptr {error}"]
        for i, (x, kind) in enumerate(zip(frame.operands, frame.kinds, strict=True)):
            data = frame.cells.get(i) or f.load("ptr", frame.data[x])
            parts += convention.array(f, data, itemsize, _extents(kind, rank, rows, n))
        parts += [f"double {number}" for number in frame.numbers]
        each = "8" if frame.kind.index else itemsize
        parts += convention.array(f, target, each, _extents("r" if frame.kind.reduces else "e", rank, rows, n))
        f.store("i32", f(f"call i32 {code}({', '.join(parts)})"), status)
        f.goto(done)
    f.place(done)
    failed = f(f"zext i32 {f.load('i32', status)} to i64")
    refused = f(f"or i64 {failed}, {f.load('i64', answer)}")
    strided.scatter(frame, itemsize, target, refused)
    f.require(f.same("i64", refused, 0), "refused")


def _extents(kind: str, rank: int, rows: str, n: str) -> list[str]:
    """The shape that a kernel of this rank gets for an array of this kind."""
    return {"e": [rows, n], "w": [n], "r": [rows], "u": []}[kind] if rank == 2 else [n] if kind in "ew" else []


def refuse(frame: Frame) -> None:
    """The way out of a call that the kernel refused."""
    f = frame.f
    f.place("refused")
    fresh = f.load("ptr", frame.fresh)
    waste = f.label("waste")
    f.branch(f.given(fresh), waste, "clear")
    f.place(waste)
    frame.release(fresh)
    f.goto("clear")
