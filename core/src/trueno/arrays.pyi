"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

import numpy as np
import numpy.typing as npt
from collections.abc import Iterator, Sequence
from numpy.typing import NDArray
from trueno._types import Arrays, Backend, Dtype, Holder, Indices, Line, Number, Operand, Plane, Rank1, Rank2, _Foreign, _Out, _S
from trueno.quant.matrix import QuantizedMatrix
from types import EllipsisType
from typing import Any, ClassVar, Literal, NoReturn, Self, overload

class _Holder:
    """The common base of Vector and Matrix."""

    array: Any
    backend: str | None
    def __init__(
        self, data: Operand | Iterator[float], dtype: Dtype | None = None, *, backend: Backend | None = None
    ) -> None: ...
    def _hold(self, array: Any, dtype: npt.DTypeLike | None, backend: str | None) -> None:
        """Hold a device's array itself."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each axis."""
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The float dtype of the elements, as NumPy's."""
    @property
    def device(self) -> str:
        """Where the data live: the backend's name, or `host` for NumPy memory."""
    def with_backend(self, backend: Backend | None) -> Self:
        """The same data, computed on `backend` from now on; DeviceError where they live on another device."""
    def to(self, backend: Backend) -> Self:
        """The same data as an array of `backend`'s own type (`trueno.to`); itself if they are there already."""
    def numpy(self) -> npt.NDArray[Any]:
        """The data as a NumPy array: the held array on the host, a copy from a device."""
    def to_vec(self) -> list[Any]:
        """The data as a Python list, copied to the host from a device."""
    tolist = to_vec
    def item(self) -> float:
        """The one element as a number of Python, copied to the host from a device; ShapeError if there are more."""
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def copy(self) -> Self:
        """The same data in memory of its own, on the same device."""
    def astype(self, dtype: Dtype) -> Self:
        """The data in another float dtype; DtypeError for a dtype that is not a float's, and on a device."""
    def reshape(self, *shape: Any) -> Any:
        """The same elements as a Vector or a Matrix, which shares them where it can; ShapeError for other ranks."""
    def flatten(self) -> Vector:
        """All elements, row by row, as a new Vector."""
    def __array__(self, dtype: Any=None, copy: bool | None=None) -> npt.NDArray[Any]: ...
    def __dlpack__(self, **kw: Any) -> Any:
        """The DLPack capsule of the held array, on its own device; BufferError where it has none."""
    def __dlpack_device__(self) -> tuple[Any, Any]:
        """The DLPack device of the held array."""
    def __len__(self) -> int: ...
    def _away(self, what: str, error: type[Exception]) -> NoReturn: ...
    def __repr__(self) -> str: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: dict[int, Any]) -> Self: ...
    @staticmethod
    def _wrap(array: Any, backend: str | None) -> Vector | Matrix: ...
    def _wrap_result(self, result: Any) -> Any: ...
    __array_priority__: ClassVar[int]  # type: ignore[assignment,unused-ignore]
    rank: ClassVar[int]  # type: ignore[assignment,unused-ignore]
    def _call(self, name: str, *args: Any, bare: bool=False, **kw: Any) -> Any:
        """Call an op on this holder's backend, with the holder as first operand unless `bare`."""
    def __neg__(self) -> Self: ...
    def __abs__(self) -> Self: ...
    def __eq__(self, other: object) -> NDArray[np.bool]: ...
    __hash__: ClassVar[None]  # type: ignore[assignment,unused-ignore]
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        """A NumPy function of elements, called with a holder: the op of that name, or NumPy's own result."""
    def __ne__(self, other: object) -> NDArray[np.bool]: ...
    def __lt__(self, other: Operand) -> NDArray[np.bool]: ...
    def __le__(self, other: Operand) -> NDArray[np.bool]: ...
    def __gt__(self, other: Operand) -> NDArray[np.bool]: ...
    def __ge__(self, other: Operand) -> NDArray[np.bool]: ...

class Vector(_Holder):
    """One-dimensional floats: `Vector([1, 2, 3])`.  Ops are methods; `.numpy()` has everything else of NumPy."""

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> np.floating[Any]: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any] | Sequence[int] | EllipsisType) -> Vector: ...
    @overload
    def __getitem__(self, index: tuple[Any, ...] | None) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    @overload
    def __matmul__(self, other: Vector | Line | Sequence[Number]) -> np.floating[Any]: ...
    @overload
    def __matmul__(self, other: Matrix | Plane) -> Vector: ...
    @overload
    def __matmul__(self, other: Arrays) -> Any: ...
    @overload
    def __rmatmul__(self, other: Line | Sequence[Number]) -> np.floating[Any]: ...
    @overload
    def __rmatmul__(self, other: Plane) -> Vector: ...
    @overload
    def __rmatmul__(self, other: Arrays) -> Any: ...
    rank: ClassVar[int]  # type: ignore[assignment,unused-ignore]
    @classmethod
    def from_slice(cls, data: Sequence[float] | npt.NDArray[Any], *, backend: str | None=None) -> Vector:
        """A vector with a copy of `data`."""
    @property
    def T(self) -> Vector:
        """The vector itself, as in NumPy: one axis has no transpose; `.reshape(-1, 1)` makes a column."""
    @overload
    def __add__(self, other: Matrix) -> Matrix: ...
    @overload
    def __add__(self, other: Rank1) -> Vector: ...
    @overload
    def __add__(self, other: Operand) -> Any: ...
    @overload
    def __radd__(self, other: Matrix) -> Matrix: ...
    @overload
    def __radd__(self, other: Vector) -> Vector: ...
    @overload
    def __radd__(self, other: Rank1) -> Vector: ...
    @overload
    def __radd__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __radd__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __radd__(self, other: Holder) -> Any: ...
    @overload
    def __radd__(self, other: Operand) -> Any: ...
    @overload
    def __sub__(self, other: Matrix) -> Matrix: ...
    @overload
    def __sub__(self, other: Rank1) -> Vector: ...
    @overload
    def __sub__(self, other: Operand) -> Any: ...
    @overload
    def __rsub__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rsub__(self, other: Vector) -> Vector: ...
    @overload
    def __rsub__(self, other: Rank1) -> Vector: ...
    @overload
    def __rsub__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rsub__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rsub__(self, other: Holder) -> Any: ...
    @overload
    def __rsub__(self, other: Operand) -> Any: ...
    @overload
    def __mul__(self, other: Matrix) -> Matrix: ...
    @overload
    def __mul__(self, other: Rank1) -> Vector: ...
    @overload
    def __mul__(self, other: Operand) -> Any: ...
    @overload
    def __rmul__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rmul__(self, other: Vector) -> Vector: ...
    @overload
    def __rmul__(self, other: Rank1) -> Vector: ...
    @overload
    def __rmul__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rmul__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rmul__(self, other: Holder) -> Any: ...
    @overload
    def __rmul__(self, other: Operand) -> Any: ...
    @overload
    def __truediv__(self, other: Matrix) -> Matrix: ...
    @overload
    def __truediv__(self, other: Rank1) -> Vector: ...
    @overload
    def __truediv__(self, other: Operand) -> Any: ...
    @overload
    def __rtruediv__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rtruediv__(self, other: Vector) -> Vector: ...
    @overload
    def __rtruediv__(self, other: Rank1) -> Vector: ...
    @overload
    def __rtruediv__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rtruediv__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rtruediv__(self, other: Holder) -> Any: ...
    @overload
    def __rtruediv__(self, other: Operand) -> Any: ...
    @overload
    def __pow__(self, other: Matrix) -> Matrix: ...
    @overload
    def __pow__(self, other: Rank1) -> Vector: ...
    @overload
    def __pow__(self, other: Operand) -> Any: ...
    @overload
    def __rpow__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rpow__(self, other: Vector) -> Vector: ...
    @overload
    def __rpow__(self, other: Rank1) -> Vector: ...
    @overload
    def __rpow__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rpow__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rpow__(self, other: Holder) -> Any: ...
    @overload
    def __rpow__(self, other: Operand) -> Any: ...
    @overload
    def relu(self, *, out: None = None) -> Vector:
        """max(x, 0)."""
    @overload
    def relu(self, *, out: _Out) -> _Out: ...
    @overload
    def leaky_relu(self, *, slope: Number = 0.01, out: None = None) -> Vector:
        """x where x ≥ 0, else slope · x."""
    @overload
    def leaky_relu(self, *, slope: Number = 0.01, out: _Out) -> _Out: ...
    @overload
    def elu(self, *, alpha: Number = 1.0, out: None = None) -> Vector:
        """x where x > 0, else alpha · (eˣ − 1)."""
    @overload
    def elu(self, *, alpha: Number = 1.0, out: _Out) -> _Out: ...
    @overload
    def selu(self, *, out: None = None) -> Vector:
        """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""
    @overload
    def selu(self, *, out: _Out) -> _Out: ...
    @overload
    def gelu(self, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Vector:
        """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    @overload
    def gelu(self, *, approximate: Literal["tanh", "none"] = "tanh", out: _Out) -> _Out: ...
    @overload
    def sigmoid(self, *, out: None = None) -> Vector:
        """1 / (1 + e⁻ˣ)."""
    @overload
    def sigmoid(self, *, out: _Out) -> _Out: ...
    @overload
    def silu(self, *, out: None = None) -> Vector:
        """x / (1 + e⁻ˣ)."""
    @overload
    def silu(self, *, out: _Out) -> _Out: ...
    @overload
    def mish(self, *, out: None = None) -> Vector:
        """x · tanh(softplus(x))."""
    @overload
    def mish(self, *, out: _Out) -> _Out: ...
    @overload
    def hardswish(self, *, out: None = None) -> Vector:
        """x · clip(x + 3, 0, 6) / 6."""
    @overload
    def hardswish(self, *, out: _Out) -> _Out: ...
    @overload
    def softplus(self, *, out: None = None) -> Vector:
        """ln(1 + eˣ)."""
    @overload
    def softplus(self, *, out: _Out) -> _Out: ...
    @overload
    def log_sigmoid(self, *, out: None = None) -> Vector:
        """ln(1 / (1 + e⁻ˣ))."""
    @overload
    def log_sigmoid(self, *, out: _Out) -> _Out: ...
    @overload
    def swiglu(self, up: Matrix, *, out: None = None) -> Matrix:
        """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""
    @overload
    def swiglu(self, up: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def swiglu(self, up: Operand, *, out: None = None) -> Any: ...
    @overload
    def swiglu(self, up: Operand, *, out: _Out) -> _Out: ...
    @overload
    def geglu(self, up: Matrix, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Matrix:
        """gelu(gate) · up, the gated unit of Gemma and T5."""
    @overload
    def geglu(self, up: Rank1, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Vector: ...
    @overload
    def geglu(self, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Any: ...
    @overload
    def geglu(self, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: _Out) -> _Out: ...
    @overload
    def bias_activation(
        self, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> Vector:
        """activation(x + bias), what follows the product of a linear layer."""
    @overload
    def bias_activation(
        self, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: _Out
    ) -> _Out: ...
    @overload
    def add(self, y: Matrix, *, out: None = None) -> Matrix:
        """x + y."""
    @overload
    def add(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def add(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def add(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def residual_add(self, residual: Matrix, *, out: None = None) -> Matrix:
        """x + residual, the sum around a layer: `add` under the name that a model's code uses."""
    @overload
    def residual_add(self, residual: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def residual_add(self, residual: Operand, *, out: None = None) -> Any: ...
    @overload
    def residual_add(self, residual: Operand, *, out: _Out) -> _Out: ...
    @overload
    def sub(self, y: Matrix, *, out: None = None) -> Matrix:
        """x − y."""
    @overload
    def sub(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def sub(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def sub(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def mul(self, y: Matrix, *, out: None = None) -> Matrix:
        """x · y."""
    @overload
    def mul(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def mul(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def mul(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def div(self, y: Matrix, *, out: None = None) -> Matrix:
        """x / y."""
    @overload
    def div(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def div(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def div(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def minimum(self, y: Matrix, *, out: None = None) -> Matrix:
        """min(x, y)."""
    @overload
    def minimum(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def minimum(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def minimum(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def maximum(self, y: Matrix, *, out: None = None) -> Matrix:
        """max(x, y)."""
    @overload
    def maximum(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def maximum(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def maximum(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def copysign(self, y: Matrix, *, out: None = None) -> Matrix:
        """|x| with the sign of y."""
    @overload
    def copysign(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def copysign(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def copysign(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def pow(self, y: Matrix, *, out: None = None) -> Matrix:
        """xʸ."""
    @overload
    def pow(self, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def pow(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def pow(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def fma(self, y: Matrix, z: Rank2, *, out: None = None) -> Matrix:
        """x · y + z, the product not rounded."""
    @overload
    def fma(self, y: Rank2, z: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def fma(self, y: Rank1, z: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def fma(self, y: Operand, z: Operand, *, out: None = None) -> Any: ...
    @overload
    def fma(self, y: Operand, z: Operand, *, out: _Out) -> _Out: ...
    @overload
    def lerp(self, y: Matrix, t: Number, *, out: None = None) -> Matrix:
        """x + t · (y − x)."""
    @overload
    def lerp(self, y: Rank1, t: Number, *, out: None = None) -> Vector: ...
    @overload
    def lerp(self, y: Operand, t: Number, *, out: None = None) -> Any: ...
    @overload
    def lerp(self, y: Operand, t: Number, *, out: _Out) -> _Out: ...
    @overload
    def scale(self, factor: Number, *, out: None = None) -> Vector:
        """factor · x."""
    @overload
    def scale(self, factor: Number, *, out: _Out) -> _Out: ...
    @overload
    def clamp(self, min: Number, max: Number, *, out: None = None) -> Vector:
        """min(max(x, min), max)."""
    @overload
    def clamp(self, min: Number, max: Number, *, out: _Out) -> _Out: ...
    @overload
    def concatenate(self, b: Matrix, *, axis: int = 0, out: None = None) -> Matrix:
        """a, and after it b, along an axis."""
    @overload
    def concatenate(self, b: Rank1, *, axis: int = 0, out: None = None) -> Vector: ...
    @overload
    def concatenate(self, b: Operand, *, axis: int = 0, out: None = None) -> Any: ...
    @overload
    def concatenate(self, b: Operand, *, axis: int = 0, out: _Out) -> _Out: ...
    @overload
    def abs(self, *, out: None = None) -> Vector:
        """|x|."""
    @overload
    def abs(self, *, out: _Out) -> _Out: ...
    @overload
    def neg(self, *, out: None = None) -> Vector:
        """−x."""
    @overload
    def neg(self, *, out: _Out) -> _Out: ...
    @overload
    def sqrt(self, *, out: None = None) -> Vector:
        """√x."""
    @overload
    def sqrt(self, *, out: _Out) -> _Out: ...
    @overload
    def rsqrt(self, *, out: None = None) -> Vector:
        """1 / √x."""
    @overload
    def rsqrt(self, *, out: _Out) -> _Out: ...
    @overload
    def recip(self, *, out: None = None) -> Vector:
        """1 / x."""
    @overload
    def recip(self, *, out: _Out) -> _Out: ...
    @overload
    def exp(self, *, out: None = None) -> Vector:
        """eˣ."""
    @overload
    def exp(self, *, out: _Out) -> _Out: ...
    @overload
    def exp2(self, *, out: None = None) -> Vector:
        """2ˣ."""
    @overload
    def exp2(self, *, out: _Out) -> _Out: ...
    @overload
    def expm1(self, *, out: None = None) -> Vector:
        """eˣ − 1, accurate near 0."""
    @overload
    def expm1(self, *, out: _Out) -> _Out: ...
    @overload
    def ln(self, *, out: None = None) -> Vector:
        """Natural logarithm of x."""
    @overload
    def ln(self, *, out: _Out) -> _Out: ...
    @overload
    def log1p(self, *, out: None = None) -> Vector:
        """ln(1 + x), accurate near 0."""
    @overload
    def log1p(self, *, out: _Out) -> _Out: ...
    @overload
    def log2(self, *, out: None = None) -> Vector:
        """Logarithm of x to base 2."""
    @overload
    def log2(self, *, out: _Out) -> _Out: ...
    @overload
    def log10(self, *, out: None = None) -> Vector:
        """Logarithm of x to base 10."""
    @overload
    def log10(self, *, out: _Out) -> _Out: ...
    @overload
    def sin(self, *, out: None = None) -> Vector:
        """sin x, x in radians."""
    @overload
    def sin(self, *, out: _Out) -> _Out: ...
    @overload
    def cos(self, *, out: None = None) -> Vector:
        """cos x, x in radians."""
    @overload
    def cos(self, *, out: _Out) -> _Out: ...
    @overload
    def tan(self, *, out: None = None) -> Vector:
        """sin x / cos x, x in radians."""
    @overload
    def tan(self, *, out: _Out) -> _Out: ...
    @overload
    def asin(self, *, out: None = None) -> Vector:
        """Angle in [−π/2, π/2] whose sine is x."""
    @overload
    def asin(self, *, out: _Out) -> _Out: ...
    @overload
    def acos(self, *, out: None = None) -> Vector:
        """Angle in [0, π] whose cosine is x."""
    @overload
    def acos(self, *, out: _Out) -> _Out: ...
    @overload
    def atan(self, *, out: None = None) -> Vector:
        """Angle in [−π/2, π/2] whose tangent is x."""
    @overload
    def atan(self, *, out: _Out) -> _Out: ...
    @overload
    def sinh(self, *, out: None = None) -> Vector:
        """(eˣ − e⁻ˣ) / 2, accurate near 0."""
    @overload
    def sinh(self, *, out: _Out) -> _Out: ...
    @overload
    def cosh(self, *, out: None = None) -> Vector:
        """(eˣ + e⁻ˣ) / 2."""
    @overload
    def cosh(self, *, out: _Out) -> _Out: ...
    @overload
    def tanh(self, *, out: None = None) -> Vector:
        """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""
    @overload
    def tanh(self, *, out: _Out) -> _Out: ...
    @overload
    def asinh(self, *, out: None = None) -> Vector:
        """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""
    @overload
    def asinh(self, *, out: _Out) -> _Out: ...
    @overload
    def acosh(self, *, out: None = None) -> Vector:
        """ln(x + √(x² − 1)), accurate near 1."""
    @overload
    def acosh(self, *, out: _Out) -> _Out: ...
    @overload
    def atanh(self, *, out: None = None) -> Vector:
        """ln((1 + x) / (1 − x)) / 2, accurate near 0."""
    @overload
    def atanh(self, *, out: _Out) -> _Out: ...
    @overload
    def floor(self, *, out: None = None) -> Vector:
        """Largest integer ≤ x."""
    @overload
    def floor(self, *, out: _Out) -> _Out: ...
    @overload
    def ceil(self, *, out: None = None) -> Vector:
        """Smallest integer ≥ x."""
    @overload
    def ceil(self, *, out: _Out) -> _Out: ...
    @overload
    def round(self, *, out: None = None) -> Vector:
        """Nearest integer, half to even."""
    @overload
    def round(self, *, out: _Out) -> _Out: ...
    @overload
    def trunc(self, *, out: None = None) -> Vector:
        """x without its fraction: the nearest integer towards 0."""
    @overload
    def trunc(self, *, out: _Out) -> _Out: ...
    @overload
    def fract(self, *, out: None = None) -> Vector:
        """x − trunc(x)."""
    @overload
    def fract(self, *, out: _Out) -> _Out: ...
    @overload
    def signum(self, *, out: None = None) -> Vector:
        """1, −1 or 0: the sign of x."""
    @overload
    def signum(self, *, out: _Out) -> _Out: ...
    @overload
    def vecmat(self, a: Operand, *, out: None = None) -> Vector:
        """y[j] = Σₖ x[k] · a[k,j]."""
    @overload
    def vecmat(self, a: Operand, *, out: _Out) -> _Out: ...
    @overload
    def outer(self, y: Operand, *, out: None = None) -> Matrix:
        """z[i,j] = x[i] · y[j]."""
    @overload
    def outer(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def softmax(self, axis: int = -1, *, out: None = None) -> Vector:
        """e^(x − max x) / Σ e^(x − max x)."""
    @overload
    def softmax(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def log_softmax(self, axis: int = -1, *, out: None = None) -> Vector:
        """x − max x − ln Σ e^(x − max x)."""
    @overload
    def log_softmax(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def layer_norm(self, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None) -> Vector:
        """(x − mean) / √(variance + eps) · w + b."""
    @overload
    def layer_norm(self, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: _Out) -> _Out: ...
    @overload
    def rms_norm(self, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> Vector:
        """x / √(Σ x² / n + eps) · w."""
    @overload
    def rms_norm(self, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: _Out) -> _Out: ...
    @overload
    def residual_rms_norm(
        self, residual: Matrix, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Matrix, Matrix]:
        """h = x + residual and y = rms_norm(h, w), in one read of each."""
    @overload
    def residual_rms_norm(
        self, residual: Rank1, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Vector, Vector]: ...
    @overload
    def residual_rms_norm(
        self, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Any, Any]: ...
    @overload
    def residual_rms_norm(
        self, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: Sequence[_Out]
    ) -> tuple[_Out, _Out]: ...
    @overload
    def normalize(self, axis: int = -1, *, out: None = None) -> Vector:
        """x / √(Σ x²)."""
    @overload
    def normalize(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def zscore(self, axis: int = -1, *, out: None = None) -> Vector:
        """(x − mean) / √(Σ (x − mean)² / n), population."""
    @overload
    def zscore(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def minmax_normalize(self, axis: int = -1, *, out: None = None) -> Vector:
        """(x − min x) / (max x − min x)."""
    @overload
    def minmax_normalize(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def dot(self, y: Matrix, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ x · y."""
    @overload
    def dot(self, y: Matrix, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def dot(self, y: Matrix, *, axis: None, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def dot(self, y: Rank1, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def dot(
        self, y: Rank1, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def dot(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def dot(self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def sum(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Σ x."""
    @overload
    def sum(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def sum(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def sum(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def sum_kahan(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Σ x with a compensated or wider accumulator."""
    @overload
    def sum_kahan(
        self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def sum_kahan(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def sum_kahan(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def sum_of_squares(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Σ x²."""
    @overload
    def sum_of_squares(
        self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def sum_of_squares(
        self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def sum_of_squares(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def mean(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Σ x / n."""
    @overload
    def mean(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def mean(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def mean(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def min(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Smallest element."""
    @overload
    def min(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def min(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def min(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def max(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Largest element."""
    @overload
    def max(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def max(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def max(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def argmin(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> NDArray[np.int64]:
        """Position of the smallest element, int64."""
    @overload
    def argmin(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.int64: ...
    @overload
    def argmin(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def argmin(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def argmax(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> NDArray[np.int64]:
        """Position of the largest element, int64."""
    @overload
    def argmax(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.int64: ...
    @overload
    def argmax(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def argmax(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def norm_l1(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Σ |x|."""
    @overload
    def norm_l1(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def norm_l1(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def norm_l1(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def norm_l2(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """√(Σ x²), the Euclidean length."""
    @overload
    def norm_l2(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def norm_l2(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def norm_l2(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def norm_linf(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """max |x|."""
    @overload
    def norm_linf(
        self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def norm_linf(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def norm_linf(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def variance(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """Σ (x − mean)² / n, population."""
    @overload
    def variance(
        self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def variance(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def variance(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def stddev(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector:
        """√(Σ (x − mean)² / n), population."""
    @overload
    def stddev(self, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def stddev(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def stddev(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def covariance(self, y: Matrix, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ (x − mean x)(y − mean y) / n, population."""
    @overload
    def covariance(self, y: Matrix, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def covariance(
        self, y: Matrix, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def covariance(self, y: Rank1, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def covariance(
        self, y: Rank1, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def covariance(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def covariance(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...
    @overload
    def correlation(self, y: Matrix, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""
    @overload
    def correlation(self, y: Matrix, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def correlation(
        self, y: Matrix, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def correlation(self, y: Rank1, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def correlation(
        self, y: Rank1, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def correlation(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def correlation(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...
    @overload
    def topk(self, k: int = 1, *, out: None = None) -> tuple[Vector, NDArray[np.int64]]:
        """The k largest elements of each row, the largest first, and their positions, int64."""
    @overload
    def topk(self, k: int = 1, *, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...
    @overload
    def sample(
        self, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any:
        """A token drawn by the random number r of [0, 1): a function of its operands, int64."""
    @overload
    def sample(
        self, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: _Out
    ) -> _Out: ...
    absolute = abs
    clip = clamp
    divide = div
    frac = fract
    log = ln
    logsigmoid = log_sigmoid
    multiply = mul
    negative = neg
    power = pow
    reciprocal = recip
    rint = round
    sign = signum
    std = stddev
    subtract = sub
    swish = silu
    var = variance

class Matrix(_Holder):
    """Two-dimensional floats, row-major: `Matrix([[1, 2], [3, 4]])`."""

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Vector: ...
    @overload
    def __getitem__(self, index: slice | EllipsisType) -> Matrix: ...
    @overload
    def __getitem__(self, index: tuple[int, int]) -> np.floating[Any]: ...
    @overload
    def __getitem__(self, index: tuple[slice, int] | tuple[int, slice]) -> Vector: ...
    @overload
    def __getitem__(self, index: tuple[slice, slice]) -> Matrix: ...
    @overload
    def __getitem__(self, index: tuple[Any, ...] | NDArray[Any] | Sequence[int] | None) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    @overload
    def __matmul__(self, other: Vector | Line) -> Vector: ...
    @overload
    def __matmul__(self, other: Matrix | Plane) -> Matrix: ...
    @overload
    def __matmul__(self, other: Arrays) -> Any: ...
    @overload
    def __rmatmul__(self, other: Line | Sequence[Number]) -> Vector: ...
    @overload
    def __rmatmul__(self, other: Plane) -> Matrix: ...
    @overload
    def __rmatmul__(self, other: Arrays) -> Any: ...
    rank: ClassVar[int]  # type: ignore[assignment,unused-ignore]
    @classmethod
    def from_slice(cls, rows: int, cols: int, data: Sequence[float] | npt.NDArray[Any], *, backend: str | None=None) -> Matrix:
        """A rows × cols matrix from row-major data; ShapeError when the length is not rows·cols."""
    @property
    def rows(self) -> int:
        """The number of rows."""
    @property
    def cols(self) -> int:
        """The number of columns."""
    @property
    def T(self) -> Matrix:
        """The transpose, as a new row-major matrix."""
    @overload
    def __add__(self, other: Rank2) -> Matrix: ...
    @overload
    def __add__(self, other: Operand) -> Any: ...
    @overload
    def __radd__(self, other: Matrix) -> Matrix: ...
    @overload
    def __radd__(self, other: Rank2) -> Matrix: ...
    @overload
    def __radd__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __radd__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __radd__(self, other: Holder) -> Any: ...
    @overload
    def __radd__(self, other: Operand) -> Any: ...
    @overload
    def __sub__(self, other: Rank2) -> Matrix: ...
    @overload
    def __sub__(self, other: Operand) -> Any: ...
    @overload
    def __rsub__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rsub__(self, other: Rank2) -> Matrix: ...
    @overload
    def __rsub__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rsub__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rsub__(self, other: Holder) -> Any: ...
    @overload
    def __rsub__(self, other: Operand) -> Any: ...
    @overload
    def __mul__(self, other: Rank2) -> Matrix: ...
    @overload
    def __mul__(self, other: Operand) -> Any: ...
    @overload
    def __rmul__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rmul__(self, other: Rank2) -> Matrix: ...
    @overload
    def __rmul__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rmul__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rmul__(self, other: Holder) -> Any: ...
    @overload
    def __rmul__(self, other: Operand) -> Any: ...
    @overload
    def __truediv__(self, other: Rank2) -> Matrix: ...
    @overload
    def __truediv__(self, other: Operand) -> Any: ...
    @overload
    def __rtruediv__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rtruediv__(self, other: Rank2) -> Matrix: ...
    @overload
    def __rtruediv__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rtruediv__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rtruediv__(self, other: Holder) -> Any: ...
    @overload
    def __rtruediv__(self, other: Operand) -> Any: ...
    @overload
    def __pow__(self, other: Rank2) -> Matrix: ...
    @overload
    def __pow__(self, other: Operand) -> Any: ...
    @overload
    def __rpow__(self, other: Matrix) -> Matrix: ...
    @overload
    def __rpow__(self, other: Rank2) -> Matrix: ...
    @overload
    def __rpow__(self, other: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def __rpow__(self, other: _Foreign) -> _Foreign: ...
    @overload
    def __rpow__(self, other: Holder) -> Any: ...
    @overload
    def __rpow__(self, other: Operand) -> Any: ...
    @overload
    def relu(self, *, out: None = None) -> Matrix:
        """max(x, 0)."""
    @overload
    def relu(self, *, out: _Out) -> _Out: ...
    @overload
    def leaky_relu(self, *, slope: Number = 0.01, out: None = None) -> Matrix:
        """x where x ≥ 0, else slope · x."""
    @overload
    def leaky_relu(self, *, slope: Number = 0.01, out: _Out) -> _Out: ...
    @overload
    def elu(self, *, alpha: Number = 1.0, out: None = None) -> Matrix:
        """x where x > 0, else alpha · (eˣ − 1)."""
    @overload
    def elu(self, *, alpha: Number = 1.0, out: _Out) -> _Out: ...
    @overload
    def selu(self, *, out: None = None) -> Matrix:
        """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""
    @overload
    def selu(self, *, out: _Out) -> _Out: ...
    @overload
    def gelu(self, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Matrix:
        """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    @overload
    def gelu(self, *, approximate: Literal["tanh", "none"] = "tanh", out: _Out) -> _Out: ...
    @overload
    def sigmoid(self, *, out: None = None) -> Matrix:
        """1 / (1 + e⁻ˣ)."""
    @overload
    def sigmoid(self, *, out: _Out) -> _Out: ...
    @overload
    def silu(self, *, out: None = None) -> Matrix:
        """x / (1 + e⁻ˣ)."""
    @overload
    def silu(self, *, out: _Out) -> _Out: ...
    @overload
    def mish(self, *, out: None = None) -> Matrix:
        """x · tanh(softplus(x))."""
    @overload
    def mish(self, *, out: _Out) -> _Out: ...
    @overload
    def hardswish(self, *, out: None = None) -> Matrix:
        """x · clip(x + 3, 0, 6) / 6."""
    @overload
    def hardswish(self, *, out: _Out) -> _Out: ...
    @overload
    def softplus(self, *, out: None = None) -> Matrix:
        """ln(1 + eˣ)."""
    @overload
    def softplus(self, *, out: _Out) -> _Out: ...
    @overload
    def log_sigmoid(self, *, out: None = None) -> Matrix:
        """ln(1 / (1 + e⁻ˣ))."""
    @overload
    def log_sigmoid(self, *, out: _Out) -> _Out: ...
    @overload
    def swiglu(self, up: Rank2, *, out: None = None) -> Matrix:
        """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""
    @overload
    def swiglu(self, up: Operand, *, out: None = None) -> Any: ...
    @overload
    def swiglu(self, up: Operand, *, out: _Out) -> _Out: ...
    @overload
    def geglu(self, up: Rank2, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Matrix:
        """gelu(gate) · up, the gated unit of Gemma and T5."""
    @overload
    def geglu(self, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Any: ...
    @overload
    def geglu(self, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: _Out) -> _Out: ...
    @overload
    def bias_activation(
        self, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> Matrix:
        """activation(x + bias), what follows the product of a linear layer."""
    @overload
    def bias_activation(
        self, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: _Out
    ) -> _Out: ...
    @overload
    def add(self, y: Rank2, *, out: None = None) -> Matrix:
        """x + y."""
    @overload
    def add(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def add(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def residual_add(self, residual: Rank2, *, out: None = None) -> Matrix:
        """x + residual, the sum around a layer: `add` under the name that a model's code uses."""
    @overload
    def residual_add(self, residual: Operand, *, out: None = None) -> Any: ...
    @overload
    def residual_add(self, residual: Operand, *, out: _Out) -> _Out: ...
    @overload
    def sub(self, y: Rank2, *, out: None = None) -> Matrix:
        """x − y."""
    @overload
    def sub(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def sub(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def mul(self, y: Rank2, *, out: None = None) -> Matrix:
        """x · y."""
    @overload
    def mul(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def mul(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def div(self, y: Rank2, *, out: None = None) -> Matrix:
        """x / y."""
    @overload
    def div(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def div(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def minimum(self, y: Rank2, *, out: None = None) -> Matrix:
        """min(x, y)."""
    @overload
    def minimum(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def minimum(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def maximum(self, y: Rank2, *, out: None = None) -> Matrix:
        """max(x, y)."""
    @overload
    def maximum(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def maximum(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def copysign(self, y: Rank2, *, out: None = None) -> Matrix:
        """|x| with the sign of y."""
    @overload
    def copysign(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def copysign(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def pow(self, y: Rank2, *, out: None = None) -> Matrix:
        """xʸ."""
    @overload
    def pow(self, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def pow(self, y: Operand, *, out: _Out) -> _Out: ...
    @overload
    def fma(self, y: Rank2, z: Rank2, *, out: None = None) -> Matrix:
        """x · y + z, the product not rounded."""
    @overload
    def fma(self, y: Operand, z: Operand, *, out: None = None) -> Any: ...
    @overload
    def fma(self, y: Operand, z: Operand, *, out: _Out) -> _Out: ...
    @overload
    def lerp(self, y: Rank2, t: Number, *, out: None = None) -> Matrix:
        """x + t · (y − x)."""
    @overload
    def lerp(self, y: Operand, t: Number, *, out: None = None) -> Any: ...
    @overload
    def lerp(self, y: Operand, t: Number, *, out: _Out) -> _Out: ...
    @overload
    def scale(self, factor: Number, *, out: None = None) -> Matrix:
        """factor · x."""
    @overload
    def scale(self, factor: Number, *, out: _Out) -> _Out: ...
    @overload
    def clamp(self, min: Number, max: Number, *, out: None = None) -> Matrix:
        """min(max(x, min), max)."""
    @overload
    def clamp(self, min: Number, max: Number, *, out: _Out) -> _Out: ...
    @overload
    def rope(
        self, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: None = None
    ) -> Matrix:
        """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims)."""
    @overload
    def rope(
        self, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: _Out
    ) -> _Out: ...
    @overload
    def quantize_rows(
        self, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]:
        """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them."""
    @overload
    def quantize_rows(
        self, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: _Out
    ) -> _Out: ...
    @overload
    def quantize_rows_weighted(
        self, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]:
        """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column."""
    @overload
    def quantize_rows_weighted(
        self, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: _Out
    ) -> _Out: ...
    @overload
    def quant_matmul(
        self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> Matrix:
        """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer."""
    @overload
    def quant_matmul(
        self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: _Out
    ) -> _Out: ...
    @overload
    def quant_matmul_colmajor(self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: None = None) -> Matrix:
        """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j."""
    @overload
    def quant_matmul_colmajor(self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: _Out) -> _Out: ...
    @overload
    def concatenate(self, b: Rank2, *, axis: int = 0, out: None = None) -> Matrix:
        """a, and after it b, along an axis."""
    @overload
    def concatenate(self, b: Operand, *, axis: int = 0, out: None = None) -> Any: ...
    @overload
    def concatenate(self, b: Operand, *, axis: int = 0, out: _Out) -> _Out: ...
    @overload
    def abs(self, *, out: None = None) -> Matrix:
        """|x|."""
    @overload
    def abs(self, *, out: _Out) -> _Out: ...
    @overload
    def neg(self, *, out: None = None) -> Matrix:
        """−x."""
    @overload
    def neg(self, *, out: _Out) -> _Out: ...
    @overload
    def sqrt(self, *, out: None = None) -> Matrix:
        """√x."""
    @overload
    def sqrt(self, *, out: _Out) -> _Out: ...
    @overload
    def rsqrt(self, *, out: None = None) -> Matrix:
        """1 / √x."""
    @overload
    def rsqrt(self, *, out: _Out) -> _Out: ...
    @overload
    def recip(self, *, out: None = None) -> Matrix:
        """1 / x."""
    @overload
    def recip(self, *, out: _Out) -> _Out: ...
    @overload
    def exp(self, *, out: None = None) -> Matrix:
        """eˣ."""
    @overload
    def exp(self, *, out: _Out) -> _Out: ...
    @overload
    def exp2(self, *, out: None = None) -> Matrix:
        """2ˣ."""
    @overload
    def exp2(self, *, out: _Out) -> _Out: ...
    @overload
    def expm1(self, *, out: None = None) -> Matrix:
        """eˣ − 1, accurate near 0."""
    @overload
    def expm1(self, *, out: _Out) -> _Out: ...
    @overload
    def ln(self, *, out: None = None) -> Matrix:
        """Natural logarithm of x."""
    @overload
    def ln(self, *, out: _Out) -> _Out: ...
    @overload
    def log1p(self, *, out: None = None) -> Matrix:
        """ln(1 + x), accurate near 0."""
    @overload
    def log1p(self, *, out: _Out) -> _Out: ...
    @overload
    def log2(self, *, out: None = None) -> Matrix:
        """Logarithm of x to base 2."""
    @overload
    def log2(self, *, out: _Out) -> _Out: ...
    @overload
    def log10(self, *, out: None = None) -> Matrix:
        """Logarithm of x to base 10."""
    @overload
    def log10(self, *, out: _Out) -> _Out: ...
    @overload
    def sin(self, *, out: None = None) -> Matrix:
        """sin x, x in radians."""
    @overload
    def sin(self, *, out: _Out) -> _Out: ...
    @overload
    def cos(self, *, out: None = None) -> Matrix:
        """cos x, x in radians."""
    @overload
    def cos(self, *, out: _Out) -> _Out: ...
    @overload
    def tan(self, *, out: None = None) -> Matrix:
        """sin x / cos x, x in radians."""
    @overload
    def tan(self, *, out: _Out) -> _Out: ...
    @overload
    def asin(self, *, out: None = None) -> Matrix:
        """Angle in [−π/2, π/2] whose sine is x."""
    @overload
    def asin(self, *, out: _Out) -> _Out: ...
    @overload
    def acos(self, *, out: None = None) -> Matrix:
        """Angle in [0, π] whose cosine is x."""
    @overload
    def acos(self, *, out: _Out) -> _Out: ...
    @overload
    def atan(self, *, out: None = None) -> Matrix:
        """Angle in [−π/2, π/2] whose tangent is x."""
    @overload
    def atan(self, *, out: _Out) -> _Out: ...
    @overload
    def sinh(self, *, out: None = None) -> Matrix:
        """(eˣ − e⁻ˣ) / 2, accurate near 0."""
    @overload
    def sinh(self, *, out: _Out) -> _Out: ...
    @overload
    def cosh(self, *, out: None = None) -> Matrix:
        """(eˣ + e⁻ˣ) / 2."""
    @overload
    def cosh(self, *, out: _Out) -> _Out: ...
    @overload
    def tanh(self, *, out: None = None) -> Matrix:
        """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""
    @overload
    def tanh(self, *, out: _Out) -> _Out: ...
    @overload
    def asinh(self, *, out: None = None) -> Matrix:
        """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""
    @overload
    def asinh(self, *, out: _Out) -> _Out: ...
    @overload
    def acosh(self, *, out: None = None) -> Matrix:
        """ln(x + √(x² − 1)), accurate near 1."""
    @overload
    def acosh(self, *, out: _Out) -> _Out: ...
    @overload
    def atanh(self, *, out: None = None) -> Matrix:
        """ln((1 + x) / (1 − x)) / 2, accurate near 0."""
    @overload
    def atanh(self, *, out: _Out) -> _Out: ...
    @overload
    def floor(self, *, out: None = None) -> Matrix:
        """Largest integer ≤ x."""
    @overload
    def floor(self, *, out: _Out) -> _Out: ...
    @overload
    def ceil(self, *, out: None = None) -> Matrix:
        """Smallest integer ≥ x."""
    @overload
    def ceil(self, *, out: _Out) -> _Out: ...
    @overload
    def round(self, *, out: None = None) -> Matrix:
        """Nearest integer, half to even."""
    @overload
    def round(self, *, out: _Out) -> _Out: ...
    @overload
    def trunc(self, *, out: None = None) -> Matrix:
        """x without its fraction: the nearest integer towards 0."""
    @overload
    def trunc(self, *, out: _Out) -> _Out: ...
    @overload
    def fract(self, *, out: None = None) -> Matrix:
        """x − trunc(x)."""
    @overload
    def fract(self, *, out: _Out) -> _Out: ...
    @overload
    def signum(self, *, out: None = None) -> Matrix:
        """1, −1 or 0: the sign of x."""
    @overload
    def signum(self, *, out: _Out) -> _Out: ...
    @overload
    def matmul(self, b: Operand, *, out: None = None) -> Matrix:
        """c[i,j] = Σₖ a[i,k] · b[k,j]."""
    @overload
    def matmul(self, b: Operand, *, out: _Out) -> _Out: ...
    @overload
    def matvec(self, x: Operand, *, out: None = None) -> Vector:
        """y[i] = Σₖ a[i,k] · x[k]."""
    @overload
    def matvec(self, x: Operand, *, out: _Out) -> _Out: ...
    @overload
    def batched_matmul(self, b: Rank2, *, out: None = None) -> Matrix:
        """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j]."""
    @overload
    def batched_matmul(self, b: Operand, *, out: None = None) -> Any: ...
    @overload
    def batched_matmul(self, b: Operand, *, out: _Out) -> _Out: ...
    @overload
    def transpose(self, *, out: None = None) -> Matrix:
        """y[j,i] = x[i,j], written out row by row."""
    @overload
    def transpose(self, *, out: _Out) -> _Out: ...
    @overload
    def convolve2d(self, kernel: Rank2, *, mode: Literal["valid", "same"] = "valid", out: None = None) -> Matrix:
        """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q]."""
    @overload
    def convolve2d(self, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: None = None) -> Any: ...
    @overload
    def convolve2d(self, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: _Out) -> _Out: ...
    @overload
    def embedding_lookup(self, i: Indices, *, out: None = None) -> Any:
        """y[…,:] = table[i[…],:]."""
    @overload
    def embedding_lookup(self, i: Indices, *, out: _Out) -> _Out: ...
    @overload
    def symmetric_eigen(self, *, out: None = None) -> tuple[Vector, Matrix]:
        """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal."""
    @overload
    def symmetric_eigen(self, *, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...
    @overload
    def softmax(self, axis: int = -1, *, out: None = None) -> Matrix:
        """e^(x − max x) / Σ e^(x − max x)."""
    @overload
    def softmax(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def log_softmax(self, axis: int = -1, *, out: None = None) -> Matrix:
        """x − max x − ln Σ e^(x − max x)."""
    @overload
    def log_softmax(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def layer_norm(self, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None) -> Matrix:
        """(x − mean) / √(variance + eps) · w + b."""
    @overload
    def layer_norm(self, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: _Out) -> _Out: ...
    @overload
    def rms_norm(self, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> Matrix:
        """x / √(Σ x² / n + eps) · w."""
    @overload
    def rms_norm(self, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: _Out) -> _Out: ...
    @overload
    def residual_rms_norm(
        self, residual: Rank2, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Matrix, Matrix]:
        """h = x + residual and y = rms_norm(h, w), in one read of each."""
    @overload
    def residual_rms_norm(
        self, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Any, Any]: ...
    @overload
    def residual_rms_norm(
        self, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: Sequence[_Out]
    ) -> tuple[_Out, _Out]: ...
    @overload
    def normalize(self, axis: int = -1, *, out: None = None) -> Matrix:
        """x / √(Σ x²)."""
    @overload
    def normalize(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def zscore(self, axis: int = -1, *, out: None = None) -> Matrix:
        """(x − mean) / √(Σ (x − mean)² / n), population."""
    @overload
    def zscore(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def minmax_normalize(self, axis: int = -1, *, out: None = None) -> Matrix:
        """(x − min x) / (max x − min x)."""
    @overload
    def minmax_normalize(self, axis: int = -1, *, out: _Out) -> _Out: ...
    @overload
    def dot(self, y: Rank2, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ x · y."""
    @overload
    def dot(self, y: Rank2, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def dot(self, y: Rank2, *, axis: None, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def dot(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def dot(self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def sum(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ x."""
    @overload
    def sum(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def sum(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def sum(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def sum(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def sum_kahan(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ x with a compensated or wider accumulator."""
    @overload
    def sum_kahan(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def sum_kahan(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def sum_kahan(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def sum_kahan(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def sum_of_squares(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ x²."""
    @overload
    def sum_of_squares(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def sum_of_squares(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def sum_of_squares(
        self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def sum_of_squares(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def mean(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ x / n."""
    @overload
    def mean(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def mean(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def mean(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def mean(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def min(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Smallest element."""
    @overload
    def min(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def min(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def min(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def min(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def max(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Largest element."""
    @overload
    def max(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def max(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def max(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def max(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def argmin(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> NDArray[np.int64]:
        """Position of the smallest element, int64."""
    @overload
    def argmin(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> NDArray[np.int64]: ...
    @overload
    def argmin(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.int64: ...
    @overload
    def argmin(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def argmin(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def argmax(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> NDArray[np.int64]:
        """Position of the largest element, int64."""
    @overload
    def argmax(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> NDArray[np.int64]: ...
    @overload
    def argmax(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.int64: ...
    @overload
    def argmax(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def argmax(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def norm_l1(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ |x|."""
    @overload
    def norm_l1(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def norm_l1(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def norm_l1(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def norm_l1(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def norm_l2(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """√(Σ x²), the Euclidean length."""
    @overload
    def norm_l2(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def norm_l2(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def norm_l2(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def norm_l2(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def norm_linf(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """max |x|."""
    @overload
    def norm_linf(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def norm_linf(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def norm_linf(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def norm_linf(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def variance(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ (x − mean)² / n, population."""
    @overload
    def variance(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def variance(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def variance(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def variance(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def stddev(self, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix:
        """√(Σ (x − mean)² / n), population."""
    @overload
    def stddev(self, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def stddev(self, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.floating[Any]: ...
    @overload
    def stddev(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None) -> Any: ...
    @overload
    def stddev(self, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out) -> _Out: ...
    @overload
    def covariance(self, y: Rank2, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ (x − mean x)(y − mean y) / n, population."""
    @overload
    def covariance(self, y: Rank2, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def covariance(
        self, y: Rank2, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def covariance(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def covariance(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...
    @overload
    def correlation(self, y: Rank2, *, axis: int | None = -1, keepdims: Literal[True], out: None = None) -> Matrix:
        """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""
    @overload
    def correlation(self, y: Rank2, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def correlation(
        self, y: Rank2, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def correlation(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def correlation(
        self, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...
    @overload
    def topk(self, k: int = 1, *, out: None = None) -> tuple[Matrix, NDArray[np.int64]]:
        """The k largest elements of each row, the largest first, and their positions, int64."""
    @overload
    def topk(self, k: int = 1, *, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...
    @overload
    def sample(
        self, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any:
        """A token drawn by the random number r of [0, 1): a function of its operands, int64."""
    @overload
    def sample(
        self, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: _Out
    ) -> _Out: ...
    absolute = abs
    clip = clamp
    divide = div
    frac = fract
    log = ln
    logsigmoid = log_sigmoid
    multiply = mul
    negative = neg
    power = pow
    reciprocal = recip
    rint = round
    sign = signum
    std = stddev
    subtract = sub
    swish = silu
    var = variance

