"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

from collections.abc import Callable
from numpy.typing import NDArray
from trueno._types import Backend, Indices, Number, Operand
from trueno.caches import Pages
from trueno.ops.op import Op
from trueno.quant.matrix import QuantizedMatrix
from typing import Any, Literal, overload

class DeviceContext:
    """A backend for computing on its own buffers; every op of the table is a method with the op's signature."""

    def __init__(self, name: Backend) -> None: ...
    @property
    def name(self) -> str:
        """The backend's name."""
    @property
    def adapter_name(self) -> str:
        """The hardware's name for people; the backend's name where its probe names no device."""
    @property
    def limits(self) -> dict[str, Any]:
        """The limits that the device reports; {} for a backend without limits."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @overload
    def upload(self, x: Operand) -> Any:
        """A new buffer with a copy of `x`: a list, a number, or an array of floats or integers of any library."""
    @overload
    def upload(self, x: QuantizedMatrix) -> QuantizedMatrix: ...
    @overload
    def read(self, x: Operand, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A buffer as a new NumPy array, or in `out`, a contiguous array of the buffer's shape and dtype."""
    @overload
    def read(self, x: QuantizedMatrix) -> QuantizedMatrix: ...
    @overload
    def read(self, x: Operand, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A buffer as a new NumPy array, or in `out`, a contiguous array of the buffer's shape and dtype."""
    @overload
    def read(self, x: QuantizedMatrix) -> QuantizedMatrix: ...
    @overload
    def read(self, x: Operand, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A buffer as a new NumPy array, or in `out`, a contiguous array of the buffer's shape and dtype."""
    @overload
    def read(self, x: QuantizedMatrix) -> QuantizedMatrix: ...
    def synchronize(self) -> None:
        """Wait until all submitted work is done."""
    def close(self) -> None:
        """Wait for the device and end this context; closing twice is allowed."""
    def __enter__(self) -> DeviceContext: ...
    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None: ...
    def __repr__(self) -> str: ...

    def relu(self, x: Operand, *, out: Any = None) -> Any:
        """max(x, 0)."""
    def leaky_relu(self, x: Operand, *, slope: Number = 0.01, out: Any = None) -> Any:
        """x where x ≥ 0, else slope · x."""
    def elu(self, x: Operand, *, alpha: Number = 1.0, out: Any = None) -> Any:
        """x where x > 0, else alpha · (eˣ − 1)."""
    def selu(self, x: Operand, *, out: Any = None) -> Any:
        """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""
    def gelu(self, x: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: Any = None) -> Any:
        """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    def sigmoid(self, x: Operand, *, out: Any = None) -> Any:
        """1 / (1 + e⁻ˣ)."""
    def silu(self, x: Operand, *, out: Any = None) -> Any:
        """x / (1 + e⁻ˣ)."""
    def mish(self, x: Operand, *, out: Any = None) -> Any:
        """x · tanh(softplus(x))."""
    def hardswish(self, x: Operand, *, out: Any = None) -> Any:
        """x · clip(x + 3, 0, 6) / 6."""
    def softplus(self, x: Operand, *, out: Any = None) -> Any:
        """ln(1 + eˣ)."""
    def log_sigmoid(self, x: Operand, *, out: Any = None) -> Any:
        """ln(1 / (1 + e⁻ˣ))."""
    def swiglu(self, gate: Operand, up: Operand, *, out: Any = None) -> Any:
        """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""
    def geglu(
        self, gate: Operand, up: Operand, *, approximate: Literal["tanh", "none"] = "tanh", out: Any = None
    ) -> Any:
        """gelu(gate) · up, the gated unit of Gemma and T5."""
    def bias_activation(
        self, x: Operand, bias: Operand, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1, out: Any = None
    ) -> Any:
        """activation(x + bias), what follows the product of a linear layer."""
    def add(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """x + y."""
    def residual_add(self, x: Operand, residual: Operand, *, out: Any = None) -> Any:
        """x + residual, the sum around a layer: `add` under the name that a model's code uses."""
    def sub(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """x − y."""
    def mul(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """x · y."""
    def div(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """x / y."""
    def minimum(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """min(x, y)."""
    def maximum(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """max(x, y)."""
    def copysign(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """|x| with the sign of y."""
    def pow(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """xʸ."""
    def fma(self, x: Operand, y: Operand, z: Operand, *, out: Any = None) -> Any:
        """x · y + z, the product not rounded."""
    def lerp(self, x: Operand, y: Operand, t: Number, *, out: Any = None) -> Any:
        """x + t · (y − x)."""
    def scale(self, x: Operand, factor: Number, *, out: Any = None) -> Any:
        """factor · x."""
    def clamp(self, x: Operand, min: Number, max: Number, *, out: Any = None) -> Any:
        """min(max(x, min), max)."""
    def rope(
        self, x: Operand, positions: Indices, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0, out: Any = None
    ) -> Any:
        """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims)."""
    def attention(
        self, q: Operand, k: Operand, v: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, products: Literal["f32", "bf16"] = "f32", out: Any = None
    ) -> Any:
        """y[i,h,:] = Σⱼ p[j] · v[j,g,:], p = softmax over the keys j that query i sees of scale · q[i,h] · k[j,g]."""
    def attention_sinks(
        self, q: Operand, k: Operand, v: Operand, sinks: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: Any = None
    ) -> Any:
        """attention, whose softmax has one term more: p[j] = e^x[j] / (e^sinks[h] + Σᵢ e^x[i])."""
    def attention_masked(
        self, q: Operand, k: Operand, v: Operand, mask: Operand, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: Any = None
    ) -> Any:
        """attention, with mask[h,i,j] added to the score of query i with key j, after the cap; −Inf hides the key."""
    def attention_ragged(
        self, q: Operand, k: Operand, v: Operand, offsets_q: Indices, offsets_k: Indices, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, out: Any = None
    ) -> Any:
        """attention of many sequences, which lie one behind the other: sequence i is offsets[i] to offsets[i + 1]."""
    def attention_decode(
        self, q: Operand, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: Any = None
    ) -> Any:
        """attention(q[i], k of sequence i, v of sequence i, causal=True): the last t tokens of each sequence."""
    def attention_decode_sinks(
        self, q: Operand, k: Pages | NDArray[Any], v: Pages | NDArray[Any], table: Indices, lengths: Indices, sinks: Operand, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = "", out: Any = None
    ) -> Any:
        """attention_decode, whose softmax has the term e^sinks[h] more, as that of attention_sinks."""
    def kv_cache_scatter(
        self, cache: Pages | NDArray[Any], x: Operand, slots: Indices, *, format: str = "", out: Any = None
    ) -> Any:
        """y is the cache with x[i] in slot slots[i]: page slots[i] // page, token slots[i] mod page."""
    def lz4_compress(self, x: NDArray[Any], *, level: Literal[1, 2] = 1, out: Any = None) -> tuple[Any, Any]:
        """blocks[i, :|sizes[i]|] = the LZ4 block of x[i], or x[i] itself where its block would not be smaller."""
    def lz4_decompress(
        self, packed: NDArray[Any], offsets: Indices, sizes: Indices, *, page: int = 4096, out: Any = None
    ) -> tuple[Any, Any]:
        """y[i, :lengths[i]] = what packed[offsets[i] : offsets[i] + |sizes[i]|] decodes to; bytes behind it are 0."""
    def lz4_pack(self, blocks: NDArray[Any], sizes: Indices, *, out: Any = None) -> tuple[Any, Any]:
        """packed = the first |sizes[i]| bytes of each row of blocks, one after the other; offsets[i] = Σ_{j<i} |sizes[j]|."""
    def quantize_rows(
        self, x: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: Any = None
    ) -> Any:
        """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them."""
    def quantize_rows_weighted(
        self, x: Operand, imatrix: Operand, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"], out: Any = None
    ) -> Any:
        """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column."""
    def dequantize(self, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: Any = None) -> Any:
        """y[i,:] = the numbers that the blocks of w[i,:] encode, bit for bit as ggml's."""
    def quant_matvec(
        self, w: QuantizedMatrix | NDArray[Any], x: Operand, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: Any = None
    ) -> Any:
        """y[i] = Σₖ w[i,k] · x[k], w read from its blocks."""
    def quant_matmul(
        self, x: Operand, w: QuantizedMatrix | NDArray[Any], *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: Any = None
    ) -> Any:
        """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer."""
    def quant_matvec_colmajor(
        self, w: QuantizedMatrix | NDArray[Any], x: Operand, *, format: str = "", out: Any = None
    ) -> Any:
        """y[j] = Σₖ w[k,j] · x[k], w read from its blocks, which run along the columns of the matrix that wᵀ is."""
    def quant_matmul_colmajor(
        self, x: Operand, w: QuantizedMatrix | NDArray[Any], *, format: str = "", out: Any = None
    ) -> Any:
        """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j."""
    def quant_embedding_lookup(
        self, w: QuantizedMatrix | NDArray[Any], i: Indices, *, format: str = "", out: Any = None
    ) -> Any:
        """y[…,:] = the numbers that the blocks of w[i[…],:] encode, bit for bit as ggml's."""
    def quant_experts(
        self, w: QuantizedMatrix | NDArray[Any], x: Operand, ids: Indices, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8", out: Any = None
    ) -> Any:
        """y[…,j] = Σₖ x[…,k] · w[ids[…] · outputs + j, k]: the product of each row of x with the expert that it names."""
    def concatenate(self, a: Operand, b: Operand, *, axis: int = 0, out: Any = None) -> Any:
        """a, and after it b, along an axis."""
    def abs(self, x: Operand, *, out: Any = None) -> Any:
        """|x|."""
    def neg(self, x: Operand, *, out: Any = None) -> Any:
        """−x."""
    def sqrt(self, x: Operand, *, out: Any = None) -> Any:
        """√x."""
    def rsqrt(self, x: Operand, *, out: Any = None) -> Any:
        """1 / √x."""
    def recip(self, x: Operand, *, out: Any = None) -> Any:
        """1 / x."""
    def exp(self, x: Operand, *, out: Any = None) -> Any:
        """eˣ."""
    def exp2(self, x: Operand, *, out: Any = None) -> Any:
        """2ˣ."""
    def expm1(self, x: Operand, *, out: Any = None) -> Any:
        """eˣ − 1, accurate near 0."""
    def ln(self, x: Operand, *, out: Any = None) -> Any:
        """Natural logarithm of x."""
    def log1p(self, x: Operand, *, out: Any = None) -> Any:
        """ln(1 + x), accurate near 0."""
    def log2(self, x: Operand, *, out: Any = None) -> Any:
        """Logarithm of x to base 2."""
    def log10(self, x: Operand, *, out: Any = None) -> Any:
        """Logarithm of x to base 10."""
    def sin(self, x: Operand, *, out: Any = None) -> Any:
        """sin x, x in radians."""
    def cos(self, x: Operand, *, out: Any = None) -> Any:
        """cos x, x in radians."""
    def tan(self, x: Operand, *, out: Any = None) -> Any:
        """sin x / cos x, x in radians."""
    def asin(self, x: Operand, *, out: Any = None) -> Any:
        """Angle in [−π/2, π/2] whose sine is x."""
    def acos(self, x: Operand, *, out: Any = None) -> Any:
        """Angle in [0, π] whose cosine is x."""
    def atan(self, x: Operand, *, out: Any = None) -> Any:
        """Angle in [−π/2, π/2] whose tangent is x."""
    def sinh(self, x: Operand, *, out: Any = None) -> Any:
        """(eˣ − e⁻ˣ) / 2, accurate near 0."""
    def cosh(self, x: Operand, *, out: Any = None) -> Any:
        """(eˣ + e⁻ˣ) / 2."""
    def tanh(self, x: Operand, *, out: Any = None) -> Any:
        """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""
    def asinh(self, x: Operand, *, out: Any = None) -> Any:
        """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""
    def acosh(self, x: Operand, *, out: Any = None) -> Any:
        """ln(x + √(x² − 1)), accurate near 1."""
    def atanh(self, x: Operand, *, out: Any = None) -> Any:
        """ln((1 + x) / (1 − x)) / 2, accurate near 0."""
    def floor(self, x: Operand, *, out: Any = None) -> Any:
        """Largest integer ≤ x."""
    def ceil(self, x: Operand, *, out: Any = None) -> Any:
        """Smallest integer ≥ x."""
    def round(self, x: Operand, *, out: Any = None) -> Any:
        """Nearest integer, half to even."""
    def trunc(self, x: Operand, *, out: Any = None) -> Any:
        """x without its fraction: the nearest integer towards 0."""
    def fract(self, x: Operand, *, out: Any = None) -> Any:
        """x − trunc(x)."""
    def signum(self, x: Operand, *, out: Any = None) -> Any:
        """1, −1 or 0: the sign of x."""
    def matmul(self, a: Operand, b: Operand, *, out: Any = None) -> Any:
        """c[i,j] = Σₖ a[i,k] · b[k,j]."""
    def matvec(self, a: Operand, x: Operand, *, out: Any = None) -> Any:
        """y[i] = Σₖ a[i,k] · x[k]."""
    def vecmat(self, x: Operand, a: Operand, *, out: Any = None) -> Any:
        """y[j] = Σₖ x[k] · a[k,j]."""
    def batched_matmul(self, a: Operand, b: Operand, *, out: Any = None) -> Any:
        """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j]."""
    def transpose(self, x: Operand, *, out: Any = None) -> Any:
        """y[j,i] = x[i,j], written out row by row."""
    def outer(self, x: Operand, y: Operand, *, out: Any = None) -> Any:
        """z[i,j] = x[i] · y[j]."""
    def convolve2d(
        self, x: Operand, kernel: Operand, *, mode: Literal["valid", "same"] = "valid", out: Any = None
    ) -> Any:
        """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q]."""
    def embedding_lookup(self, table: Operand, i: Indices, *, out: Any = None) -> Any:
        """y[…,:] = table[i[…],:]."""
    def symmetric_eigen(self, a: Operand, *, out: Any = None) -> tuple[Any, Any]:
        """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal."""
    def softmax(self, x: Operand, axis: int = -1, *, out: Any = None) -> Any:
        """e^(x − max x) / Σ e^(x − max x)."""
    def log_softmax(self, x: Operand, axis: int = -1, *, out: Any = None) -> Any:
        """x − max x − ln Σ e^(x − max x)."""
    def layer_norm(
        self, x: Operand, w: Operand, b: Operand, *, eps: Number = 1e-05, axis: int = -1, out: Any = None
    ) -> Any:
        """(x − mean) / √(variance + eps) · w + b."""
    def rms_norm(self, x: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: Any = None) -> Any:
        """x / √(Σ x² / n + eps) · w."""
    def residual_rms_norm(
        self, x: Operand, residual: Operand, w: Operand, *, eps: Number = 1e-06, axis: int = -1, out: Any = None
    ) -> tuple[Any, Any]:
        """h = x + residual and y = rms_norm(h, w), in one read of each."""
    def normalize(self, x: Operand, axis: int = -1, *, out: Any = None) -> Any:
        """x / √(Σ x²)."""
    def zscore(self, x: Operand, axis: int = -1, *, out: Any = None) -> Any:
        """(x − mean) / √(Σ (x − mean)² / n), population."""
    def minmax_normalize(self, x: Operand, axis: int = -1, *, out: Any = None) -> Any:
        """(x − min x) / (max x − min x)."""
    def dot(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ x · y."""
    def sum(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ x."""
    def sum_kahan(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ x with a compensated or wider accumulator."""
    def sum_of_squares(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ x²."""
    def mean(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ x / n."""
    def min(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Smallest element."""
    def max(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Largest element."""
    def argmin(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Position of the smallest element, int64."""
    def argmax(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Position of the largest element, int64."""
    def norm_l1(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ |x|."""
    def norm_l2(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """√(Σ x²), the Euclidean length."""
    def norm_linf(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """max |x|."""
    def variance(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ (x − mean)² / n, population."""
    def stddev(
        self, x: Operand, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False, out: Any = None
    ) -> Any:
        """√(Σ (x − mean)² / n), population."""
    def covariance(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ (x − mean x)(y − mean y) / n, population."""
    def correlation(
        self, x: Operand, y: Operand, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False, out: Any = None
    ) -> Any:
        """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""
    def topk(self, x: Operand, k: int = 1, *, out: Any = None) -> tuple[Any, Any]:
        """The k largest elements of each row, the largest first, and their positions, int64."""
    def sample(
        self, logits: Operand, r: Operand, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0, out: Any = None
    ) -> Any:
        """A token drawn by the random number r of [0, 1): a function of its operands, int64."""
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

def method(op: Op) -> Callable[..., Any]:
    """An op as a method of a context, with the op's signature."""

def device(name: str) -> DeviceContext:
    """A context of backend `name`: `with trueno.device("simd") as d`."""

def sync_available() -> bool:
    """Whether a call may block here until a device is done."""

