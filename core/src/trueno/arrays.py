"""`Vector` and `Matrix`: thin, typed holders of an array, with the table's ops as methods and operators.

They hold any array that the functional API accepts (NumPy's, or a device's) and add shape checks, a
readable repr, and a backend chosen at construction.  Row-major; float32 unless the data have another float type.

They copy host data; a device's array they hold itself, and everything computed from it stays on
that device.  Nothing is moved silently: elements, comparisons and NumPy's functions other than ops require `.numpy()`
first.  Only pickling copies the data to the host, because another process may not have the device.
"""

from collections.abc import Iterator, Sequence
from math import prod
from operator import index
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from trueno.discovery import registry
from trueno.discovery.protocol import DeviceBackend
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.half import is_float, is_half
from trueno.dispatch.transfer import device_of, empty, host, imported, to, unwrap
from trueno.errors import DeviceError, DtypeError, ParameterError, ShapeError, dimensions
from trueno.floatenv import ieee
from trueno.operators import Operators
from trueno.programs.fused import narrowed


def _installed(kind: str, backend: str | None) -> None:
    """Raise UnknownBackend, or ParameterError for what is not a name."""
    if backend is None:
        return
    if not isinstance(backend, str):
        raise ParameterError(f'{kind}: backend is {backend!r}; it must be the name of one, such as "simd"')
    if registry.named(backend) not in registry.entries():
        registry.load(backend.lower())  # raises with a suggestion


def _check_backend(kind: str, array: Any, backend: str | None) -> None:
    """Raise DeviceError if the data live on one device and a backend is to compute on another, UnknownBackend."""
    _installed(kind, backend)
    entry = device_of(array)
    if entry is not None and backend is not None and registry.named(backend) != entry.name:
        raise DeviceError(
            f"{kind}: the data live on {entry.name}, but backend is {backend!r}; "
            f"move them: .to({backend!r}), or .numpy()"
        )


class _Holder(Operators):
    """The common base of Vector and Matrix."""

    __slots__ = ("array", "backend")
    array: Any
    backend: str | None

    def __init__(self, data: Any, dtype: npt.DTypeLike | None = None, *, backend: str | None = None) -> None:
        source: Any = data.array if isinstance(data, _Holder) else data
        if device_of(source) is not None:
            self._hold(source, dtype, backend)
            return
        if hasattr(source, "__dlpack__"):
            source = imported(type(self).__name__, "the data", source)
        source = list(source) if isinstance(source, Iterator) else source
        try:
            np.dtype(dtype)
        except TypeError:
            problem = f"dtype is {dtype!r}; give one of floats, such as numpy.float32; a backend is backend="
            raise DtypeError(f"{type(self).__name__}: {problem}") from None
        try:
            with np.errstate(over="ignore"), ieee():
                half = dtype is not None and is_half(np.dtype(dtype))
                array = np.array(source, dtype=None if half else dtype, order="C")
                if half:
                    array = narrowed(array.astype(np.float64), np.dtype(dtype))
                elif dtype is None and not hasattr(source, "__array__") and array.dtype.kind in "iuf":
                    array = array.astype(np.float32)
        except ValueError:
            raise ShapeError(
                f"{type(self).__name__}: the data are ragged; every row must have the same length"
            ) from None
        except (TypeError, OverflowError) as error:
            raise DtypeError(f"{type(self).__name__}: the data are not an array of numbers ({error})") from None
        if dtype is None and array.size == 0:
            array = array.astype(np.float32)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if not is_float(array.dtype):
            raise DtypeError(f"{type(self).__name__}: data are {array.dtype}; convert them to float32 or float64")
        if array.ndim != self.rank:
            raise ShapeError(
                f"{type(self).__name__}: data have shape {array.shape}, but it has {dimensions(self.rank)}"
            )
        _installed(type(self).__name__, backend)
        self.array = array
        self.backend = backend

    def _hold(self, array: Any, dtype: npt.DTypeLike | None, backend: str | None) -> None:
        """Hold a device's array itself."""
        kind, own_dtype, shape = type(self).__name__, np.dtype(array.dtype), tuple(array.shape)
        if not is_float(own_dtype) or (dtype is not None and np.dtype(dtype) != own_dtype):
            wanted = "only floats are allowed" if dtype is None else f"{np.dtype(dtype)} was requested"
            raise DtypeError(f"{kind}: data are {own_dtype}, but {wanted}; convert them before trueno.to")
        if len(shape) != self.rank:
            raise ShapeError(f"{kind}: data have shape {shape}, but it has {dimensions(self.rank)}")
        _check_backend(kind, array, backend)
        self.array, self.backend = array, backend

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each axis."""
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.rank

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The float dtype of the elements, as NumPy's."""
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype

    @property
    def device(self) -> str:
        """Where the data live: the backend's name, or `host` for NumPy memory."""
        entry = device_of(self.array)
        return "host" if entry is None else entry.name

    def with_backend(self, backend: str | None) -> Any:
        """The same data, computed on `backend` from now on; DeviceError where they live on another device."""
        _check_backend(type(self).__name__, self.array, backend)
        return self._wrap(self.array, backend)

    def to(self, backend: str) -> Any:
        """The same data as an array of `backend`'s own type (`trueno.to`); itself if they are there already.

        On a device the data decide where ops run, so a backend chosen at construction is dropped.
        """
        there = to(self.array, backend)
        if there is self.array:
            return self
        return self._wrap(there, self.backend if device_of(there) is None else None)

    def numpy(self) -> npt.NDArray[Any]:
        """The data as a NumPy array: the held array on the host, a copy from a device."""
        return host("numpy", self.array)

    def to_vec(self) -> list[Any]:
        """The data as a Python list, copied to the host from a device."""
        return self.numpy().tolist()  # type: ignore[no-any-return]

    tolist = to_vec

    def item(self) -> float:
        """The one element as a number of Python, copied to the host from a device; ShapeError if there are more."""
        if self.size != 1:
            raise ShapeError(f"{type(self).__name__}: it has {self.size} elements; only a single one is a number")
        return float(self.numpy().reshape(()))

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            problem = f"the truth value of {self.size} elements is ambiguous"
            raise ShapeError(f"{type(self).__name__}: {problem}; call .numpy().any() or .numpy().all()")
        if device_of(self.array) is not None:
            self._away("be a condition", DeviceError)
        return bool(self.array.reshape(()))

    def copy(self) -> Any:
        """The same data in memory of its own, on the same device."""
        return self.__deepcopy__({})

    def astype(self, dtype: npt.DTypeLike) -> Any:
        """The data in another float dtype; DtypeError for a dtype that is not a float's, and on a device."""
        if device_of(self.array) is not None:
            self._away("change their dtype", DtypeError)
        if not is_float(np.dtype(dtype)):
            name = np.dtype(dtype).name
            raise DtypeError(f"{type(self).__name__}: only floats are held, not {name}: .numpy().astype({name!r})")
        return type(self)(self.array, dtype=dtype, backend=self.backend)

    def reshape(self, *shape: Any) -> Any:
        """The same elements as a Vector or a Matrix, which shares them where it can; ShapeError for other ranks."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if len(wanted) not in (1, 2) or not hasattr(self.array, "reshape"):
            problem = f"cannot have shape {tuple(wanted)}"
            raise ShapeError(f"{type(self).__name__}: {self.size} elements {problem} here: .numpy().reshape{wanted}")
        try:
            return self._wrap(self.array.reshape(tuple(wanted)), self.backend)
        except (ValueError, TypeError) as error:
            raise ShapeError(f"{type(self).__name__}: shape {self.shape} as {tuple(wanted)}: {error}") from None

    def flatten(self) -> Any:
        """All elements, row by row, as a new Vector."""
        return self.copy().reshape(-1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if device_of(self.array) is not None:
            self._away("become a NumPy array automatically", TypeError)
        if dtype is None or np.dtype(dtype) == self.array.dtype:
            return self.array.copy() if copy else self.array  # type: ignore[no-any-return]
        if copy is False:
            raise ValueError(f"{type(self).__name__} is {self.array.dtype}: a {dtype} array needs a copy")
        return self.array.astype(dtype)  # type: ignore[no-any-return]

    def __dlpack__(self, **kw: Any) -> Any:
        """The DLPack capsule of the held array, on its own device; BufferError where it has none."""
        if not hasattr(self.array, "__dlpack__"):
            self._away("be exported: its arrays have no DLPack", BufferError)
        return self.array.__dlpack__(**kw)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """The DLPack device of the held array."""
        if not hasattr(self.array, "__dlpack_device__"):
            self._away("be exported: its arrays have no DLPack", BufferError)
        return self.array.__dlpack_device__()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if device_of(self.array) is not None:
            self._away("be read one by one", DeviceError)
        return map(self._wrap_result, self.array)

    def __getitem__(self, index: Any) -> Any:
        if device_of(self.array) is not None and not hasattr(self.array, "__getitem__"):
            self._away("be indexed", DeviceError)
        return self._wrap_result(self.array[index])

    def _away(self, what: str, error: type[Exception]) -> NoReturn:
        raise error(f"{type(self).__name__}: the data live on {self.device} and cannot {what}; call .numpy() first")

    def __repr__(self) -> str:
        size = "×".join(map(str, self.shape))
        if device_of(self.array) is not None:  # printing moves nothing
            return f"{type(self).__name__}(on {self.device}, {size} {self.dtype})"
        body = np.array2string(self.array, threshold=12, edgeitems=3, precision=4)
        on = f", backend={self.backend!r}" if self.backend else ""
        return f"{type(self).__name__}({body}, {size} {self.dtype}{on})"

    def __getstate__(self) -> tuple[Any, Any]:
        """For pickle: data on a device are copied to the host, and are on the host when loaded."""
        return (self.array, self.backend) if device_of(self.array) is None else (self.numpy(), None)

    def __setstate__(self, state: tuple[Any, Any]) -> None:
        self.array, self.backend = state

    def __copy__(self) -> Any:
        """A holder that shares the array."""
        return self._wrap(self.array, self.backend)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A holder of a copy of the array, on the same device."""
        entry = device_of(self.array)
        if entry is None:
            return self._wrap(self.array.copy(), self.backend)
        backend = cast(DeviceBackend, registry.load(entry.name))
        with wrapping_errors("copy", entry.name):
            copied = empty(backend, self.shape, self.dtype)
            backend.copy(self.array, copied)
        return self._wrap(copied, self.backend)

    @staticmethod
    def _wrap(array: Any, backend: str | None) -> "Vector | Matrix":
        holder = Vector.__new__(Vector) if len(array.shape) == 1 else Matrix.__new__(Matrix)
        holder.array, holder.backend = array, backend
        return holder

    def _wrap_result(self, result: Any) -> Any:
        if not isinstance(result, np.ndarray) and device_of(result) is None:
            return result
        floats = is_float(np.dtype(result.dtype))
        return self._wrap(result, self.backend) if len(result.shape) in (1, 2) and floats else result


class Vector(_Holder):
    """One-dimensional floats: `Vector([1, 2, 3])`.  Ops are methods; `.numpy()` has everything else of NumPy.

    data: a list, or an array of any library; host data are copied, a device's array is held itself.  dtype: a float
    dtype; by default the array's, and float32 for a list.  backend: where its ops run; the best one by default.
    DtypeError for other dtypes, ShapeError for another number of axes.
    """

    __slots__ = ()
    rank = 1

    @classmethod
    def from_slice(cls, data: Sequence[float] | npt.NDArray[Any], *, backend: str | None = None) -> "Vector":
        """A vector with a copy of `data`."""
        return cls(data, backend=backend)

    @property
    def T(self) -> "Vector":
        """The vector itself, as in NumPy: one axis has no transpose; `.reshape(-1, 1)` makes a column."""
        return self


class Matrix(_Holder):
    """Two-dimensional floats, row-major: `Matrix([[1, 2], [3, 4]])`.

    data, dtype, backend: as of a `Vector`.  Ops are methods; a reduction without
    `axis` gives one value per row.  `.numpy()` has everything else of NumPy.
    """

    __slots__ = ()
    rank = 2

    @classmethod
    def from_slice(
        cls, rows: int, cols: int, data: Sequence[float] | npt.NDArray[Any], *, backend: str | None = None
    ) -> "Matrix":
        """A rows × cols matrix from row-major data; ShapeError when the length is not rows·cols."""
        try:
            rows, cols = index(rows), index(cols)
        except TypeError:
            reason = f"rows and cols are {type(rows).__name__} and {type(cols).__name__}; they must be two integers"
            raise ShapeError(f"Matrix.from_slice: {reason}") from None
        source: Any = (
            unwrap(data) if device_of(data) is not None else imported("Matrix.from_slice", "data", unwrap(data))
        )
        if prod(source.shape) != rows * cols:
            size = prod(source.shape)
            raise ShapeError(f"Matrix.from_slice: {rows}×{cols} needs {rows * cols} values, got {size}")
        if device_of(source) is None and not hasattr(data, "__array__"):
            with ieee():
                source = source.astype(np.float32)
        return cls(source.reshape((rows, cols)), backend=backend)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.shape[0]

    @property
    def cols(self) -> int:
        """The number of columns."""
        return self.shape[1]

    @property
    def T(self) -> "Matrix":
        """The transpose, as a new row-major matrix."""
        return self._call("transpose")  # type: ignore[no-any-return]
