"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from numpy.typing import ArrayLike, NDArray

from trueno import aio as aio
from trueno import gguf as gguf
from trueno import hooks as hooks
from trueno import quant as quant
from trueno import settings as settings
from trueno import testing as testing
from trueno.arrays import Matrix as Matrix
from trueno.arrays import Vector as Vector
from trueno.batch import Batch as Batch
from trueno.caches import KVCache as KVCache
from trueno.caches import Pages as Pages
from trueno.context import device as device
from trueno.context import sync_available as sync_available
from trueno.discovery.registry import register as register
from trueno.dispatch.asking import forgive as forgive
from trueno.dispatch.asking import prefer as prefer
from trueno.dispatch.asking import reset_quarantine as reset_quarantine
from trueno.dispatch.asking import set_default as set_default
from trueno.dispatch.asking import use as use
from trueno.dispatch.transfer import numpy as numpy
from trueno.dispatch.transfer import to as to
from trueno.errors import BackendUnavailable as BackendUnavailable
from trueno.errors import BatchError as BatchError
from trueno.errors import DeviceError as DeviceError
from trueno.errors import DeviceLost as DeviceLost
from trueno.errors import DtypeError as DtypeError
from trueno.errors import FileError as FileError
from trueno.errors import GuardError as GuardError
from trueno.errors import KernelError as KernelError
from trueno.errors import OutError as OutError
from trueno.errors import OutOfMemory as OutOfMemory
from trueno.errors import ParameterError as ParameterError
from trueno.errors import SettingError as SettingError
from trueno.errors import ShapeError as ShapeError
from trueno.errors import TruenoError as TruenoError
from trueno.errors import TruenoWarning as TruenoWarning
from trueno.errors import UnknownBackend as UnknownBackend
from trueno.events.stream import stats as stats
from trueno.events.tracing import trace as trace
from trueno.explaining import explain as explain
from trueno.guards.guard import JidokaAction as JidokaAction
from trueno.guards.guard import JidokaCondition as JidokaCondition
from trueno.guards.guard import JidokaGuard as JidokaGuard
from trueno.guards.rules import Action as Action
from trueno.guards.rules import Condition as Condition
from trueno.ops.op import Op
from trueno.pieces import repeat as repeat
from trueno.pieces import split as split
from trueno.quant import QuantizedMatrix as QuantizedMatrix
from trueno.quant import quantize as quantize
from trueno.quant import requantize as requantize
from trueno.select.available import backends as backends
from trueno.select.available import select_best_available_backend as select_best_available_backend
from trueno.select.decision import Decision as Decision

__all__ = [
    "BackendUnavailable",
    "BatchError",
    "DeviceError",
    "DeviceLost",
    "DtypeError",
    "FileError",
    "GuardError",
    "KernelError",
    "OutError",
    "OutOfMemory",
    "ParameterError",
    "SettingError",
    "ShapeError",
    "TruenoError",
    "TruenoWarning",
    "UnknownBackend",
]

__version__: str

_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)

class _Function(Generic[_P, _R]):
    """The function of an op: call it, or ask it for the bare kernel."""

    op: Op
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def plan(self, *operands: ArrayLike, backend: str | None = None, **static: Any) -> Callable[..., Any]:
        """The bare kernel for operands like these: `kernel(*operands, *parameters, out)`, returning 0."""

def _function(body: Callable[_P, _R]) -> _Function[_P, _R]: ...

# ---- arithmetic --------------------------------------------------------------------------------

@_function
def add(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x + y."""

@_function
def residual_add(x: ArrayLike, residual: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x + residual, the sum around a layer: `add` under the name that a model's code uses."""

@_function
def sub(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x − y."""

@_function
def mul(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · y."""

@_function
def div(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x / y."""

@_function
def minimum(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """min(x, y)."""

@_function
def maximum(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """max(x, y)."""

@_function
def copysign(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """|x| with the sign of y."""

@_function
def pow(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """xʸ."""

@_function
def fma(x: ArrayLike, y: ArrayLike, z: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · y + z, the product not rounded."""

@_function
def lerp(x: ArrayLike, y: ArrayLike, t: float, *, out: Any = None) -> NDArray[Any]:
    """x + t · (y − x)."""

@_function
def scale(x: ArrayLike, factor: float, *, out: Any = None) -> NDArray[Any]:
    """factor · x."""

@_function
def clamp(x: ArrayLike, min: float, max: float, *, out: Any = None) -> NDArray[Any]:
    """min(max(x, min), max)."""

# ---- mathematics -------------------------------------------------------------------------------

@_function
def abs(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """|x|."""

@_function
def neg(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """−x."""

@_function
def sqrt(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """√x."""

@_function
def rsqrt(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1 / √x."""

@_function
def recip(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1 / x."""

@_function
def exp(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """eˣ."""

@_function
def exp2(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """2ˣ."""

@_function
def expm1(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """eˣ − 1, accurate near 0."""

@_function
def ln(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Natural logarithm of x."""

@_function
def log1p(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(1 + x), accurate near 0."""

@_function
def log2(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Logarithm of x to base 2."""

@_function
def log10(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Logarithm of x to base 10."""

@_function
def sin(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """sin x, x in radians."""

@_function
def cos(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """cos x, x in radians."""

@_function
def tan(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """sin x / cos x, x in radians."""

@_function
def asin(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Angle in [−π/2, π/2] whose sine is x."""

@_function
def acos(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Angle in [0, π] whose cosine is x."""

@_function
def atan(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Angle in [−π/2, π/2] whose tangent is x."""

@_function
def sinh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """(eˣ − e⁻ˣ) / 2, accurate near 0."""

@_function
def cosh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """(eˣ + e⁻ˣ) / 2."""

@_function
def tanh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""

@_function
def asinh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""

@_function
def acosh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(x + √(x² − 1)), accurate near 1."""

@_function
def atanh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln((1 + x) / (1 − x)) / 2, accurate near 0."""

@_function
def floor(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Largest integer ≤ x."""

@_function
def ceil(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Smallest integer ≥ x."""

@_function
def round(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Nearest integer, half to even."""

@_function
def trunc(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x without its fraction: the nearest integer towards 0."""

@_function
def fract(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x − trunc(x)."""

@_function
def signum(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1, −1 or 0: the sign of x."""

# ---- activations -------------------------------------------------------------------------------

@_function
def relu(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """max(x, 0)."""

@_function
def leaky_relu(x: ArrayLike, *, slope: float = 0.01, out: Any = None) -> NDArray[Any]:
    """x where x ≥ 0, else slope · x."""

@_function
def elu(x: ArrayLike, *, alpha: float = 1.0, out: Any = None) -> NDArray[Any]:
    """x where x > 0, else alpha · (eˣ − 1)."""

@_function
def selu(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""

@_function
def gelu(x: ArrayLike, *, approximate: Literal["tanh", "none"] = "tanh", out: Any = None) -> NDArray[Any]:
    """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""

@_function
def sigmoid(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1 / (1 + e⁻ˣ)."""

@_function
def silu(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x / (1 + e⁻ˣ)."""

@_function
def mish(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · tanh(softplus(x))."""

@_function
def hardswish(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · clip(x + 3, 0, 6) / 6."""

@_function
def softplus(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(1 + eˣ)."""

@_function
def log_sigmoid(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(1 / (1 + e⁻ˣ))."""

@_function
def swiglu(gate: ArrayLike, up: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""

@_function
def geglu(
    gate: ArrayLike, up: ArrayLike, *, approximate: Literal["tanh", "none"] = "tanh", out: Any = None
) -> NDArray[Any]:
    """gelu(gate) · up, the gated unit of Gemma and T5."""

@_function
def bias_activation(
    x: ArrayLike, bias: ArrayLike, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: Any = None
) -> NDArray[Any]:
    """activation(x + bias), what follows the product of a linear layer."""

# ---- reductions --------------------------------------------------------------------------------

@_function
def dot(x: ArrayLike, y: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x · y."""

@_function
def sum(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x."""

@_function
def sum_kahan(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x with a compensated or wider accumulator."""

@_function
def sum_of_squares(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x²."""

@_function
def mean(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x / n."""

@_function
def min(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Smallest element."""

@_function
def max(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Largest element."""

@_function
def argmin(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Position of the smallest element, int64."""

@_function
def argmax(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Position of the largest element, int64."""

@_function
def norm_l1(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ |x|."""

@_function
def norm_l2(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """√(Σ x²), the Euclidean length."""

@_function
def norm_linf(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """max |x|."""

@_function
def variance(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ (x − mean)² / n, population."""

@_function
def stddev(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """√(Σ (x − mean)² / n), population."""

@_function
def covariance(x: ArrayLike, y: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ (x − mean x)(y − mean y) / n, population."""

@_function
def correlation(x: ArrayLike, y: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""

# ---- normalization -----------------------------------------------------------------------------

@_function
def softmax(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """e^(x − max x) / Σ e^(x − max x)."""

@_function
def log_softmax(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """x − max x − ln Σ e^(x − max x)."""

@_function
def layer_norm(
    x: ArrayLike, w: ArrayLike, b: ArrayLike, *, eps: float = 1e-05, axis: int = -1, out: Any = None
) -> NDArray[Any]:
    """(x − mean) / √(variance + eps) · w + b."""

@_function
def rms_norm(x: ArrayLike, w: ArrayLike, *, eps: float = 1e-06, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """x / √(Σ x² / n + eps) · w."""

@_function
def residual_rms_norm(
    x: ArrayLike, residual: ArrayLike, w: ArrayLike, *, eps: float = 1e-06, axis: int = -1, out: Any = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """h = x + residual and y = rms_norm(h, w), in one read of each."""

@_function
def normalize(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """x / √(Σ x²)."""

@_function
def zscore(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """(x − mean) / √(Σ (x − mean)² / n), population."""

@_function
def minmax_normalize(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """(x − min x) / (max x − min x)."""

# ---- matrix ------------------------------------------------------------------------------------

@_function
def matmul(a: ArrayLike, b: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """c[i,j] = Σₖ a[i,k] · b[k,j]."""

@_function
def matvec(a: ArrayLike, x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[i] = Σₖ a[i,k] · x[k]."""

@_function
def vecmat(x: ArrayLike, a: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[j] = Σₖ x[k] · a[k,j]."""

@_function
def batched_matmul(a: ArrayLike, b: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j]."""

@_function
def transpose(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[j,i] = x[i,j], written out row by row."""

@_function
def outer(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """z[i,j] = x[i] · y[j]."""

@_function
def convolve2d(
    x: ArrayLike, kernel: ArrayLike, *, mode: Literal["valid", "same"] = "valid", out: Any = None
) -> NDArray[Any]:
    """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q]."""

@_function
def embedding_lookup(table: ArrayLike, i: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[…,:] = table[i[…],:]."""

@_function
def symmetric_eigen(a: ArrayLike, *, out: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal."""

# ---- attention ---------------------------------------------------------------------------------

@_function
def rope(
    x: ArrayLike, positions: ArrayLike, *, theta: float = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: float = 1.0, context: float = 0.0, slow: float = 1.0, fast: float = 0.0, magnitude: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims)."""

@_function
def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """y[i,h,:] = Σⱼ p[j] · v[j,g,:], p = softmax over the keys j that query i sees of scale · q[i,h] · k[j,g]."""

@_function
def attention_sinks(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, sinks: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """attention, whose softmax has one term more: p[j] = e^x[j] / (e^sinks[h] + Σᵢ e^x[i])."""

@_function
def attention_masked(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, mask: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """attention, with mask[h,i,j] added to the score of query i with key j, after the cap; −Inf hides the key."""

@_function
def attention_ragged(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, offsets_q: ArrayLike, offsets_k: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """attention of many sequences, which lie one behind the other: sequence i is offsets[i] to offsets[i + 1]."""

# ---- selection ---------------------------------------------------------------------------------

@_function
def topk(x: ArrayLike, k: int = 1, *, out: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The k largest elements of each row, the largest first, and their positions, int64."""

@_function
def sample(
    logits: ArrayLike, r: ArrayLike, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """A token drawn by the random number r of [0, 1): a function of its operands, int64."""

# ---- caches ------------------------------------------------------------------------------------

@_function
def attention_decode(
    q: ArrayLike, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: ArrayLike, lengths: ArrayLike, *, scale: float = 0.0, window: int = 0, softcap: float = 0.0, format: str = "", out: Any = None
) -> NDArray[Any]:
    """attention(q[i], k of sequence i, v of sequence i, causal=True): the last t tokens of each sequence."""

@_function
def attention_decode_sinks(
    q: ArrayLike, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: ArrayLike, lengths: ArrayLike, sinks: ArrayLike, *, scale: float = 0.0, window: int = 0, softcap: float = 0.0, format: str = "", out: Any = None
) -> NDArray[Any]:
    """attention_decode, whose softmax has the term e^sinks[h] more, as that of attention_sinks."""

@_function
def kv_cache_scatter(
    cache: Pages | NDArray[Any], x: ArrayLike, slots: ArrayLike, *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y is the cache with x[i] in slot slots[i]: page slots[i] // page, token slots[i] mod page."""

# ---- layout ------------------------------------------------------------------------------------

@_function
def concatenate(a: ArrayLike, b: ArrayLike, *, axis: int = 0, out: Any = None) -> NDArray[Any]:
    """a, and after it b, along an axis."""

# ---- quantized ---------------------------------------------------------------------------------

@_function
def quantize_rows(
    x: ArrayLike, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: Any = None
) -> NDArray[Any]:
    """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them."""

@_function
def quantize_rows_weighted(
    x: ArrayLike, imatrix: ArrayLike, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: Any = None
) -> NDArray[Any]:
    """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column."""

@_function
def dequantize(w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: Any = None) -> NDArray[Any]:
    """y[i,:] = the numbers that the blocks of w[i,:] encode, bit for bit as ggml's."""

@_function
def quant_matvec(
    w: QuantizedMatrix | NDArray[Any], x: ArrayLike, *, format: str = "", activations: Literal["q8", "f32"] = "q8", out: Any = None
) -> NDArray[Any]:
    """y[i] = Σₖ w[i,k] · x[k], w read from its blocks."""

@_function
def quant_matmul(
    x: ArrayLike, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32"] = "q8", out: Any = None
) -> NDArray[Any]:
    """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer."""

@_function
def quant_matvec_colmajor(
    w: QuantizedMatrix | NDArray[Any], x: ArrayLike, *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y[j] = Σₖ w[k,j] · x[k], w read from its blocks, which run along the columns of the matrix that wᵀ is."""

@_function
def quant_matmul_colmajor(
    x: ArrayLike, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j."""

# ---- indexed -----------------------------------------------------------------------------------

@_function
def quant_embedding_lookup(
    w: QuantizedMatrix | NDArray[Any], i: ArrayLike, *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y[…,:] = the numbers that the blocks of w[i[…],:] encode, bit for bit as ggml's."""

@_function
def quant_experts(
    w: QuantizedMatrix | NDArray[Any], x: ArrayLike, ids: ArrayLike, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32"] = "q8", out: Any = None
) -> NDArray[Any]:
    """y[…,j] = Σₖ x[…,k] · w[ids[…] · outputs + j, k]: the product of each row of x with the expert that it names."""

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
