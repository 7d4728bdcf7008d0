"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from trueno.caches import Pages
from trueno.context import DeviceContext
from trueno.quant import QuantizedMatrix

__all__ = ["device", "numpy", "to"]

async def to(x: Any, name: str) -> Any:
    """`trueno.to` without blocking the event loop."""

async def numpy(x: Any) -> Any:
    """`trueno.numpy` without blocking the event loop."""

async def device(name: str) -> DeviceContext:
    """`trueno.device` without blocking the event loop while the backend is probed and started."""

# ---- arithmetic --------------------------------------------------------------------------------

async def add(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x + y."""

async def residual_add(x: ArrayLike, residual: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x + residual, the sum around a layer: `add` under the name that a model's code uses."""

async def sub(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x − y."""

async def mul(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · y."""

async def div(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x / y."""

async def minimum(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """min(x, y)."""

async def maximum(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """max(x, y)."""

async def copysign(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """|x| with the sign of y."""

async def pow(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """xʸ."""

async def fma(x: ArrayLike, y: ArrayLike, z: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · y + z, the product not rounded."""

async def lerp(x: ArrayLike, y: ArrayLike, t: float, *, out: Any = None) -> NDArray[Any]:
    """x + t · (y − x)."""

async def scale(x: ArrayLike, factor: float, *, out: Any = None) -> NDArray[Any]:
    """factor · x."""

async def clamp(x: ArrayLike, min: float, max: float, *, out: Any = None) -> NDArray[Any]:
    """min(max(x, min), max)."""

# ---- mathematics -------------------------------------------------------------------------------

async def abs(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """|x|."""

async def neg(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """−x."""

async def sqrt(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """√x."""

async def rsqrt(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1 / √x."""

async def recip(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1 / x."""

async def exp(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """eˣ."""

async def exp2(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """2ˣ."""

async def expm1(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """eˣ − 1, accurate near 0."""

async def ln(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Natural logarithm of x."""

async def log1p(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(1 + x), accurate near 0."""

async def log2(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Logarithm of x to base 2."""

async def log10(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Logarithm of x to base 10."""

async def sin(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """sin x, x in radians."""

async def cos(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """cos x, x in radians."""

async def tan(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """sin x / cos x, x in radians."""

async def asin(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Angle in [−π/2, π/2] whose sine is x."""

async def acos(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Angle in [0, π] whose cosine is x."""

async def atan(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Angle in [−π/2, π/2] whose tangent is x."""

async def sinh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """(eˣ − e⁻ˣ) / 2, accurate near 0."""

async def cosh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """(eˣ + e⁻ˣ) / 2."""

async def tanh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""

async def asinh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""

async def acosh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(x + √(x² − 1)), accurate near 1."""

async def atanh(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln((1 + x) / (1 − x)) / 2, accurate near 0."""

async def floor(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Largest integer ≤ x."""

async def ceil(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Smallest integer ≥ x."""

async def round(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """Nearest integer, half to even."""

async def trunc(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x without its fraction: the nearest integer towards 0."""

async def fract(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x − trunc(x)."""

async def signum(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1, −1 or 0: the sign of x."""

# ---- activations -------------------------------------------------------------------------------

async def relu(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """max(x, 0)."""

async def leaky_relu(x: ArrayLike, *, slope: float = 0.01, out: Any = None) -> NDArray[Any]:
    """x where x ≥ 0, else slope · x."""

async def elu(x: ArrayLike, *, alpha: float = 1.0, out: Any = None) -> NDArray[Any]:
    """x where x > 0, else alpha · (eˣ − 1)."""

async def selu(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""

async def gelu(x: ArrayLike, *, approximate: Literal["tanh", "none"] = "tanh", out: Any = None) -> NDArray[Any]:
    """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""

async def sigmoid(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """1 / (1 + e⁻ˣ)."""

async def silu(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x / (1 + e⁻ˣ)."""

async def mish(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · tanh(softplus(x))."""

async def hardswish(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """x · clip(x + 3, 0, 6) / 6."""

async def softplus(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(1 + eˣ)."""

async def log_sigmoid(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """ln(1 / (1 + e⁻ˣ))."""

async def swiglu(gate: ArrayLike, up: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""

async def geglu(
    gate: ArrayLike, up: ArrayLike, *, approximate: Literal["tanh", "none"] = "tanh", out: Any = None
) -> NDArray[Any]:
    """gelu(gate) · up, the gated unit of Gemma and T5."""

async def bias_activation(
    x: ArrayLike, bias: ArrayLike, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: Any = None
) -> NDArray[Any]:
    """activation(x + bias), what follows the product of a linear layer."""

# ---- reductions --------------------------------------------------------------------------------

async def dot(x: ArrayLike, y: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x · y."""

async def sum(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x."""

async def sum_kahan(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x with a compensated or wider accumulator."""

async def sum_of_squares(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x²."""

async def mean(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ x / n."""

async def min(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Smallest element."""

async def max(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Largest element."""

async def argmin(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Position of the smallest element, int64."""

async def argmax(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Position of the largest element, int64."""

async def norm_l1(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ |x|."""

async def norm_l2(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """√(Σ x²), the Euclidean length."""

async def norm_linf(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """max |x|."""

async def variance(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """Σ (x − mean)² / n, population."""

async def stddev(x: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None) -> Any:
    """√(Σ (x − mean)² / n), population."""

async def covariance(
    x: ArrayLike, y: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None
) -> Any:
    """Σ (x − mean x)(y − mean y) / n, population."""

async def correlation(
    x: ArrayLike, y: ArrayLike, *, axis: int | None = -1, keepdims: bool = False, out: Any = None
) -> Any:
    """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""

# ---- normalization -----------------------------------------------------------------------------

async def softmax(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """e^(x − max x) / Σ e^(x − max x)."""

async def log_softmax(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """x − max x − ln Σ e^(x − max x)."""

async def layer_norm(
    x: ArrayLike, w: ArrayLike, b: ArrayLike, *, eps: float = 1e-05, axis: int = -1, out: Any = None
) -> NDArray[Any]:
    """(x − mean) / √(variance + eps) · w + b."""

async def rms_norm(x: ArrayLike, w: ArrayLike, *, eps: float = 1e-06, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """x / √(Σ x² / n + eps) · w."""

async def residual_rms_norm(
    x: ArrayLike, residual: ArrayLike, w: ArrayLike, *, eps: float = 1e-06, axis: int = -1, out: Any = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """h = x + residual and y = rms_norm(h, w), in one read of each."""

async def normalize(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """x / √(Σ x²)."""

async def zscore(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """(x − mean) / √(Σ (x − mean)² / n), population."""

async def minmax_normalize(x: ArrayLike, *, axis: int = -1, out: Any = None) -> NDArray[Any]:
    """(x − min x) / (max x − min x)."""

# ---- matrix ------------------------------------------------------------------------------------

async def matmul(a: ArrayLike, b: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """c[i,j] = Σₖ a[i,k] · b[k,j]."""

async def matvec(a: ArrayLike, x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[i] = Σₖ a[i,k] · x[k]."""

async def vecmat(x: ArrayLike, a: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[j] = Σₖ x[k] · a[k,j]."""

async def batched_matmul(a: ArrayLike, b: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j]."""

async def transpose(x: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[j,i] = x[i,j], written out row by row."""

async def outer(x: ArrayLike, y: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """z[i,j] = x[i] · y[j]."""

async def convolve2d(
    x: ArrayLike, kernel: ArrayLike, *, mode: Literal["valid", "same"] = "valid", out: Any = None
) -> NDArray[Any]:
    """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q]."""

async def embedding_lookup(table: ArrayLike, i: ArrayLike, *, out: Any = None) -> NDArray[Any]:
    """y[…,:] = table[i[…],:]."""

async def symmetric_eigen(a: ArrayLike, *, out: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal."""

# ---- attention ---------------------------------------------------------------------------------

async def rope(
    x: ArrayLike, positions: ArrayLike, *, theta: float = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: float = 1.0, context: float = 0.0, slow: float = 1.0, fast: float = 0.0, magnitude: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims)."""

async def attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """y[i,h,:] = Σⱼ p[j] · v[j,g,:], p = softmax over the keys j that query i sees of scale · q[i,h] · k[j,g]."""

async def attention_sinks(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, sinks: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """attention, whose softmax has one term more: p[j] = e^x[j] / (e^sinks[h] + Σᵢ e^x[i])."""

async def attention_masked(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, mask: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """attention, with mask[h,i,j] added to the score of query i with key j, after the cap; −Inf hides the key."""

async def attention_ragged(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, offsets_q: ArrayLike, offsets_k: ArrayLike, *, causal: bool = False, scale: float = 0.0, window: int = 0, softcap: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """attention of many sequences, which lie one behind the other: sequence i is offsets[i] to offsets[i + 1]."""

# ---- selection ---------------------------------------------------------------------------------

async def topk(x: ArrayLike, k: int = 1, *, out: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The k largest elements of each row, the largest first, and their positions, int64."""

async def sample(
    logits: ArrayLike, r: ArrayLike, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, out: Any = None
) -> NDArray[Any]:
    """A token drawn by the random number r of [0, 1): a function of its operands, int64."""

# ---- caches ------------------------------------------------------------------------------------

async def attention_decode(
    q: ArrayLike, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: ArrayLike, lengths: ArrayLike, *, scale: float = 0.0, window: int = 0, softcap: float = 0.0, format: str = "", out: Any = None
) -> NDArray[Any]:
    """attention(q[i], k of sequence i, v of sequence i, causal=True): the last t tokens of each sequence."""

async def attention_decode_sinks(
    q: ArrayLike, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: ArrayLike, lengths: ArrayLike, sinks: ArrayLike, *, scale: float = 0.0, window: int = 0, softcap: float = 0.0, format: str = "", out: Any = None
) -> NDArray[Any]:
    """attention_decode, whose softmax has the term e^sinks[h] more, as that of attention_sinks."""

async def kv_cache_scatter(
    cache: Pages | NDArray[Any], x: ArrayLike, slots: ArrayLike, *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y is the cache with x[i] in slot slots[i]: page slots[i] // page, token slots[i] mod page."""

# ---- layout ------------------------------------------------------------------------------------

async def concatenate(a: ArrayLike, b: ArrayLike, *, axis: int = 0, out: Any = None) -> NDArray[Any]:
    """a, and after it b, along an axis."""

# ---- quantized ---------------------------------------------------------------------------------

async def quantize_rows(
    x: ArrayLike, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: Any = None
) -> NDArray[Any]:
    """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them."""

async def quantize_rows_weighted(
    x: ArrayLike, imatrix: ArrayLike, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: Any = None
) -> NDArray[Any]:
    """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column."""

async def dequantize(w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: Any = None) -> NDArray[Any]:
    """y[i,:] = the numbers that the blocks of w[i,:] encode, bit for bit as ggml's."""

async def quant_matvec(
    w: QuantizedMatrix | NDArray[Any], x: ArrayLike, *, format: str = "", activations: Literal["q8", "f32"] = "q8", out: Any = None
) -> NDArray[Any]:
    """y[i] = Σₖ w[i,k] · x[k], w read from its blocks."""

async def quant_matmul(
    x: ArrayLike, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32"] = "q8", out: Any = None
) -> NDArray[Any]:
    """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer."""

async def quant_matvec_colmajor(
    w: QuantizedMatrix | NDArray[Any], x: ArrayLike, *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y[j] = Σₖ w[k,j] · x[k], w read from its blocks, which run along the columns of the matrix that wᵀ is."""

async def quant_matmul_colmajor(
    x: ArrayLike, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j."""

# ---- indexed -----------------------------------------------------------------------------------

async def quant_embedding_lookup(
    w: QuantizedMatrix | NDArray[Any], i: ArrayLike, *, format: str = "", out: Any = None
) -> NDArray[Any]:
    """y[…,:] = the numbers that the blocks of w[i[…],:] encode, bit for bit as ggml's."""

async def quant_experts(
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
