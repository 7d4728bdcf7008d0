"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

import numpy as np
from collections.abc import Sequence
from numpy.typing import NDArray
from trueno._types import FormatName, Nested, _Foreign
from trueno.arrays import Matrix, Vector
from typing import Any, ClassVar, NoReturn, overload

class QuantizedMatrix:
    """A matrix in blocks of a few bits per element: `bytes` uint8 [rows, bytes per row], `shape`, `format`."""

    __array_ufunc__: ClassVar[None]  # type: ignore[assignment,unused-ignore]
    @property
    def bytes(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def format(self) -> FormatName: ...
    _columns: bool
    def __init__(self, bytes: Any, shape: Sequence[int], format: FormatName | str) -> None: ...
    def _set(self, data: Any, shape: tuple[int, int], name: str, columns: bool) -> None: ...
    def _like(self, data: Any, shape: tuple[int, int], columns: bool, name: str='') -> QuantizedMatrix: ...
    def _of_bytes(self, data: Any) -> QuantizedMatrix:
        """The same matrix on other memory; the object itself if the memory is its own."""
    @property
    def _blocks(self) -> tuple[Any, str, bool]:
        """What ops need: the bytes, their format, and whether blocks run along columns."""
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int:
        """Elements."""
    @property
    def nbytes(self) -> int: ...
    @property
    def T(self) -> QuantizedMatrix:
        """The transpose as a view: the same bytes, read as columns."""
    def dequantize(self) -> Any:
        """The numbers as float32 [rows, columns], on the device of the bytes: `trueno.dequantize(q)`."""
    def interleaved(self) -> QuantizedMatrix:
        """The same matrix with every 16 rows of blocks interleaved: a copy of the same size, in the format `…_r16`."""
    def plain(self) -> QuantizedMatrix:
        """The same matrix with its blocks row by row, as files hold them; itself, if it is plain already."""
    def _moved(self, move: Any) -> Any:
        """The bytes in another order, on the same device: those of a device pass through the host."""
    def __getitem__(self, rows: slice | Sequence[int] | NDArray[np.integer[Any]]) -> QuantizedMatrix: ...
    __iter__: ClassVar[None]  # type: ignore[assignment,unused-ignore]
    def __len__(self) -> int: ...
    def __array__(self, *_: Any, **__: Any) -> NoReturn: ...
    @overload
    def __matmul__(self, x: Vector) -> Vector: ...
    @overload
    def __matmul__(self, x: Matrix) -> Matrix: ...
    @overload
    def __matmul__(self, x: NDArray[Any] | Nested) -> NDArray[Any]: ...
    @overload
    def __matmul__(self, x: _Foreign) -> _Foreign: ...
    @overload
    def __rmatmul__(self, x: Vector) -> Vector: ...
    @overload
    def __rmatmul__(self, x: Matrix) -> Matrix: ...
    @overload
    def __rmatmul__(self, x: NDArray[Any] | Nested) -> NDArray[Any]: ...
    @overload
    def __rmatmul__(self, x: _Foreign) -> _Foreign: ...
    def __eq__(self, other: object) -> bool:
        """Whether shape, format, orientation and every byte are the same; DeviceError for bytes on a device."""
    __hash__: ClassVar[None]  # type: ignore[assignment,unused-ignore]
    def __repr__(self) -> str: ...
