"""An entry's checks of arrays: class, dtype, flags and shape."""

from trueno_simd.door import strided
from trueno_simd.door.frame import ALIGNED, Frame


def check(frame: Frame) -> None:
    """All operands: arrays as kernels take them, alike in dtype, and in shape as their kinds say."""
    f = frame.f
    for i, (x, kind) in enumerate(zip(frame.operands, frame.kinds, strict=True)):
        if kind != "u":
            is_array = f.same("ptr", frame.part(x, "type"), frame.word("ndarray"))
            f.require(is_array, frame.apart.get(i, "slow"))
    _first_dtype(frame)
    for x in frame.arrays:
        if x != frame.first:
            dtype(frame, x)
        flags(frame, x, ALIGNED)
        f.unless(strided.contiguous(frame, x), lambda: f.store("i1", "true", frame.loose))
    _extents(frame)
    for x, kind in zip(frame.operands, frame.kinds, strict=True):
        if kind != "u" and x != frame.first:
            shape(frame, x, kind, "rows" if frame.apart else "slow")
    strided.check(frame)


def flags(frame: Frame, array: str, wanted: int) -> None:
    """These flags are set."""
    f = frame.f
    bits = f(f"and i32 {frame.part(array, 'flags', 'i32')}, {wanted}")
    f.require(f.same("i32", bits, wanted), "slow")


def dtype(frame: Frame, array: str) -> None:
    """The call's dtype: the very object, or (of an unpickled array) one that says the same and has no metadata."""
    f = frame.f
    theirs, native = frame.part(array, "dtype"), f.load("ptr", frame.native)

    def alike() -> None:
        f.require(f.null(frame.part(theirs, "metadata")), "slow")
        f.require(f.same("i64", frame.part(theirs, "text", "i64"), frame.part(native, "text", "i64")), "slow")

    f.unless(f.same("ptr", theirs, native), alike)


def _first_dtype(frame: Frame) -> None:
    """float32 or float64, from the first array."""
    f = frame.f
    theirs, single, double = frame.part(frame.first, "dtype"), frame.word("single"), frame.word("double")
    is_single, is_double, typed = f.label("single"), f.label("double"), f.label("typed")
    other, unequal, bare, third = (f.label("dtype") for _ in range(4))
    f.branch(f.same("ptr", theirs, single), is_single, other, likely=True)
    f.place(other)
    f.branch(f.same("ptr", theirs, double), is_double, unequal)
    f.place(unequal)
    f.branch(f.null(frame.part(theirs, "metadata")), bare, "slow")
    f.place(bare)
    text = frame.part(theirs, "text", "i64")
    f.branch(f.same("i64", text, frame.word("single_text", "i64")), is_single, third)
    f.place(third)
    f.branch(f.same("i64", text, frame.word("double_text", "i64")), is_double, "slow")
    for label, wide, native in ((is_double, "1", double), (is_single, "0", single)):
        f.place(label)
        f.store("i64", wide, frame.wide)
        f.store("ptr", native, frame.native)
        f.goto(typed)
    f.place(typed)


def _extents(frame: Frame) -> None:
    """Rows and their length, of the first array.

    A flat array of any rank is one row, but two dimensions stay two: so the Python function asks for its kernel.
    """
    f, kinds = frame.f, frame.kinds
    rank, shape_ = frame.part(frame.first, "ndim", "i32"), frame.part(frame.first, "shape")
    one, two, many, done = f.label("one"), f.label("two"), f.label("many"), f.label("extents")
    f.do(f"switch i32 {rank}, label %{many} [i32 0, label %slow i32 1, label %{one} i32 2, label %{two}]")
    repeated = frame.twin and "w" in kinds

    def extents(rows: str, n: str, deep: str) -> None:
        f.store("i64", rows, frame.rows)
        f.store("i64", n, frame.n)
        f.store("i1", deep, frame.deep)
        f.goto(done)

    f.place(one)
    if repeated:
        f.goto("slow")
    else:
        extents("1", f.load("i64", shape_), "false")
    f.place(two)
    rows, n = f.load("i64", shape_), f.load("i64", shape_, 8)
    if "u" in kinds:
        extents("1", f.times(rows, n), "false")
    else:
        extents(rows, n, "true")
    f.place(many)
    last = f(f"sub i32 {rank}, 1")
    leading = f(f"call i64 @product(ptr {shape_}, i32 {last})")
    length = f.load("i64", f.at(shape_, f(f"shl i64 {f(f'zext i32 {last} to i64')}, 3")))
    if frame.kind.flat and not repeated:
        extents("1", f.times(leading, length), "false")
    else:
        extents(leading, length, f(f"icmp ne i64 {leading}, 1"))
    f.place(done)
    if repeated:  # one row, and rows of one element, have another form
        for extent in (frame.rows, frame.n):
            f.require(f(f"icmp ugt i64 {f.load('i64', extent)}, 1"), "slow")


def shape(frame: Frame, array: str, kind: str, otherwise: str = "slow") -> None:
    """The shape of an array: as the first (`e`), one row of it (`w`), or one value for each row (`r`)."""
    f, first = frame.f, frame.first
    rank, shape_ = frame.part(array, "ndim", "i32"), frame.part(array, "shape")
    if kind == "w":
        f.require(f.same("i32", rank, 1), "slow")
        f.require(f.same("i64", f.load("i64", shape_), f.load("i64", frame.n)), "slow")
        return
    wanted = frame.part(first, "ndim", "i32")
    if kind == "r":
        wanted = f(f"sub i32 {wanted}, 1")
    f.require(f.same("i32", rank, wanted), otherwise)
    f.require(f(f"call i1 @alike(ptr {frame.part(first, 'shape')}, ptr {shape_}, i32 {wanted})"), otherwise)


HELPERS = """
declare i64 @llvm.ctlz.i64(i64, i1)

define internal i1 @alike(ptr %a, ptr %b, i32 %n) #1 {
start:
  br label %loop
loop:
  %i = phi i32 [ 0, %start ], [ %next, %inside ]
  %more = icmp ult i32 %i, %n
  br i1 %more, label %inside, label %same
inside:
  %p = getelementptr i64, ptr %a, i32 %i
  %q = getelementptr i64, ptr %b, i32 %i
  %x = load i64, ptr %p
  %y = load i64, ptr %q
  %next = add i32 %i, 1
  %equal = icmp eq i64 %x, %y
  br i1 %equal, label %loop, label %other
same:
  ret i1 true
other:
  ret i1 false
}

define internal i64 @product(ptr %a, i32 %n) #1 {
start:
  br label %loop
loop:
  %i = phi i32 [ 0, %start ], [ %next, %inside ]
  %sofar = phi i64 [ 1, %start ], [ %then, %inside ]
  %more = icmp ult i32 %i, %n
  br i1 %more, label %inside, label %done
inside:
  %p = getelementptr i64, ptr %a, i32 %i
  %x = load i64, ptr %p
  %then = mul i64 %sofar, %x
  %next = add i32 %i, 1
  br label %loop
done:
  ret i64 %sofar
}
"""
"""Whether two shapes agree, and the product of extents."""
