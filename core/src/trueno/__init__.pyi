"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

import numpy as np
import os
from collections.abc import Callable, Iterable, Sequence
from numpy.typing import NDArray
from trueno import aio as aio, gguf as gguf, hooks as hooks, lz4 as lz4, quant as quant, settings as settings, testing as testing, web as web
from trueno._types import Backend, Foreign, FormatName, Holder, Host, Indices, Kind, NoSuchBackend, Number, OnHost, Operand, Ours, Plain, Rank1, Rank2, _Foreign, _Out, _S, _Slip
from trueno.arrays import Matrix as Matrix, Vector as Vector
from trueno.batch import Batch as Batch
from trueno.caches import KVCache as KVCache, Pages as Pages
from trueno.context import DeviceContext, sync_available as sync_available
from trueno.discovery.registry import register as register
from trueno.dispatch.asking import BackendScope
from trueno.errors import BackendUnavailable as BackendUnavailable, BatchError as BatchError, DeviceError as DeviceError, DeviceLost as DeviceLost, DtypeError as DtypeError, FileError as FileError, GuardError as GuardError, KernelError as KernelError, LZ4Error as LZ4Error, MissingFile as MissingFile, OutError as OutError, OutOfMemory as OutOfMemory, ParameterError as ParameterError, SettingError as SettingError, ShapeError as ShapeError, TruenoError as TruenoError, TruenoWarning as TruenoWarning, UnknownBackend as UnknownBackend, UnknownKeyword as UnknownKeyword
from trueno.events.stream import stats as stats
from trueno.events.tracing import Trace
from trueno.guards.guard import JidokaAction as JidokaAction, JidokaCondition as JidokaCondition, JidokaGuard as JidokaGuard
from trueno.guards.rules import Action as Action, Condition as Condition
from trueno.ops.op import Op
from trueno.quant import QuantizedMatrix as QuantizedMatrix
from trueno.select.available import backends as backends, select_best_available_backend as select_best_available_backend
from trueno.select.decision import Decision as Decision
from trueno.versions import show_versions as show_versions
from typing import Any, Literal, overload

__all__ = [
    "Action",
    "BackendUnavailable",
    "Batch",
    "BatchError",
    "Condition",
    "Decision",
    "DeviceError",
    "DeviceLost",
    "DtypeError",
    "FileError",
    "GuardError",
    "JidokaAction",
    "JidokaCondition",
    "JidokaGuard",
    "KVCache",
    "KernelError",
    "LZ4Error",
    "Matrix",
    "MissingFile",
    "OutError",
    "OutOfMemory",
    "Pages",
    "ParameterError",
    "QuantizedMatrix",
    "SettingError",
    "ShapeError",
    "TruenoError",
    "TruenoWarning",
    "UnknownBackend",
    "UnknownKeyword",
    "Vector",
    "absolute",
    "acos",
    "acosh",
    "add",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "attention",
    "attention_decode",
    "attention_decode_sinks",
    "attention_masked",
    "attention_ragged",
    "attention_sinks",
    "backends",
    "batched_matmul",
    "bias_activation",
    "ceil",
    "clamp",
    "clip",
    "concatenate",
    "convolve2d",
    "copysign",
    "correlation",
    "cos",
    "cosh",
    "covariance",
    "dequantize",
    "device",
    "div",
    "divide",
    "dot",
    "elu",
    "embedding_lookup",
    "exp",
    "exp2",
    "explain",
    "expm1",
    "floor",
    "fma",
    "forgive",
    "frac",
    "fract",
    "geglu",
    "gelu",
    "hardswish",
    "kv_cache_scatter",
    "layer_norm",
    "leaky_relu",
    "lerp",
    "ln",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_sigmoid",
    "log_softmax",
    "logsigmoid",
    "lz4_compress",
    "lz4_decompress",
    "lz4_pack",
    "matmul",
    "matvec",
    "maximum",
    "mean",
    "minimum",
    "minmax_normalize",
    "mish",
    "mul",
    "multiply",
    "neg",
    "negative",
    "norm_l1",
    "norm_l2",
    "norm_linf",
    "normalize",
    "outer",
    "power",
    "prefer",
    "quant_embedding_lookup",
    "quant_experts",
    "quant_matmul",
    "quant_matmul_colmajor",
    "quant_matvec",
    "quant_matvec_colmajor",
    "quantize",
    "quantize_rows",
    "quantize_rows_weighted",
    "recip",
    "reciprocal",
    "register",
    "relu",
    "repeat",
    "requantize",
    "reset_quarantine",
    "residual_add",
    "residual_rms_norm",
    "rint",
    "rms_norm",
    "rope",
    "rsqrt",
    "sample",
    "scale",
    "select_best_available_backend",
    "selu",
    "set_default",
    "show_versions",
    "sigmoid",
    "sign",
    "signum",
    "silu",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "stats",
    "std",
    "stddev",
    "sub",
    "subtract",
    "sum_kahan",
    "sum_of_squares",
    "swiglu",
    "swish",
    "symmetric_eigen",
    "sync_available",
    "tan",
    "tanh",
    "to",
    "topk",
    "trace",
    "transpose",
    "trunc",
    "use",
    "var",
    "variance",
    "vecmat",
    "zscore"
]

__version__: str

@overload
def use(*names: Ours) -> BackendScope:
    """Run everything inside on these backends, best first; a call that none of them can run raises an error."""
@overload
def use(*names: Ours | _Slip) -> NoSuchBackend: ...
@overload
def use(*names: str) -> BackendScope: ...

@overload
def prefer(*names: Ours) -> BackendScope:
    """Use, inside, the first of these backends that can run a call; choose automatically if none can."""
@overload
def prefer(*names: Ours | _Slip) -> NoSuchBackend: ...
@overload
def prefer(*names: str) -> BackendScope: ...

def set_default(*names: Backend) -> None:
    """Set the backends for the whole process, including every thread; without a name, the choice is automatic again."""

def reset_quarantine(backend: Backend | None = None) -> None:
    """End the quarantine of a backend (or of all), so that it runs calls again; `trueno.stats()` lists the quarantine."""

@overload
def device(name: Ours) -> DeviceContext:
    """A context of backend `name`: `with trueno.device("simd") as d`."""
@overload
def device(name: _Slip) -> NoSuchBackend: ...
@overload
def device(name: str) -> DeviceContext: ...

@overload
def to(x: Operand, name: OnHost) -> NDArray[Any]:
    """`x` as an array of backend `name`'s own type: a copy on its device; the array itself if it is there already."""
@overload
def to(x: Operand, name: _Slip) -> NoSuchBackend: ...
@overload
def to(x: Operand, name: str) -> Any: ...
@overload
def to(x: QuantizedMatrix, name: Backend) -> QuantizedMatrix: ...

@overload
def numpy(x: Operand) -> NDArray[Any]:
    """`x` as a NumPy array, from the host or a device; a `QuantizedMatrix` becomes one whose `bytes` are NumPy's."""
@overload
def numpy(x: QuantizedMatrix) -> QuantizedMatrix: ...

def explain(op: _Op | str, *operands: Operand | QuantizedMatrix | Pages, **parameters: Any) -> Decision:
    """The decision for a call of `op` (a function of trueno, or its name) with these arguments."""

@overload
def split(x: Host, sizes: Sequence[int], axis: int = 0) -> tuple[NDArray[Any], ...]:
    """Parts of an array along an axis, one after the other, with so many elements each: the inverse of concatenate."""
@overload
def split(x: Operand, sizes: Sequence[int], axis: int = 0) -> tuple[Any, ...]: ...

@overload
def repeat(x: Host, repeats: int | Sequence[int], axis: int = 0) -> NDArray[Any]:
    """Each element along an axis so many times in a row, as `numpy.repeat` does; `repeats`: one number, or one each."""
@overload
def repeat(x: Operand, repeats: int | Sequence[int], axis: int = 0) -> Any: ...

def trace(
    kinds: Kind | Iterable[Kind] | None = None, path: str | os.PathLike[str] | None = None, *, limit: int = 100_000
) -> Trace:
    """Keep the events inside: `with trueno.trace() as t: …`, then `print(t)`, `t.events`, `t.save("trace.json")`."""

def quantize(x: Operand, format: FormatName, imatrix: Operand | None = None) -> QuantizedMatrix:
    """The rows of x[m, k] in blocks of `format`, byte for byte what ggml's quantizer writes."""

def requantize(q: QuantizedMatrix, format: FormatName, imatrix: Operand | None = None) -> QuantizedMatrix:
    """The same numbers in blocks of `format`, rows along blocks: decoded, and quantized again, which loses precision."""

forgive = reset_quarantine

class _Op:
    """The function of an op: call it, or ask it for the bare kernel."""

    __name__: str
    op: Op
    def plan(
        self, *operands: Operand | QuantizedMatrix, backend: Backend | None = None, **static: Any
    ) -> Callable[..., Any]:
        """The bare kernel for operands like these: `kernel(*operands, *parameters, out)`, returning 0."""

# ---- arithmetic --------------------------------------------------------------------------------

class _add(_Op):
    """x + y."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

add: _add

class _residual_add(_Op):
    """x + residual, the sum around a layer: `add` under the name that a model's code uses."""

    @overload
    def __call__(self, x: NDArray[_S], residual: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, residual: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, residual: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, residual: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, residual: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], residual: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, residual: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, residual: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, residual: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, residual: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, residual: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, residual: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, residual: Operand, *, out: _Out) -> _Out: ...

residual_add: _residual_add

class _sub(_Op):
    """x − y."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

sub: _sub

class _mul(_Op):
    """x · y."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

mul: _mul

class _div(_Op):
    """x / y."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

div: _div

class _minimum(_Op):
    """min(x, y)."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

minimum: _minimum

class _maximum(_Op):
    """max(x, y)."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

maximum: _maximum

class _copysign(_Op):
    """|x| with the sign of y."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

copysign: _copysign

class _pow(_Op):
    """xʸ."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

pow: _pow

class _fma(_Op):
    """x · y + z, the product not rounded."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, z: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, z: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, z: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Rank2, z: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, z: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, z: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Rank1, z: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, z: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, z: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], z: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, z: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, z: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: Plain, z: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, z: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, z: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, z: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, z: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, z: Operand, *, out: _Out) -> _Out: ...

fma: _fma

class _lerp(_Op):
    """x + t · (y − x)."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, t: Number, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, y: Rank2, t: Number, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Rank2, y: Matrix, t: Number, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, y: Rank1, t: Number, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Rank1, y: Vector, t: Number, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, t: Number, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, t: Number, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: NDArray[_S], t: Number, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Plain, y: _Foreign, t: Number, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Plain, t: Number, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, t: Number, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, t: Number, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, t: Number, *, out: _Out) -> _Out: ...

lerp: _lerp

class _scale(_Op):
    """factor · x."""

    @overload
    def __call__(self, x: NDArray[_S], factor: Number, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, factor: Number, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, factor: Number, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, factor: Number, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, factor: Number, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, factor: Number, *, out: _Out) -> _Out: ...

scale: _scale

class _clamp(_Op):
    """min(max(x, min), max)."""

    @overload
    def __call__(self, x: NDArray[_S], min: Number, max: Number, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, min: Number, max: Number, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, min: Number, max: Number, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, min: Number, max: Number, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, min: Number, max: Number, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, min: Number, max: Number, *, out: _Out) -> _Out: ...

clamp: _clamp

# ---- mathematics -------------------------------------------------------------------------------

class _abs(_Op):
    """|x|."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

abs: _abs

class _neg(_Op):
    """−x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

neg: _neg

class _sqrt(_Op):
    """√x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

sqrt: _sqrt

class _rsqrt(_Op):
    """1 / √x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

rsqrt: _rsqrt

class _recip(_Op):
    """1 / x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

recip: _recip

class _exp(_Op):
    """eˣ."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

exp: _exp

class _exp2(_Op):
    """2ˣ."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

exp2: _exp2

class _expm1(_Op):
    """eˣ − 1, accurate near 0."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

expm1: _expm1

class _ln(_Op):
    """Natural logarithm of x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

ln: _ln

class _log1p(_Op):
    """ln(1 + x), accurate near 0."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

log1p: _log1p

class _log2(_Op):
    """Logarithm of x to base 2."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

log2: _log2

class _log10(_Op):
    """Logarithm of x to base 10."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

log10: _log10

class _sin(_Op):
    """sin x, x in radians."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

sin: _sin

class _cos(_Op):
    """cos x, x in radians."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

cos: _cos

class _tan(_Op):
    """sin x / cos x, x in radians."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

tan: _tan

class _asin(_Op):
    """Angle in [−π/2, π/2] whose sine is x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

asin: _asin

class _acos(_Op):
    """Angle in [0, π] whose cosine is x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

acos: _acos

class _atan(_Op):
    """Angle in [−π/2, π/2] whose tangent is x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

atan: _atan

class _sinh(_Op):
    """(eˣ − e⁻ˣ) / 2, accurate near 0."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

sinh: _sinh

class _cosh(_Op):
    """(eˣ + e⁻ˣ) / 2."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

cosh: _cosh

class _tanh(_Op):
    """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

tanh: _tanh

class _asinh(_Op):
    """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

asinh: _asinh

class _acosh(_Op):
    """ln(x + √(x² − 1)), accurate near 1."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

acosh: _acosh

class _atanh(_Op):
    """ln((1 + x) / (1 − x)) / 2, accurate near 0."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

atanh: _atanh

class _floor(_Op):
    """Largest integer ≤ x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

floor: _floor

class _ceil(_Op):
    """Smallest integer ≥ x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

ceil: _ceil

class _round(_Op):
    """Nearest integer, half to even."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

round: _round

class _trunc(_Op):
    """x without its fraction: the nearest integer towards 0."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

trunc: _trunc

class _fract(_Op):
    """x − trunc(x)."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

fract: _fract

class _signum(_Op):
    """1, −1 or 0: the sign of x."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

signum: _signum

# ---- activations -------------------------------------------------------------------------------

class _relu(_Op):
    """max(x, 0)."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

relu: _relu

class _leaky_relu(_Op):
    """x where x ≥ 0, else slope · x."""

    @overload
    def __call__(self, x: NDArray[_S], *, slope: Number = 0.01, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, slope: Number = 0.01, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, slope: Number = 0.01, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, slope: Number = 0.01, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, slope: Number = 0.01, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, slope: Number = 0.01, out: _Out) -> _Out: ...

leaky_relu: _leaky_relu

class _elu(_Op):
    """x where x > 0, else alpha · (eˣ − 1)."""

    @overload
    def __call__(self, x: NDArray[_S], *, alpha: Number = 1.0, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, alpha: Number = 1.0, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, alpha: Number = 1.0, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, alpha: Number = 1.0, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, alpha: Number = 1.0, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, alpha: Number = 1.0, out: _Out) -> _Out: ...

elu: _elu

class _selu(_Op):
    """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

selu: _selu

class _gelu(_Op):
    """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""

    @overload
    def __call__(
        self, x: NDArray[_S], *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: _Out) -> _Out: ...

gelu: _gelu

class _sigmoid(_Op):
    """1 / (1 + e⁻ˣ)."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

sigmoid: _sigmoid

class _silu(_Op):
    """x / (1 + e⁻ˣ)."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

silu: _silu

class _mish(_Op):
    """x · tanh(softplus(x))."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

mish: _mish

class _hardswish(_Op):
    """x · clip(x + 3, 0, 6) / 6."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

hardswish: _hardswish

class _softplus(_Op):
    """ln(1 + eˣ)."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

softplus: _softplus

class _log_sigmoid(_Op):
    """ln(1 / (1 + e⁻ˣ))."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

log_sigmoid: _log_sigmoid

class _swiglu(_Op):
    """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""

    @overload
    def __call__(self, gate: NDArray[_S], up: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, gate: Matrix, up: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, gate: Rank2, up: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, gate: Vector, up: Rank1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, gate: Rank1, up: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, gate: NDArray[_S], up: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, gate: _Foreign, up: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, gate: Plain, up: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, gate: Plain, up: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, gate: Plain, up: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, gate: Holder, up: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, gate: Operand, up: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, gate: Operand, up: Operand, *, out: _Out) -> _Out: ...

swiglu: _swiglu

class _geglu(_Op):
    """gelu(gate) · up, the gated unit of Gemma and T5."""

    @overload
    def __call__(
        self, gate: NDArray[_S], up: Host, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, gate: Matrix, up: Rank2, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, gate: Rank2, up: Matrix, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, gate: Vector, up: Rank1, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, gate: Rank1, up: Vector, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, gate: NDArray[_S], up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, gate: _Foreign, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, gate: Plain, up: NDArray[_S], *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, gate: Plain, up: _Foreign, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, gate: Plain, up: Plain, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, gate: Holder, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, gate: Operand, up: Holder, *, approximate: Literal["tanh", "none"] = "tanh", out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, gate: Operand, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: _Out) -> _Out: ...

geglu: _geglu

class _bias_activation(_Op):
    """activation(x + bias), what follows the product of a linear layer."""

    @overload
    def __call__(
        self, x: NDArray[_S], bias: Host, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: Matrix, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Vector, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: NDArray[_S], bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: _Foreign, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, x: Plain, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, x: Holder, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, bias: Holder, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: _Out
    ) -> _Out: ...

bias_activation: _bias_activation

# ---- reductions --------------------------------------------------------------------------------

class _dot(_Op):
    """Σ x · y."""

    @overload
    def __call__(
        self, x: Host, y: Host, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Vector, y: Rank1, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, y: Rank1, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Rank1, y: Vector, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Rank1, y: Vector, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...

dot: _dot

class _sum(_Op):
    """Σ x."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

sum: _sum

class _sum_kahan(_Op):
    """Σ x with a compensated or wider accumulator."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

sum_kahan: _sum_kahan

class _sum_of_squares(_Op):
    """Σ x²."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

sum_of_squares: _sum_of_squares

class _mean(_Op):
    """Σ x / n."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

mean: _mean

class _min(_Op):
    """Smallest element."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

min: _min

class _max(_Op):
    """Largest element."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

max: _max

class _argmin(_Op):
    """Position of the smallest element, int64."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(
        self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.int64: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.int64: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

argmin: _argmin

class _argmax(_Op):
    """Position of the largest element, int64."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(
        self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None) -> np.int64: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None
    ) -> NDArray[np.int64]: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.int64: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

argmax: _argmax

class _norm_l1(_Op):
    """Σ |x|."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

norm_l1: _norm_l1

class _norm_l2(_Op):
    """√(Σ x²), the Euclidean length."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

norm_l2: _norm_l2

class _norm_linf(_Op):
    """max |x|."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

norm_linf: _norm_linf

class _variance(_Op):
    """Σ (x − mean)² / n, population."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

variance: _variance

class _stddev(_Op):
    """√(Σ (x − mean)² / n), population."""

    @overload
    def __call__(
        self, x: Host, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Matrix, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, keepdims: Literal[False] = False, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, axis: None, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(self, x: Vector, axis: int | None = -1, *, keepdims: Literal[True], out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, axis: int | None = -1, *, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: _Out
    ) -> _Out: ...

stddev: _stddev

class _covariance(_Op):
    """Σ (x − mean x)(y − mean y) / n, population."""

    @overload
    def __call__(
        self, x: Host, y: Host, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Vector, y: Rank1, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, y: Rank1, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Rank1, y: Vector, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Rank1, y: Vector, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...

covariance: _covariance

class _correlation(_Op):
    """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""

    @overload
    def __call__(
        self, x: Host, y: Host, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Matrix, y: Rank2, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: int = -1, keepdims: Literal[False] = False, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Rank2, y: Matrix, *, axis: None, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Vector, y: Rank1, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Vector, y: Rank1, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Rank1, y: Vector, *, axis: int | None = -1, keepdims: Literal[True], out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: Rank1, y: Vector, *, axis: int | None = -1, keepdims: Literal[False] = False, out: None = None
    ) -> np.floating[Any]: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: _Out
    ) -> _Out: ...

correlation: _correlation

# ---- normalization -----------------------------------------------------------------------------

class _softmax(_Op):
    """e^(x − max x) / Σ e^(x − max x)."""

    @overload
    def __call__(self, x: NDArray[_S], axis: int = -1, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, axis: int = -1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, axis: int = -1, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, axis: int = -1, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, axis: int = -1, *, out: _Out) -> _Out: ...

softmax: _softmax

class _log_softmax(_Op):
    """x − max x − ln Σ e^(x − max x)."""

    @overload
    def __call__(self, x: NDArray[_S], axis: int = -1, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, axis: int = -1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, axis: int = -1, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, axis: int = -1, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, axis: int = -1, *, out: _Out) -> _Out: ...

log_softmax: _log_softmax

class _layer_norm(_Op):
    """(x − mean) / √(variance + eps) · w + b."""

    @overload
    def __call__(
        self, x: NDArray[_S], w: Host, b: Host, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: Matrix, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Vector, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, x: NDArray[_S], w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: _Foreign, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, x: Plain, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, x: Holder, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, w: Holder, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, w: Operand, b: Holder, *, eps: Number = 1e-05, axis: int = -1, out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Operand, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: _Out) -> _Out: ...

layer_norm: _layer_norm

class _rms_norm(_Op):
    """x / √(Σ x² / n + eps) · w."""

    @overload
    def __call__(
        self, x: NDArray[_S], w: Host, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, x: NDArray[_S], w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, w: Holder, *, eps: Number = 1e-06, axis: int = -1, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: _Out) -> _Out: ...

rms_norm: _rms_norm

class _residual_rms_norm(_Op):
    """h = x + residual and y = rms_norm(h, w), in one read of each."""

    @overload
    def __call__(
        self, x: NDArray[_S], residual: Host, w: Host, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[NDArray[_S], NDArray[_S]]: ...
    @overload
    def __call__(
        self, x: Matrix, residual: Rank2, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Matrix, Matrix]: ...
    @overload
    def __call__(
        self, x: Rank2, residual: Matrix, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Matrix, Matrix]: ...
    @overload
    def __call__(
        self, x: Vector, residual: Rank1, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Vector, Vector]: ...
    @overload
    def __call__(
        self, x: Rank1, residual: Vector, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Vector, Vector]: ...
    @overload
    def __call__(
        self, x: NDArray[_S], residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[NDArray[_S], NDArray[_S]]: ...
    @overload
    def __call__(
        self, x: _Foreign, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[_Foreign, _Foreign]: ...
    @overload
    def __call__(
        self, x: Plain, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(
        self, x: Holder, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Any, Any]: ...
    @overload
    def __call__(
        self, x: Operand, residual: Holder, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Any, Any]: ...
    @overload
    def __call__(
        self, x: Operand, residual: Operand, w: Holder, *, eps: Number = 1e-06, axis: int = -1, out: None = None
    ) -> tuple[Any, Any]: ...
    @overload
    def __call__(
        self, x: Operand, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: Sequence[_Out]
    ) -> tuple[_Out, _Out]: ...

residual_rms_norm: _residual_rms_norm

class _normalize(_Op):
    """x / √(Σ x²)."""

    @overload
    def __call__(self, x: NDArray[_S], axis: int = -1, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, axis: int = -1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, axis: int = -1, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, axis: int = -1, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, axis: int = -1, *, out: _Out) -> _Out: ...

normalize: _normalize

class _zscore(_Op):
    """(x − mean) / √(Σ (x − mean)² / n), population."""

    @overload
    def __call__(self, x: NDArray[_S], axis: int = -1, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, axis: int = -1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, axis: int = -1, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, axis: int = -1, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, axis: int = -1, *, out: _Out) -> _Out: ...

zscore: _zscore

class _minmax_normalize(_Op):
    """(x − min x) / (max x − min x)."""

    @overload
    def __call__(self, x: NDArray[_S], axis: int = -1, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, axis: int = -1, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Vector, axis: int = -1, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: _Foreign, axis: int = -1, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, axis: int = -1, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, axis: int = -1, *, out: _Out) -> _Out: ...

minmax_normalize: _minmax_normalize

# ---- matrix ------------------------------------------------------------------------------------

class _matmul(_Op):
    """c[i,j] = Σₖ a[i,k] · b[k,j]."""

    @overload
    def __call__(self, a: NDArray[_S], b: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: Matrix, b: Operand, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: Operand, b: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: NDArray[_S], b: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: _Foreign, b: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, a: Plain, b: Operand, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: Holder, b: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, b: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, b: Operand, *, out: _Out) -> _Out: ...

matmul: _matmul

class _matvec(_Op):
    """y[i] = Σₖ a[i,k] · x[k]."""

    @overload
    def __call__(self, a: NDArray[_S], x: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: Matrix, x: Operand, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, a: Operand, x: Vector, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, a: NDArray[_S], x: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: _Foreign, x: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, a: Plain, x: Operand, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: Holder, x: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, x: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, x: Operand, *, out: _Out) -> _Out: ...

matvec: _matvec

class _vecmat(_Op):
    """y[j] = Σₖ x[k] · a[k,j]."""

    @overload
    def __call__(self, x: NDArray[_S], a: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Vector, a: Operand, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: Operand, a: Matrix, *, out: None = None) -> Vector: ...
    @overload
    def __call__(self, x: NDArray[_S], a: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, a: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, a: Operand, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, a: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, a: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, a: Operand, *, out: _Out) -> _Out: ...

vecmat: _vecmat

class _batched_matmul(_Op):
    """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j]."""

    @overload
    def __call__(self, a: NDArray[_S], b: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: Matrix, b: Rank2, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: Rank2, b: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: NDArray[_S], b: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: _Foreign, b: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, a: Plain, b: Operand, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: Holder, b: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, b: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, b: Operand, *, out: _Out) -> _Out: ...

batched_matmul: _batched_matmul

class _transpose(_Op):
    """y[j,i] = x[i,j], written out row by row."""

    @overload
    def __call__(self, x: NDArray[_S], *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: _Foreign, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, *, out: _Out) -> _Out: ...

transpose: _transpose

class _outer(_Op):
    """z[i,j] = x[i] · y[j]."""

    @overload
    def __call__(self, x: NDArray[_S], y: Host, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Vector, y: Operand, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: Operand, y: Vector, *, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, x: NDArray[_S], y: Operand, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: _Foreign, y: Operand, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, x: Plain, y: Operand, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Holder, y: Operand, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Holder, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, x: Operand, y: Operand, *, out: _Out) -> _Out: ...

outer: _outer

class _convolve2d(_Op):
    """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q]."""

    @overload
    def __call__(
        self, x: NDArray[_S], kernel: Host, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: Matrix, kernel: Rank2, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: Rank2, kernel: Matrix, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: NDArray[_S], kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: _Foreign, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, x: Plain, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, x: Holder, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, kernel: Holder, *, mode: Literal["valid", "same"] = "valid", out: None = None
    ) -> Any: ...
    @overload
    def __call__(self, x: Operand, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: _Out) -> _Out: ...

convolve2d: _convolve2d

class _embedding_lookup(_Op):
    """y[…,:] = table[i[…],:]."""

    @overload
    def __call__(self, table: NDArray[_S], i: Indices, *, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, table: Matrix, i: Indices, *, out: None = None) -> Any: ...
    @overload
    def __call__(self, table: _Foreign, i: Indices, *, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, table: Plain, i: Indices, *, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, table: Operand, i: Indices, *, out: _Out) -> _Out: ...

embedding_lookup: _embedding_lookup

class _symmetric_eigen(_Op):
    """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal."""

    @overload
    def __call__(self, a: NDArray[_S], *, out: None = None) -> tuple[NDArray[_S], NDArray[_S]]: ...
    @overload
    def __call__(self, a: Matrix, *, out: None = None) -> tuple[Vector, Matrix]: ...
    @overload
    def __call__(self, a: _Foreign, *, out: None = None) -> tuple[_Foreign, _Foreign]: ...
    @overload
    def __call__(self, a: Plain, *, out: None = None) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, a: Operand, *, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...

symmetric_eigen: _symmetric_eigen

# ---- attention ---------------------------------------------------------------------------------

class _rope(_Op):
    """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims)."""

    @overload
    def __call__(
        self, x: NDArray[_S], positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: Matrix, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: _Foreign, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, x: Plain, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, x: Operand, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: _Out
    ) -> _Out: ...

rope: _rope

class _attention(_Op):
    """y[i,h,:] = Σⱼ p[j] · v[j,g,:], p = softmax over the keys j that query i sees of scale · q[i,h] · k[j,g]."""

    @overload
    def __call__(
        self, q: NDArray[_S], k: Host, v: Host, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: NDArray[_S], k: Operand, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: _Foreign, k: Operand, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, q: Plain, k: Operand, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: Holder, k: Operand, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Holder, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Holder, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: _Out
    ) -> _Out: ...

attention: _attention

class _attention_sinks(_Op):
    """attention, whose softmax has one term more: p[j] = e^x[j] / (e^sinks[h] + Σᵢ e^x[i])."""

    @overload
    def __call__(
        self, q: NDArray[_S], k: Host, v: Host, sinks: Host, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: NDArray[_S], k: Operand, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: _Foreign, k: Operand, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, q: Plain, k: Operand, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: Holder, k: Operand, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Holder, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Holder, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Operand, sinks: Holder, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: _Out
    ) -> _Out: ...

attention_sinks: _attention_sinks

class _attention_masked(_Op):
    """attention, with mask[h,i,j] added to the score of query i with key j, after the cap; −Inf hides the key."""

    @overload
    def __call__(
        self, q: NDArray[_S], k: Host, v: Host, mask: Host, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: NDArray[_S], k: Operand, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: _Foreign, k: Operand, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, q: Plain, k: Operand, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: Holder, k: Operand, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Holder, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Holder, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Operand, mask: Holder, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: _Out
    ) -> _Out: ...

attention_masked: _attention_masked

class _attention_ragged(_Op):
    """attention of many sequences, which lie one behind the other: sequence i is offsets[i] to offsets[i + 1]."""

    @overload
    def __call__(
        self, q: NDArray[_S], k: Host, v: Host, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: NDArray[_S], k: Operand, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: _Foreign, k: Operand, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, q: Plain, k: Operand, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: Holder, k: Operand, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Holder, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Holder, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Operand, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: _Out
    ) -> _Out: ...

attention_ragged: _attention_ragged

# ---- selection ---------------------------------------------------------------------------------

class _topk(_Op):
    """The k largest elements of each row, the largest first, and their positions, int64."""

    @overload
    def __call__(self, x: NDArray[_S], k: int = 1, *, out: None = None) -> tuple[NDArray[_S], NDArray[np.int64]]: ...
    @overload
    def __call__(self, x: Matrix, k: int = 1, *, out: None = None) -> tuple[Matrix, NDArray[np.int64]]: ...
    @overload
    def __call__(self, x: Vector, k: int = 1, *, out: None = None) -> tuple[Vector, NDArray[np.int64]]: ...
    @overload
    def __call__(self, x: _Foreign, k: int = 1, *, out: None = None) -> tuple[_Foreign, Any]: ...
    @overload
    def __call__(self, x: Plain, k: int = 1, *, out: None = None) -> tuple[NDArray[Any], NDArray[np.int64]]: ...
    @overload
    def __call__(self, x: Operand, k: int = 1, *, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...

topk: _topk

class _sample(_Op):
    """A token drawn by the random number r of [0, 1): a function of its operands, int64."""

    @overload
    def __call__(
        self, logits: NDArray[_S], r: Host, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, logits: NDArray[_S], r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, logits: _Foreign, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, logits: Plain, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, logits: Holder, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, logits: Operand, r: Holder, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, logits: Operand, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: _Out
    ) -> _Out: ...

sample: _sample

# ---- caches ------------------------------------------------------------------------------------

class _attention_decode(_Op):
    """attention(q[i], k of sequence i, v of sequence i, causal=True): the last t tokens of each sequence."""

    @overload
    def __call__(
        self, q: NDArray[_S], k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: _Foreign, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, q: Plain, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: Operand, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: _Out
    ) -> _Out: ...

attention_decode: _attention_decode

class _attention_decode_sinks(_Op):
    """attention_decode, whose softmax has the term e^sinks[h] more, as that of attention_sinks."""

    @overload
    def __call__(
        self, q: NDArray[_S], k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Host, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: Operand, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Vector, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: NDArray[_S], k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Operand, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, q: _Foreign, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Operand, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, q: Plain, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Operand, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, q: Holder, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Operand, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Holder, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, q: Operand, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Operand, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: _Out
    ) -> _Out: ...

attention_decode_sinks: _attention_decode_sinks

class _kv_cache_scatter(_Op):
    """y is the cache with x[i] in slot slots[i]: page slots[i] // page, token slots[i] mod page."""

    @overload
    def __call__(
        self, cache: Pages | NDArray[Any], x: NDArray[_S], slots: Indices, *, format: str = "", out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, cache: Pages | NDArray[Any], x: _Foreign, slots: Indices, *, format: str = "", out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, cache: Pages | NDArray[Any], x: Plain, slots: Indices, *, format: str = "", out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(self, cache: Pages | NDArray[Any], x: Operand, slots: Indices, *, format: str = "", out: Any) -> Any: ...

kv_cache_scatter: _kv_cache_scatter

# ---- layout ------------------------------------------------------------------------------------

class _concatenate(_Op):
    """a, and after it b, along an axis."""

    @overload
    def __call__(self, a: NDArray[_S], b: Host, *, axis: int = 0, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: Matrix, b: Rank2, *, axis: int = 0, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: Rank2, b: Matrix, *, axis: int = 0, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: Vector, b: Rank1, *, axis: int = 0, out: None = None) -> Vector: ...
    @overload
    def __call__(self, a: Rank1, b: Vector, *, axis: int = 0, out: None = None) -> Vector: ...
    @overload
    def __call__(self, a: NDArray[_S], b: Operand, *, axis: int = 0, out: None = None) -> NDArray[_S]: ...
    @overload
    def __call__(self, a: _Foreign, b: Operand, *, axis: int = 0, out: None = None) -> _Foreign: ...
    @overload
    def __call__(self, a: Plain, b: Operand, *, axis: int = 0, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: Holder, b: Operand, *, axis: int = 0, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, b: Holder, *, axis: int = 0, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Operand, b: Operand, *, axis: int = 0, out: _Out) -> _Out: ...
    @overload
    def __call__(self, *arrays: Vector, axis: int = 0, out: None = None) -> Vector: ...
    @overload
    def __call__(self, *arrays: Matrix, axis: int = 0, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, *arrays: NDArray[Any], axis: int = 0, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: Foreign, axis: int = 0, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Sequence[Vector], *, axis: int = 0, out: None = None) -> Vector: ...
    @overload
    def __call__(self, a: Sequence[Matrix], *, axis: int = 0, out: None = None) -> Matrix: ...
    @overload
    def __call__(self, a: Sequence[NDArray[Any]], *, axis: int = 0, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: Sequence[Foreign], *, axis: int = 0, out: None = None) -> Any: ...
    @overload
    def __call__(self, a: Sequence[Operand], *, axis: int = 0, out: _Out) -> _Out: ...

concatenate: _concatenate

# ---- quantized ---------------------------------------------------------------------------------

class _quantize_rows(_Op):
    """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them."""

    @overload
    def __call__(
        self, x: NDArray[_S], *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: Matrix, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: _Foreign, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Plain, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: _Out
    ) -> _Out: ...

quantize_rows: _quantize_rows

class _quantize_rows_weighted(_Op):
    """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column."""

    @overload
    def __call__(
        self, x: NDArray[_S], imatrix: Host, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: Matrix, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: Operand, imatrix: Vector, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: NDArray[_S], imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: _Foreign, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Plain, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> NDArray[np.uint8]: ...
    @overload
    def __call__(
        self, x: Holder, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, imatrix: Holder, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: None = None
    ) -> Any: ...
    @overload
    def __call__(
        self, x: Operand, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: _Out
    ) -> _Out: ...

quantize_rows_weighted: _quantize_rows_weighted

class _dequantize(_Op):
    """y[i,:] = the numbers that the blocks of w[i,:] encode, bit for bit as ggml's."""

    @overload
    def __call__(self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: _Out) -> _Out: ...

dequantize: _dequantize

class _quant_matvec(_Op):
    """y[i] = Σₖ w[i,k] · x[k], w read from its blocks."""

    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: NDArray[_S], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Vector, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: _Foreign, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Plain, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Operand, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: _Out
    ) -> _Out: ...

quant_matvec: _quant_matvec

class _quant_matmul(_Op):
    """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer."""

    @overload
    def __call__(
        self, x: NDArray[_S], w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, x: Matrix, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, x: _Foreign, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, x: Plain, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, x: Operand, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: _Out
    ) -> _Out: ...

quant_matmul: _quant_matmul

class _quant_matvec_colmajor(_Op):
    """y[j] = Σₖ w[k,j] · x[k], w read from its blocks, which run along the columns of the matrix that wᵀ is."""

    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: NDArray[_S], *, format: str = "", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(self, w: QuantizedMatrix | NDArray[Any], x: Vector, *, format: str = "", out: None = None) -> Vector: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: _Foreign, *, format: str = "", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Plain, *, format: str = "", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(self, w: QuantizedMatrix | NDArray[Any], x: Operand, *, format: str = "", out: _Out) -> _Out: ...

quant_matvec_colmajor: _quant_matvec_colmajor

class _quant_matmul_colmajor(_Op):
    """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j."""

    @overload
    def __call__(
        self, x: NDArray[_S], w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(self, x: Matrix, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: None = None) -> Matrix: ...
    @overload
    def __call__(
        self, x: _Foreign, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, x: Plain, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Operand, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: _Out) -> _Out: ...

quant_matmul_colmajor: _quant_matmul_colmajor

# ---- indexed -----------------------------------------------------------------------------------

class _quant_embedding_lookup(_Op):
    """y[…,:] = the numbers that the blocks of w[i[…],:] encode, bit for bit as ggml's."""

    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], i: Indices, *, format: str = "", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(self, w: QuantizedMatrix | NDArray[Any], i: Indices, *, format: str = "", out: _Out) -> _Out: ...

quant_embedding_lookup: _quant_embedding_lookup

class _quant_experts(_Op):
    """y[…,j] = Σₖ x[…,k] · w[ids[…] · outputs + j, k]: the product of each row of x with the expert that it names."""

    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: NDArray[_S], ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> NDArray[_S]: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Matrix, ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> Matrix: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Vector, ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> Vector: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: _Foreign, ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> _Foreign: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Plain, ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self, w: QuantizedMatrix | NDArray[Any], x: Operand, ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: _Out
    ) -> _Out: ...

quant_experts: _quant_experts

# ---- compression -------------------------------------------------------------------------------

class _lz4_compress(_Op):
    """blocks[i, :|sizes[i]|] = the LZ4 block of x[i], or x[i] itself where its block would not be smaller."""

    @overload
    def __call__(
        self, x: NDArray[Any], *, level: Literal[1, 2] = 1, out: None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    @overload
    def __call__(self, x: NDArray[Any], *, level: Literal[1, 2] = 1, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...

lz4_compress: _lz4_compress

class _lz4_decompress(_Op):
    """y[i, :lengths[i]] = what packed[offsets[i] : offsets[i] + |sizes[i]|] decodes to; bytes behind it are 0."""

    @overload
    def __call__(
        self, packed: NDArray[Any], offsets: Indices, sizes: Indices, *, page: int = 4096, out: None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    @overload
    def __call__(
        self, packed: NDArray[Any], offsets: Indices, sizes: Indices, *, page: int = 4096, out: Sequence[_Out]
    ) -> tuple[_Out, _Out]: ...

lz4_decompress: _lz4_decompress

class _lz4_pack(_Op):
    """packed = the first |sizes[i]| bytes of each row of blocks, one after the other; offsets[i] = Σ_{j<i} |sizes[j]|."""

    @overload
    def __call__(
        self, blocks: NDArray[Any], sizes: Indices, *, out: None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    @overload
    def __call__(self, blocks: NDArray[Any], sizes: Indices, *, out: Sequence[_Out]) -> tuple[_Out, _Out]: ...

lz4_pack: _lz4_pack

# ---- other names of the same ops

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
