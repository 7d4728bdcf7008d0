"""`Vector` and `Matrix`: thin, typed holders of an array, with the table's ops as methods and operators.

They hold any array that the functional API takes (NumPy's, or a device's) and add shape discipline, a
repr that helps, and a backend chosen at construction.  Row-major; float32 unless the data are float64.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.dispatch.coerce import FLOATS
from trueno.dispatch.function import function
from trueno.dispatch.state import use
from trueno.errors import DtypeError, ShapeError, suggestion
from trueno.ops import ALIASES, TABLE


def _binary(op: str, *, swapped: bool = False) -> Callable[["_Holder", Any], Any]:
    def method(self: "_Holder", other: Any) -> Any:
        if not isinstance(other, (_Holder, np.ndarray, float, int, np.generic, list)):
            return NotImplemented
        return self._call(op, other, self, bare=True) if swapped else self._call(op, other)

    return method


class _Holder:
    """What Vector and Matrix share."""

    __slots__ = ("array", "backend")
    __array_priority__ = 1000
    rank = 0
    array: npt.NDArray[Any]
    backend: str | None

    def __init__(self, data: Any, *, dtype: npt.DTypeLike | None = None, backend: str | None = None) -> None:
        source: Any = getattr(data, "array", data) if isinstance(data, _Holder) else data
        if not hasattr(source, "__array__"):
            source = np.from_dlpack(source) if hasattr(source, "__dlpack__") else source
            source = list(source) if isinstance(source, Iterator) else source
        try:
            array = np.array(source, dtype=dtype, order="C")
        except ValueError:
            raise ShapeError(
                f"{type(self).__name__}: the data are ragged; every row must have the same length"
            ) from None
        if dtype is None and not isinstance(source, np.ndarray) and array.dtype.kind in "iuf":
            array = array.astype(np.float32)
        if dtype is None and array.size == 0:
            array = array.astype(np.float32)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype.type not in FLOATS:
            raise DtypeError(f"{type(self).__name__}: data are {array.dtype}; convert them to float32 or float64")
        if array.ndim != self.rank:
            raise ShapeError(f"{type(self).__name__}: data have shape {array.shape}; {self.rank} dimension(s) needed")
        self.array = array
        self.backend = backend

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.rank

    @property
    def size(self) -> int:
        return int(self.array.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def device(self) -> str:
        """Where the data live; `host` for NumPy memory."""
        return "host"

    def with_backend(self, backend: str | None) -> Any:
        """The same data, computed on `backend` from now on."""
        return self._wrap(self.array, backend)

    def numpy(self) -> npt.NDArray[Any]:
        """The data as a NumPy array (no copy on the host)."""
        return self.array

    def to_vec(self) -> list[Any]:
        """The data as a Python list."""
        return self.array.tolist()  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if dtype is None or np.dtype(dtype) == self.array.dtype:
            return self.array.copy() if copy else self.array
        if copy is False:
            raise ValueError(f"{type(self).__name__} is {self.array.dtype}: a {dtype} array needs a copy")
        return self.array.astype(dtype)

    def __dlpack__(self, **kw: Any) -> Any:
        return self.array.__dlpack__(**kw)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self.array.__dlpack_device__()

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array)

    def __getitem__(self, index: Any) -> Any:
        return self._wrap_result(self.array[index])

    def __eq__(self, other: object) -> Any:
        return self.array == (other.array if isinstance(other, _Holder) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        body = np.array2string(self.array, threshold=12, edgeitems=3, precision=4)
        size = "×".join(map(str, self.shape))
        on = f", backend={self.backend!r}" if self.backend else ""
        return f"{type(self).__name__}({body}, {size} {self.dtype}{on})"

    def __getstate__(self) -> tuple[Any, Any]:
        return (self.array, self.backend)

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.array, self.backend = state

    @staticmethod
    def _wrap(array: npt.NDArray[Any], backend: str | None) -> "Vector | Matrix":
        holder = Vector.__new__(Vector) if array.ndim == 1 else Matrix.__new__(Matrix)
        holder.array, holder.backend = array, backend
        return holder

    def _wrap_result(self, result: Any) -> Any:
        if isinstance(result, np.ndarray) and result.ndim in (1, 2) and result.dtype.type in FLOATS:
            return self._wrap(result, self.backend)
        return result

    def _call(self, name: str, *args: Any, bare: bool = False, **kw: Any) -> Any:
        """Call an op on this holder's backend, with the holder as first operand unless `bare`."""
        given = args if bare else (self, *args)
        if self.backend is None:
            return function(name)(*given, **kw)
        with use(self.backend):
            return function(name)(*given, **kw)

    __add__, __radd__ = _binary("add"), _binary("add", swapped=True)
    __sub__, __rsub__ = _binary("sub"), _binary("sub", swapped=True)
    __mul__, __rmul__ = _binary("mul"), _binary("mul", swapped=True)
    __truediv__, __rtruediv__ = _binary("div"), _binary("div", swapped=True)
    __pow__, __rpow__ = _binary("pow"), _binary("pow", swapped=True)

    def __neg__(self) -> Any:
        return self._call("neg")

    def __abs__(self) -> Any:
        return self._call("abs")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or (name not in TABLE and name not in ALIASES):
            hint = suggestion(name, [*TABLE, *ALIASES])
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

        def method(*args: Any, **kw: Any) -> Any:
            return self._call(name, *args, **kw)

        method.__name__, method.__doc__ = name, function(name).__doc__
        return method

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLE, *ALIASES})


class Vector(_Holder):
    """One-dimensional floats: `Vector([1, 2, 3])`."""

    __slots__ = ()
    rank = 1

    @classmethod
    def from_slice(cls, data: Sequence[float] | npt.NDArray[Any], *, backend: str | None = None) -> "Vector":
        """A vector with a copy of `data`."""
        return cls(data, backend=backend)

    def __matmul__(self, other: Any) -> Any:
        other_rank = getattr(other, "ndim", 1)
        return self._call("dot" if other_rank == 1 else "vecmat", other)


class Matrix(_Holder):
    """Two-dimensional floats, row-major: `Matrix([[1, 2], [3, 4]])`."""

    __slots__ = ()
    rank = 2

    @classmethod
    def from_slice(
        cls, rows: int, cols: int, data: Sequence[float] | npt.NDArray[Any], *, backend: str | None = None
    ) -> "Matrix":
        """A rows × cols matrix from row-major data; ShapeError when the length is not rows·cols."""
        flat = np.asarray(data).reshape(-1)
        if flat.size != rows * cols:
            raise ShapeError(f"Matrix.from_slice: {rows}×{cols} needs {rows * cols} values, got {flat.size}")
        array = flat if isinstance(data, np.ndarray) else flat.astype(np.float32)
        return cls(array.reshape(rows, cols), backend=backend)

    @property
    def rows(self) -> int:
        return int(self.array.shape[0])

    @property
    def cols(self) -> int:
        return int(self.array.shape[1])

    @property
    def T(self) -> "Matrix":
        """The transpose, as a new row-major matrix."""
        return self._call("transpose")  # type: ignore[no-any-return]

    def __matmul__(self, other: Any) -> Any:
        other_rank = getattr(other, "ndim", 2)
        return self._call("matvec" if other_rank == 1 else "matmul", other)
