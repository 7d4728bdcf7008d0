"""`QuantizedMatrix`: bytes, shape and format, and products that read the blocks directly."""

from contextlib import nullcontext
from operator import index
from typing import Any, NoReturn

import numpy as np

from trueno.discovery import registry
from trueno.errors import DeviceError, DtypeError, ParameterError, ShapeError
from trueno.formats import INTERLEAVED, format_of
from trueno.formats.interleave import interleaved, plain
from trueno.formats.table import ROWS
from trueno.hints import blocks_attribute
from trueno.interop.calls import runner

MOST = np.iinfo(np.intp).max
"""The most elements of an axis of an array."""


class QuantizedMatrix:
    """A matrix in blocks of a few bits per element: `bytes` uint8 [rows, bytes per row], `shape`, `format`.

    bytes: the bytes of the matrix as in a GGUF file: a NumPy array, a backend's own uint8 array, any buffer, or a lazy
    array, such as Dask's, which stays lazy; it is copied only if necessary.  shape: (rows, elements per row).  format:
    a name of `trueno.quant.FORMATS` or `trueno.quant.INTERLEAVED`, upper or lower case.  ShapeError where bytes and
    shape do not agree; DtypeError if `bytes` is not uint8 and not a buffer.

    `q @ x` and `x @ q` multiply without decoding the matrix into memory; `q.T` is a view of the same bytes, whose
    products are those of the `_colmajor` ops.  A transpose with other blocks must quantize again, and loses precision:
    `trueno.quant.requantize(q.T, format)`.  `trueno.dequantize(q)` gives the numbers.
    `q.interleaved()` is the same matrix with its blocks arranged for products, and `q.plain()` undoes that.
    """

    __slots__ = ("_columns", "bytes", "format", "shape")
    __array_ufunc__ = None  # an array on the left of @ leaves the product to this class

    bytes: Any
    shape: tuple[int, int]
    format: str
    _columns: bool

    def __init__(self, bytes: Any, shape: tuple[int, int], format: str) -> None:  # noqa: A002 - the field's own word
        f = format_of(format, "QuantizedMatrix")
        try:
            if isinstance(shape, (set, frozenset, dict)):
                raise TypeError("no order")
            rows, k = map(index, shape)
        except (TypeError, ValueError):
            problem = f"shape is {shape!r}; it must be (rows, elements per row), two integers"
            raise ShapeError(f"QuantizedMatrix: {problem}") from None
        if rows < 0 or k < 0:
            raise ShapeError(f"QuantizedMatrix: shape is {(rows, k)}; sizes are 0 or more")
        if max(rows, k) > MOST:
            raise ShapeError(f"QuantizedMatrix: shape is {(rows, k)}; an array holds {MOST} rows or columns at most")
        self._set(_rows(bytes, rows, f.row_bytes(k), f"{f.name} of shape {(rows, k)}"), (rows, k), f.name, False)

    def _set(self, data: Any, shape: tuple[int, int], name: str, columns: bool) -> None:
        put = object.__setattr__
        put(self, "bytes", data)
        put(self, "shape", shape)
        put(self, "format", name)
        put(self, "_columns", columns)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"QuantizedMatrix: {name} is fixed; make another one")

    def _like(self, data: Any, shape: tuple[int, int], columns: bool, name: str = "") -> "QuantizedMatrix":
        matrix = object.__new__(QuantizedMatrix)
        matrix._set(data, shape, name or self.format, columns)
        return matrix

    def _of_bytes(self, data: Any) -> "QuantizedMatrix":
        """The same matrix on other memory; the object itself if the memory is its own."""
        return self if data is self.bytes else self._like(data, self.shape, self._columns)

    @property
    def _blocks(self) -> tuple[Any, str, bool]:
        """What ops need: the bytes, their format, and whether blocks run along columns."""
        return self.bytes, self.format, self._columns

    @property
    def ndim(self) -> int:
        return 2

    @property
    def size(self) -> int:
        """Elements."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.bytes.shape, dtype=np.int64))

    @property
    def T(self) -> "QuantizedMatrix":
        """The transpose as a view: the same bytes, read as columns."""
        return self._like(self.bytes, (self.shape[1], self.shape[0]), not self._columns)

    def dequantize(self) -> Any:
        """The numbers as float32 [rows, columns], on the device of the bytes: `trueno.dequantize(q)`."""
        from trueno.dispatch.function import function  # start-up

        return _turned(self.T.dequantize()) if self._columns else function("dequantize")(self)

    def interleaved(self) -> "QuantizedMatrix":
        """The same matrix with every 16 rows of blocks interleaved: a copy of the same size, in the format `…_r16`.

        This makes products with one vector faster on backends with a kernel for it, if the matrix is in a CPU cache.
        Nothing is lost: `plain()` gives the bytes back.  A matrix that is already interleaved is returned itself.
        ParameterError for a transposed one, because only products along rows gain.
        """
        f = format_of(self.format)
        if f.plain:
            return self
        name = f"{f.name}_r{ROWS}"
        if name not in INTERLEAVED:
            raise ParameterError(f"QuantizedMatrix: {f.name} holds activations, which cannot be interleaved")
        if self._columns:
            raise ParameterError(
                "QuantizedMatrix: the blocks of a transposed matrix run along columns; interleave q, not q.T"
            )
        return self._like(self._moved(interleaved), self.shape, False, name)

    def plain(self) -> "QuantizedMatrix":
        """The same matrix with its blocks row by row, as files hold them; itself, if it is plain already."""
        f = format_of(self.format)
        return self._like(self._moved(plain), self.shape, self._columns, f.plain) if f.plain else self

    def _moved(self, move: Any) -> Any:
        """The bytes in another order, on the same device: those of a device pass through the host."""
        from trueno.dispatch.transfer import numpy, to  # start-up

        if _lazy(self.bytes):
            raise DeviceError(
                "QuantizedMatrix: its bytes are lazy, and so are the products; interleave what is in memory"
            )
        home = registry.home(self.bytes)
        data = move(numpy(self.bytes), format_of(self.format))
        return to(data, home.name) if home else data

    def __getitem__(self, rows: Any) -> "QuantizedMatrix":
        """Some rows: a slice (a view) or a list of integers (a copy); IndexError beyond the last."""
        if self._columns:
            raise ParameterError(
                "QuantizedMatrix: the blocks of a transposed matrix hold no whole rows; index q, not q.T"
            )
        if self.format in INTERLEAVED:
            raise ParameterError(
                f"QuantizedMatrix: {self.format} has its rows interleaved; take them from q.plain(), "
                "and interleave what you take"
            )
        if not isinstance(rows, slice):
            if isinstance(rows, tuple):
                listed = np.empty((0, 0), np.intp)
            else:
                listed = np.asarray(rows, None if np.size(rows) else np.intp)  # an empty list would be of floats
            if listed.dtype.kind not in "iu" or listed.ndim != 1:
                raise ParameterError(
                    "QuantizedMatrix: an index is a slice of rows, or a list of them: q[3:4], q[[3, 5]]"
                )
            rows = listed
        if not hasattr(self.bytes, "__getitem__"):
            where = "rows of a matrix on a device cannot be taken; copy it to the host first: trueno.numpy(q)[...]"
            raise DeviceError(f"QuantizedMatrix: {where}")
        data = self.bytes[rows]
        if not getattr(getattr(data, "flags", None), "c_contiguous", True):
            data = data.copy()
        return self._like(data, (data.shape[0], self.shape[1]), False)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(blocks_attribute(name, np.ndarray))

    __iter__ = None  # a matrix cannot be iterated row by row

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a QuantizedMatrix is not an array of numbers: trueno.dequantize(q) makes one, q.bytes are its blocks"
        )

    def __matmul__(self, x: Any) -> Any:
        return _multiplied(self, x, "q @ x")

    def __rmatmul__(self, x: Any) -> Any:
        return _multiplied(self.T, x, "x @ q")

    def __eq__(self, other: object) -> bool:
        """Whether shape, format, orientation and every byte are the same; DeviceError for bytes on a device."""
        if not isinstance(other, QuantizedMatrix):
            return NotImplemented
        same = (self.shape, self.format, self._columns) == (other.shape, other.format, other._columns)
        if not same or self.bytes is other.bytes:
            return same
        if not isinstance(self.bytes, np.ndarray) or not isinstance(other.bytes, np.ndarray):
            raise DeviceError("QuantizedMatrix: == compares bytes on the host only; copy both there with trueno.numpy")
        return bool((self.bytes == other.bytes).all())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        from trueno.dispatch.transfer import numpy  # start-up

        return _restored, (
            self.bytes if _lazy(self.bytes) else numpy(self.bytes),
            self.shape,
            self.format,
            self._columns,
        )

    def __repr__(self) -> str:
        f = format_of(self.format)
        home = registry.home(self.bytes)
        where = f", on {home.name}" if home else ""
        way = ", transposed" if self._columns else ""
        return (
            f"<QuantizedMatrix {self.shape[0]}x{self.shape[1]} {self.format}{way}, {f.bits:g} bits an element{where}>"
        )


def _restored(data: Any, shape: tuple[int, int], name: str, columns: bool) -> QuantizedMatrix:
    matrix = QuantizedMatrix(data, shape[::-1] if columns else shape, name)
    return matrix.T if columns else matrix


def _lazy(data: Any) -> bool:
    """Whether bytes belong to a library that runs calls itself."""
    return runner((data,), None) is not None


def _rows(given: Any, rows: int, row_bytes: int, what: str) -> Any:
    """The bytes as [rows, row_bytes]; an error where there are more or fewer."""
    if registry.owner(type(given)) is not None or _lazy(given):
        data = given
    elif isinstance(given, np.ndarray):
        data = np.asarray(given)
    else:
        try:
            data = np.frombuffer(given, np.uint8)
        except (TypeError, ValueError, BufferError):
            raise DtypeError(f"QuantizedMatrix: bytes is {type(given).__name__}; pass uint8 or a buffer") from None
    if np.dtype(data.dtype) != np.uint8:
        raise DtypeError(
            f"QuantizedMatrix: bytes is {data.dtype}; blocks are uint8: view them as uint8, or trueno.quantize x"
        )
    have, need = int(np.prod(data.shape, dtype=np.int64)), rows * row_bytes
    if have != need:
        raise ShapeError(f"QuantizedMatrix: bytes holds {have}, but {what} is {need}")
    if len(data.shape) > 1 and tuple(data.shape) != (rows, row_bytes):
        raise ShapeError(f"QuantizedMatrix: bytes has shape {tuple(data.shape)}, but {what} is {(rows, row_bytes)}")
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data)
    return data.reshape((rows, row_bytes))


def _turned(x: Any) -> Any:
    """The transpose: a NumPy view, or a copy of a device's array."""
    from trueno.dispatch.function import function  # start-up

    return x.T if registry.owner(type(x)) is None else function("transpose")(x)


def _dense(x: Any, who: str) -> Any:
    """The other side of a product: one or two axes."""
    if isinstance(x, (list, tuple)):
        from trueno.dispatch.transfer import host  # start-up

        x = host(who, x)
    if not hasattr(x, "shape") or len(x.shape) not in (1, 2):
        actual = f"shape {tuple(x.shape)}" if hasattr(x, "shape") else f"type {type(x).__name__}"
        raise ShapeError(f"{who}: x has {actual}; pass a vector or a matrix")
    return x


def _multiplied(q: QuantizedMatrix, x: Any, who: str) -> Any:
    """q · x, or x · qᵀ where `who` says so; a `Vector` or `Matrix` x is computed on its backend and gives one."""
    if x.__class__ is not np.ndarray and hasattr(type(x), "_wrap_result"):
        from trueno.dispatch.asking import use  # start-up

        with use(x.backend) if x.backend else nullcontext():
            return x._wrap_result(_multiplied(q, x.array, who))
    x = _dense(x, who)
    left = who == "x @ q" and len(x.shape) == 2
    return _turned(_product(q, _turned(x), who)) if left else _product(q, x, who)


def _product(q: QuantizedMatrix, x: Any, who: str) -> Any:
    """q · x by the op that reads q's blocks in their order."""
    from trueno.dispatch.function import function  # start-up

    if x.shape[0] != q.shape[1]:
        flat = len(x.shape) == 1
        if who == "q @ x":
            problem = f"q has {q.shape[1]} columns, but x has {x.shape[0]} {'elements' if flat else 'rows'}"
        else:
            problem = f"x has {x.shape[0]} {'elements' if flat else 'columns'}, but q has {q.shape[1]} rows"
        turned = "" if flat or x.shape[1] != q.shape[1] else "; x @ q.T multiplies the rows of x by those of q"
        raise ShapeError(f"{who}: {problem}{turned}")
    way = "_colmajor" if q._columns else ""
    if len(x.shape) == 1:
        return function(f"quant_matvec{way}")(q, x)
    op = f"quant_matmul{way}"
    try:
        return _turned(function(op)(_turned(x), q))
    except ShapeError as error:  # the sizes agree: a library of lazy arrays speaks of chunks, along axes of x.T
        if who == "x @ q":
            raise
        raise ShapeError(f"{who} is {op}(x.T, q).T, and there {error}") from None
