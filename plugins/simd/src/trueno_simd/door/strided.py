"""Arrays in another order than kernels take: strided, transposed or broadcast views of some thousand elements.

An entry copies such operands into memory of its own, and the kernel reads the copies; so they may overlap the result.
An `out` in Fortran order or with a step gets its elements from there after the kernel.  These copies are as fast as
NumPy's; above `MOST` elements the Python function makes them, in an order that suits the caches.
"""

from collections.abc import Callable
from typing import Final

from trueno_simd.door.frame import CONTIGUOUS, FORTRAN, Frame
from trueno_simd.door.text import Function

MOST: Final = 16_384
"""Elements of a call: from here on the time of a Python call is a tenth of the copy's."""
RANK: Final = 4
"""The most axes of an array that is copied."""
_AT_ONCE: Final = 4  # elements of a turn of the innermost loop
_KINDS: Final = {"float": 4, "double": 8}


def check(frame: Frame) -> None:
    """Where an operand is copied: the call is small, and its kernel is the one that the Python function takes."""
    f = frame.f

    def small() -> None:
        _few(frame)
        for x in frame.arrays:
            f.require(f(f"icmp sle i32 {frame.part(x, 'ndim', 'i32')}, {RANK}"), "slow")
        if not frame.kind.flat:  # copied, one row of two dimensions is called as a row
            one = f(f"icmp eq i64 {f.load('i64', frame.rows)}, 1")
            alone = f(f"and i1 {one}, {f.load('i1', frame.deep)}")
            f.require(f(f"xor i1 {alone}, true"), "slow")

    _if_loose(frame, small)


def check_out(frame: Frame, out: str, target: str) -> None:
    """An `out` that is copied into has each element once: in Fortran order, or along one axis."""
    f = frame.f
    rank, single, fits = frame.part(out, "ndim", "i32"), f.label("single"), f.label("fits")
    bits = f(f"and i32 {frame.part(out, 'flags', 'i32')}, {FORTRAN}")
    f.branch(f.same("i32", bits, 0), single, fits)
    f.place(single)
    f.require(f.same("i32", rank, 1), "slow")
    step = f.load("i64", frame.part(out, "strides"))
    f.require(f(f"icmp ne i64 {step}, 0"), "slow")  # a step shorter than an element is 0
    f.goto(fits)
    f.place(fits)
    f.require(f(f"icmp sle i32 {rank}, {RANK}"), "slow")
    _few(frame)
    f.store("i1", "true", frame.loose)
    f.store("ptr", "null", target)


def _few(frame: Frame) -> None:
    f = frame.f
    size = f.times(f.load("i64", frame.rows), f.load("i64", frame.n))
    f.require(f(f"icmp ult i64 {f(f'sub i64 {size}, 1')}, {MOST}"), "slow")


def _if_loose(frame: Frame, then: Callable[[], None]) -> None:
    frame.f.unless(frame.f(f"xor i1 {frame.f.load('i1', frame.loose)}, true"), then)


def gather(frame: Frame, itemsize: str, into: str) -> None:
    """Copy the operands that need it, and let `frame.data` hold where each operand's elements are.

    into: a slot with the address for the result; it holds null for an `out` that needs memory as well.
    """
    f = frame.f

    def copies() -> None:
        room = f.times(f.times(f.load("i64", frame.rows), f.load("i64", frame.n)), itemsize)
        scratch = frame.call("ptr", "malloc", f"i64 {f.times(str(len(frame.arrays) + 1), room)}")
        f.store("ptr", scratch, frame.scratch)
        f.require(f.given(scratch), "refused")
        f.unless(f.given(f.load("ptr", into)), lambda: f.store("ptr", scratch, into))
        for x in frame.arrays:
            scratch = f.at(scratch, room)

            def copy(x: str = x, target: str = scratch) -> None:
                _copy(frame, "gather", itemsize, target, x)
                f.store("ptr", target, frame.data[x])

            f.unless(contiguous(frame, x), copy)

    for x in frame.arrays:
        f.store("ptr", frame.part(x, "data"), frame.data[x])
    _if_loose(frame, copies)


def scatter(frame: Frame, itemsize: str, target: str, refused: str) -> None:
    """Copy the result, if it is in the memory of `gather`, unless the kernel refused; then free that memory."""
    f = frame.f
    scratch = f.load("ptr", frame.scratch)

    def free() -> None:
        copied, freed = f.label("copied"), f.label("freed")
        own = f(f"and i1 {f.same('ptr', scratch, target)}, {f.same('i64', refused, 0)}")
        f.branch(own, copied, freed)
        f.place(copied)
        _copy(frame, "scatter", itemsize, target, f.load("ptr", frame.out))
        f.goto(freed)
        f.place(freed)
        f.do(f"call void {frame.word('free')}(ptr {scratch})")

    f.unless(f.null(scratch), free)


def _copy(frame: Frame, how: str, itemsize: str, dense: str, array: str) -> None:
    """Copy between an array and its elements in C order."""
    f = frame.f
    parts = [f"ptr {frame.part(array, name)}" for name in ("data", "shape", "strides")]
    parts = [f"ptr {dense}", *parts, f"i32 {frame.part(array, 'ndim', 'i32')}"]
    single, double, done = f.label("single"), f.label("double"), f.label("copied")
    f.branch(f.same("i64", itemsize, 4), single, double)
    for label, kind in ((single, "float"), (double, "double")):
        f.place(label)
        f.do(f"call void @{how}_{kind}({', '.join(parts)})")
        f.goto(done)
    f.place(done)


def contiguous(frame: Frame, array: str) -> str:
    """Whether an array is C-contiguous."""
    bits = frame.f(f"and i32 {frame.part(array, 'flags', 'i32')}, {CONTIGUOUS}")
    return frame.f(f"icmp ne i32 {bits}, 0")


def helpers() -> str:
    """The functions that copy."""
    return "\n".join(_function(how, kind) for how in ("gather", "scatter") for kind in _KINDS)


def _function(how: str, kind: str) -> str:
    """Copies any view of up to `RANK` axes into memory in C order, or from there; no extent is 0."""
    head = "ptr %dense, ptr %data, ptr %shape, ptr %strides, i32 %rank"
    f, size = Function(f"define internal void @{how}_{kind}({head}) #0"), _KINDS[kind]
    dense = f.slot("ptr")
    f.store("ptr", "%dense", dense)
    extents = [f.slot("i64", "1") for _ in range(RANK)]  # the last axis first
    steps = [f.slot("i64", "0") for _ in range(RANK)]
    for axis in range(RANK):

        def known(axis: int = axis) -> None:
            last = f(f"sub i32 %rank, {axis + 1}")
            place = f(f"shl i64 {f(f'zext i32 {last} to i64')}, 3")
            f.store("i64", f.load("i64", "%shape", place), extents[axis])
            f.store("i64", f.load("i64", "%strides", place), steps[axis])

        f.unless(f(f"icmp sle i32 %rank, {axis}"), known)

    def turns(source: str, axis: int, count: int) -> None:
        """While an axis has so many elements left, go over them."""
        step, left, at = f.load("i64", steps[axis]), f.slot("i64"), f.slot("ptr")
        f.store("i64", f.load("i64", extents[axis]), left)
        f.store("ptr", source, at)
        most = count
        while count:
            again, inside, further = f.label("again"), f.label("inside"), f.label("on")
            f.goto(again)
            f.place(again)
            f.branch(f(f"icmp sge i64 {f.load('i64', left)}, {count}"), inside, further)
            f.place(inside)
            address = f.load("ptr", at)
            if axis:
                turns(address, axis - 1, _AT_ONCE if axis == 1 else 1)
                address = f.at(address, step)
            else:
                address = elements(address, step, count)
            f.store("ptr", address, at)
            f.store("i64", f(f"sub i64 {f.load('i64', left)}, {count}"), left)
            f.goto(again)
            f.place(further)
            count = 1 if count == most and most > 1 else 0

    def elements(address: str, step: str, count: int) -> str:
        """Copy so many elements; the address of the next."""
        here = f.load("ptr", dense)
        for i in range(count):
            if how == "gather":
                f.store(kind, f.load(kind, address), here, size * i)
            else:
                f.store(kind, f.load(kind, here, size * i), address)
            address = f.at(address, step)
        f.store("ptr", f.at(here, size * count), dense)
        return address

    turns("%data", RANK - 1, 1)
    f.do("ret void")
    return f.text()
