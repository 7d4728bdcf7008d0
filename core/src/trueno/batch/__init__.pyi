"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

from collections.abc import Callable
from numpy.typing import NDArray
from trueno._types import Backend, Number, Operand, _Foreign, _S
from trueno.batch.counts import Counts as Counts
from trueno.batch.handle import Handle as Handle
from trueno.caches import Pages
from trueno.ops.op import Op
from trueno.quant.matrix import QuantizedMatrix
from typing import Any, Literal, overload

class Batch:
    """Records ops and runs them as few kernels: `trueno.Batch("simd")`, or without a name to choose automatically."""

    name: str
    def __init__(self, backend: Backend | None = None) -> None: ...
    def __enter__(self) -> Batch: ...
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None: ...
    def close(self) -> None:
        """Release all buffers; handles cannot be used after that.  Closing again has no effect."""
    def __repr__(self) -> str: ...
    def __str__(self) -> str: ...
    def to_mermaid(self) -> str:
        """The plan as a flowchart in Mermaid's language, which GitHub, GitLab, JupyterLab and many editors draw."""
    @property
    def counts(self) -> Counts:
        """The counts of uploads, runs and reads since the batch was made."""
    def upload(self, x: Operand | QuantizedMatrix | Pages, *, live: bool = False) -> Handle:
        """A handle of `x`: an array, a list, a number, or an array of the backend on which this runs."""
    def update(self, h: Handle, x: Operand | QuantizedMatrix | Pages) -> None:
        """Replace the array of an upload by one of the same shape and dtype."""
    def feed(self, h: Handle, result: Handle) -> None:
        """Let an upload have the contents of a result when an execution has ended: the next one starts from them."""
    def call(self, op: Op, *operands: Any, **parameters: Any) -> Any:
        """Record an op that is not in the table: one that a backend has declared for itself and has a kernel for."""
    def keep(self, h: Handle) -> Handle:
        """Make `execute()` compute `h` even if other ops use it, so that `read` need not compute it."""
    def execute(self, *, wait: bool=True) -> None:
        """Run the recorded ops.  The first error ends the run and names its op; uploads stay, and it may run again."""
    async def execute_async(self) -> None:
        """Run the recorded ops in a worker thread, so that the event loop continues."""
    @overload
    def read(self, h: Handle, out: None = None) -> Any:
        """A copy of a handle's array, in `out` if given; a NumPy scalar if the op returns one."""
    @overload
    def read(self, h: Handle, out: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def read(self, h: Handle, out: _Foreign) -> _Foreign: ...
    def fetch(self, h: Handle) -> Callable[[], Any]:
        """Begin to read a handle's array, and return the function that waits for it and returns it."""
    async def read_async(self, h: Handle) -> Any:
        """`read` while the event loop stays free; in a page (Pyodide) the way to read where calls may not wait."""

    def relu(self, x: Handle | Number) -> Handle:
        """max(x, 0)."""
    def leaky_relu(self, x: Handle | Number, *, slope: Number = 0.01) -> Handle:
        """x where x ≥ 0, else slope · x."""
    def elu(self, x: Handle | Number, *, alpha: Number = 1.0) -> Handle:
        """x where x > 0, else alpha · (eˣ − 1)."""
    def selu(self, x: Handle | Number) -> Handle:
        """1.0507… · (x where x > 0, else 1.6732… · (eˣ − 1))."""
    def gelu(self, x: Handle | Number, *, approximate: Literal["tanh", "none"] = "tanh") -> Handle:
        """x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    def sigmoid(self, x: Handle | Number) -> Handle:
        """1 / (1 + e⁻ˣ)."""
    def silu(self, x: Handle | Number) -> Handle:
        """x / (1 + e⁻ˣ)."""
    def mish(self, x: Handle | Number) -> Handle:
        """x · tanh(softplus(x))."""
    def hardswish(self, x: Handle | Number) -> Handle:
        """x · clip(x + 3, 0, 6) / 6."""
    def softplus(self, x: Handle | Number) -> Handle:
        """ln(1 + eˣ)."""
    def log_sigmoid(self, x: Handle | Number) -> Handle:
        """ln(1 / (1 + e⁻ˣ))."""
    def swiglu(self, gate: Handle | Number, up: Handle | Number) -> Handle:
        """silu(gate) · up, the gated unit of Llama, Qwen and Mistral."""
    def geglu(
        self, gate: Handle | Number, up: Handle | Number, *, approximate: Literal["tanh", "none"] = "tanh"
    ) -> Handle:
        """gelu(gate) · up, the gated unit of Gemma and T5."""
    def bias_activation(
        self, x: Handle | Number, bias: Handle | Number, *, activation: Literal["relu", "gelu", "gelu_erf", "silu", "sigmoid", "tanh", "none"] = "relu", axis: int = -1
    ) -> Handle:
        """activation(x + bias), what follows the product of a linear layer."""
    def add(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """x + y."""
    def residual_add(self, x: Handle | Number, residual: Handle | Number) -> Handle:
        """x + residual, the sum around a layer: `add` under the name that a model's code uses."""
    def sub(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """x − y."""
    def mul(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """x · y."""
    def div(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """x / y."""
    def minimum(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """min(x, y)."""
    def maximum(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """max(x, y)."""
    def copysign(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """|x| with the sign of y."""
    def pow(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """xʸ."""
    def fma(self, x: Handle | Number, y: Handle | Number, z: Handle | Number) -> Handle:
        """x · y + z, the product not rounded."""
    def lerp(self, x: Handle | Number, y: Handle | Number, t: Number) -> Handle:
        """x + t · (y − x)."""
    def scale(self, x: Handle | Number, factor: Number) -> Handle:
        """factor · x."""
    def clamp(self, x: Handle | Number, min: Number, max: Number) -> Handle:
        """min(max(x, min), max)."""
    def rope(
        self, x: Handle | Number, positions: Handle | Number, *, theta: Number = 10000.0, style: Literal["neox", "interleaved"] = "neox", dims: int = 0, scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none", factor: Number = 1.0, context: Number = 0.0, slow: Number = 1.0, fast: Number = 0.0, magnitude: Number = 0.0
    ) -> Handle:
        """Pair i = (a, b) of a head becomes (a cos α − b sin α, b cos α + a sin α), α = position · θ^(−2i/dims)."""
    def attention(
        self, q: Handle | Number, k: Handle | Number, v: Handle | Number, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0
    ) -> Handle:
        """y[i,h,:] = Σⱼ p[j] · v[j,g,:], p = softmax over the keys j that query i sees of scale · q[i,h] · k[j,g]."""
    def attention_sinks(
        self, q: Handle | Number, k: Handle | Number, v: Handle | Number, sinks: Handle | Number, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0
    ) -> Handle:
        """attention, whose softmax has one term more: p[j] = e^x[j] / (e^sinks[h] + Σᵢ e^x[i])."""
    def attention_masked(
        self, q: Handle | Number, k: Handle | Number, v: Handle | Number, mask: Handle | Number, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0
    ) -> Handle:
        """attention, with mask[h,i,j] added to the score of query i with key j, after the cap; −Inf hides the key."""
    def attention_ragged(
        self, q: Handle | Number, k: Handle | Number, v: Handle | Number, offsets_q: Handle | Number, offsets_k: Handle | Number, *, causal: bool = False, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0
    ) -> Handle:
        """attention of many sequences, which lie one behind the other: sequence i is offsets[i] to offsets[i + 1]."""
    def attention_decode(
        self, q: Handle | Number, k: Handle | Number, v: Handle | Number, table: Handle | Number, lengths: Handle | Number, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = ""
    ) -> Handle:
        """attention(q[i], k of sequence i, v of sequence i, causal=True): the last t tokens of each sequence."""
    def attention_decode_sinks(
        self, q: Handle | Number, k: Handle | Number, v: Handle | Number, table: Handle | Number, lengths: Handle | Number, sinks: Handle | Number, *, scale: Number = 0.0, window: int = 0, softcap: Number = 0.0, format: str = ""
    ) -> Handle:
        """attention_decode, whose softmax has the term e^sinks[h] more, as that of attention_sinks."""
    def kv_cache_scatter(
        self, cache: Handle | Number, x: Handle | Number, slots: Handle | Number, *, format: str = ""
    ) -> Handle:
        """y is the cache with x[i] in slot slots[i]: page slots[i] // page, token slots[i] mod page."""
    def lz4_compress(self, x: Handle | Number, *, level: Literal[1, 2] = 1) -> tuple[Handle, Handle]:
        """blocks[i, :|sizes[i]|] = the LZ4 block of x[i], or x[i] itself where its block would not be smaller."""
    def lz4_decompress(
        self, packed: Handle | Number, offsets: Handle | Number, sizes: Handle | Number, *, page: int = 4096
    ) -> tuple[Handle, Handle]:
        """y[i, :lengths[i]] = what packed[offsets[i] : offsets[i] + |sizes[i]|] decodes to; bytes behind it are 0."""
    def lz4_pack(self, blocks: Handle | Number, sizes: Handle | Number) -> tuple[Handle, Handle]:
        """packed = the first |sizes[i]| bytes of each row of blocks, one after the other; offsets[i] = Σ_{j<i} |sizes[j]|."""
    def quantize_rows(
        self, x: Handle | Number, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"]
    ) -> Handle:
        """w[i,:] = the blocks of x[i,:] in `format`, byte for byte as ggml's reference quantizer writes them."""
    def quantize_rows_weighted(
        self, x: Handle | Number, imatrix: Handle | Number, *, format: Literal["q4_k", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"]
    ) -> Handle:
        """w[i,:] = the blocks of x[i,:] in `format`, errors weighted by `imatrix`: the importance of each column."""
    def dequantize(self, w: Handle | Number, *, format: str = "") -> Handle:
        """y[i,:] = the numbers that the blocks of w[i,:] encode, bit for bit as ggml's."""
    def quant_matvec(
        self, w: Handle | Number, x: Handle | Number, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8"
    ) -> Handle:
        """y[i] = Σₖ w[i,k] · x[k], w read from its blocks."""
    def quant_matmul(
        self, x: Handle | Number, w: Handle | Number, *, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8"
    ) -> Handle:
        """y[i,j] = Σₖ x[i,k] · w[j,k], w read from its blocks: x · wᵀ, as in a linear layer."""
    def quant_matvec_colmajor(self, w: Handle | Number, x: Handle | Number, *, format: str = "") -> Handle:
        """y[j] = Σₖ w[k,j] · x[k], w read from its blocks, which run along the columns of the matrix that wᵀ is."""
    def quant_matmul_colmajor(self, x: Handle | Number, w: Handle | Number, *, format: str = "") -> Handle:
        """y[i,j] = Σₖ x[i,k] · w[k,j], w read from its blocks, which run along j."""
    def quant_embedding_lookup(self, w: Handle | Number, i: Handle | Number, *, format: str = "") -> Handle:
        """y[…,:] = the numbers that the blocks of w[i[…],:] encode, bit for bit as ggml's."""
    def quant_experts(
        self, w: Handle | Number, x: Handle | Number, ids: Handle | Number, *, outputs: int = 1, format: str = "", activations: Literal["q8", "f32", "bf16"] = "q8"
    ) -> Handle:
        """y[…,j] = Σₖ x[…,k] · w[ids[…] · outputs + j, k]: the product of each row of x with the expert that it names."""
    def concatenate(self, a: Handle | Number, b: Handle | Number, *, axis: int = 0) -> Handle:
        """a, and after it b, along an axis."""
    def abs(self, x: Handle | Number) -> Handle:
        """|x|."""
    def neg(self, x: Handle | Number) -> Handle:
        """−x."""
    def sqrt(self, x: Handle | Number) -> Handle:
        """√x."""
    def rsqrt(self, x: Handle | Number) -> Handle:
        """1 / √x."""
    def recip(self, x: Handle | Number) -> Handle:
        """1 / x."""
    def exp(self, x: Handle | Number) -> Handle:
        """eˣ."""
    def exp2(self, x: Handle | Number) -> Handle:
        """2ˣ."""
    def expm1(self, x: Handle | Number) -> Handle:
        """eˣ − 1, accurate near 0."""
    def ln(self, x: Handle | Number) -> Handle:
        """Natural logarithm of x."""
    def log1p(self, x: Handle | Number) -> Handle:
        """ln(1 + x), accurate near 0."""
    def log2(self, x: Handle | Number) -> Handle:
        """Logarithm of x to base 2."""
    def log10(self, x: Handle | Number) -> Handle:
        """Logarithm of x to base 10."""
    def sin(self, x: Handle | Number) -> Handle:
        """sin x, x in radians."""
    def cos(self, x: Handle | Number) -> Handle:
        """cos x, x in radians."""
    def tan(self, x: Handle | Number) -> Handle:
        """sin x / cos x, x in radians."""
    def asin(self, x: Handle | Number) -> Handle:
        """Angle in [−π/2, π/2] whose sine is x."""
    def acos(self, x: Handle | Number) -> Handle:
        """Angle in [0, π] whose cosine is x."""
    def atan(self, x: Handle | Number) -> Handle:
        """Angle in [−π/2, π/2] whose tangent is x."""
    def sinh(self, x: Handle | Number) -> Handle:
        """(eˣ − e⁻ˣ) / 2, accurate near 0."""
    def cosh(self, x: Handle | Number) -> Handle:
        """(eˣ + e⁻ˣ) / 2."""
    def tanh(self, x: Handle | Number) -> Handle:
        """(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)."""
    def asinh(self, x: Handle | Number) -> Handle:
        """sign(x) · ln(|x| + √(x² + 1)), accurate near 0."""
    def acosh(self, x: Handle | Number) -> Handle:
        """ln(x + √(x² − 1)), accurate near 1."""
    def atanh(self, x: Handle | Number) -> Handle:
        """ln((1 + x) / (1 − x)) / 2, accurate near 0."""
    def floor(self, x: Handle | Number) -> Handle:
        """Largest integer ≤ x."""
    def ceil(self, x: Handle | Number) -> Handle:
        """Smallest integer ≥ x."""
    def round(self, x: Handle | Number) -> Handle:
        """Nearest integer, half to even."""
    def trunc(self, x: Handle | Number) -> Handle:
        """x without its fraction: the nearest integer towards 0."""
    def fract(self, x: Handle | Number) -> Handle:
        """x − trunc(x)."""
    def signum(self, x: Handle | Number) -> Handle:
        """1, −1 or 0: the sign of x."""
    def matmul(self, a: Handle | Number, b: Handle | Number) -> Handle:
        """c[i,j] = Σₖ a[i,k] · b[k,j]."""
    def matvec(self, a: Handle | Number, x: Handle | Number) -> Handle:
        """y[i] = Σₖ a[i,k] · x[k]."""
    def vecmat(self, x: Handle | Number, a: Handle | Number) -> Handle:
        """y[j] = Σₖ x[k] · a[k,j]."""
    def batched_matmul(self, a: Handle | Number, b: Handle | Number) -> Handle:
        """c[…,i,j] = Σₖ a[…,i,k] · b[…,k,j]."""
    def transpose(self, x: Handle | Number) -> Handle:
        """y[j,i] = x[i,j], written out row by row."""
    def outer(self, x: Handle | Number, y: Handle | Number) -> Handle:
        """z[i,j] = x[i] · y[j]."""
    def convolve2d(
        self, x: Handle | Number, kernel: Handle | Number, *, mode: Literal["valid", "same"] = "valid"
    ) -> Handle:
        """y[o,i,j] = Σ_c Σ_p Σ_q x[c, i+p, j+q] · kernel[o,c,p,q]."""
    def embedding_lookup(self, table: Handle | Number, i: Handle | Number) -> Handle:
        """y[…,:] = table[i[…],:]."""
    def symmetric_eigen(self, a: Handle | Number) -> tuple[Handle, Handle]:
        """a · vectors[:,j] = values[j] · vectors[:,j], values descending, vectors orthonormal."""
    def softmax(self, x: Handle | Number, axis: int = -1) -> Handle:
        """e^(x − max x) / Σ e^(x − max x)."""
    def log_softmax(self, x: Handle | Number, axis: int = -1) -> Handle:
        """x − max x − ln Σ e^(x − max x)."""
    def layer_norm(
        self, x: Handle | Number, w: Handle | Number, b: Handle | Number, *, eps: Number = 1e-05, axis: int = -1
    ) -> Handle:
        """(x − mean) / √(variance + eps) · w + b."""
    def rms_norm(self, x: Handle | Number, w: Handle | Number, *, eps: Number = 1e-06, axis: int = -1) -> Handle:
        """x / √(Σ x² / n + eps) · w."""
    def residual_rms_norm(
        self, x: Handle | Number, residual: Handle | Number, w: Handle | Number, *, eps: Number = 1e-06, axis: int = -1
    ) -> tuple[Handle, Handle]:
        """h = x + residual and y = rms_norm(h, w), in one read of each."""
    def normalize(self, x: Handle | Number, axis: int = -1) -> Handle:
        """x / √(Σ x²)."""
    def zscore(self, x: Handle | Number, axis: int = -1) -> Handle:
        """(x − mean) / √(Σ (x − mean)² / n), population."""
    def minmax_normalize(self, x: Handle | Number, axis: int = -1) -> Handle:
        """(x − min x) / (max x − min x)."""
    def dot(
        self, x: Handle | Number, y: Handle | Number, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False
    ) -> Handle:
        """Σ x · y."""
    def sum(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Σ x."""
    def sum_kahan(
        self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False
    ) -> Handle:
        """Σ x with a compensated or wider accumulator."""
    def sum_of_squares(
        self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False
    ) -> Handle:
        """Σ x²."""
    def mean(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Σ x / n."""
    def min(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Smallest element."""
    def max(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Largest element."""
    def argmin(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Position of the smallest element, int64."""
    def argmax(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Position of the largest element, int64."""
    def norm_l1(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """Σ |x|."""
    def norm_l2(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """√(Σ x²), the Euclidean length."""
    def norm_linf(
        self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False
    ) -> Handle:
        """max |x|."""
    def variance(
        self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False
    ) -> Handle:
        """Σ (x − mean)² / n, population."""
    def stddev(self, x: Handle | Number, axis: int | tuple[int, ...] | None = -1, *, keepdims: bool = False) -> Handle:
        """√(Σ (x − mean)² / n), population."""
    def covariance(
        self, x: Handle | Number, y: Handle | Number, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False
    ) -> Handle:
        """Σ (x − mean x)(y − mean y) / n, population."""
    def correlation(
        self, x: Handle | Number, y: Handle | Number, *, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False
    ) -> Handle:
        """Σ dx·dy / (√Σ dx² · √Σ dy²), dx = x − mean x, dy = y − mean y; Pearson's, within [−1, 1]."""
    def topk(self, x: Handle | Number, k: int = 1) -> tuple[Handle, Handle]:
        """The k largest elements of each row, the largest first, and their positions, int64."""
    def sample(
        self, logits: Handle | Number, r: Handle | Number, *, temperature: Number = 1.0, top_k: int = 0, top_p: Number = 1.0, min_p: Number = 0.0
    ) -> Handle:
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
