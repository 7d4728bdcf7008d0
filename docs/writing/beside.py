"""What stands beside an op's meaning on its page: how to write it in NumPy and PyTorch, an example, how exact it is.

`tests/docs/test_beside.py` computes every expression on random operands and compares it with the op.
"""

from dataclasses import dataclass

NONE = "none"
"""Said of an op that the library has no function or short expression for."""


@dataclass(frozen=True)
class Beside:
    """The entry of an op; names in an expression are those of its operands and parameters.

    numpy, torch: expressions, or `NONE`.  F is torch.nn.functional.
    example: lines that end with a call, in place of the call that follows from the signature.
    exact: how exact the result is, where that does not follow from a program or a sum of products; empty otherwise.
    one_row: whether the expressions are for one row.
    """

    numpy: str
    torch: str
    example: str = ""
    exact: str = ""
    one_row: bool = False


COPIED = "bits are copied"
TOKENS = "x = np.eye(2, dtype=np.float32)[:, None]  # two tokens with one head of two numbers\ntrueno.{}(x, x, x{})"
CACHE = "pages = np.ones((1, 4, 1, 2), np.float32)  # one page of four tokens, with one head of two numbers\n"
SCORES = (
    "a score errs by at most (d + 16) · u · scale · Σ\\|q·k\\|, the weights by a factor of e to that, and the sums of "
    "products by (s + 16) · u; u is half a unit in the last place of 1"
)
ROWS = "x = np.arange(32, dtype=np.float32)[None]\n"
WEIGHTS = 'w = trueno.quantize(np.eye(2, 32, dtype=np.float32), "q8_0")\n'
QUANTIZED = (
    'products of blocks of 8-bit numbers, added in float32; with activations="f32" a sum of k products of float32'
)
DESCENDING = "np.argsort(-x, axis=-1, kind='stable')[..., :k]"

BESIDE: dict[str, Beside] = {
    # arithmetic
    "add": Beside("x + y", "x + y"),
    "residual_add": Beside("x + residual", "x + residual"),
    "sub": Beside("x - y", "x - y"),
    "mul": Beside("x * y", "x * y"),
    "div": Beside("x / y", "x / y"),
    "minimum": Beside("np.minimum(x, y)", "torch.minimum(x, y)"),
    "maximum": Beside("np.maximum(x, y)", "torch.maximum(x, y)"),
    "copysign": Beside("np.copysign(x, y)", "torch.copysign(x, y)"),
    "pow": Beside("x**y", "x**y"),
    "fma": Beside("x * y + z", "torch.addcmul(z, x, y)"),
    "lerp": Beside("x + t * (y - x)", "torch.lerp(x, y, t)", "trueno.lerp([1.0, 2.0], [3.0, 6.0], 0.5)"),
    "scale": Beside("factor * x", "factor * x", "trueno.scale([1.0, 2.0], 10.0)"),
    "clamp": Beside("np.clip(x, min, max)", "torch.clamp(x, min, max)", "trueno.clamp([-2.0, 0.5, 3.0], -1.0, 1.0)"),
    # mathematics
    "abs": Beside("np.abs(x)", "torch.abs(x)"),
    "neg": Beside("-x", "-x"),
    "sqrt": Beside("np.sqrt(x)", "torch.sqrt(x)"),
    "rsqrt": Beside("1 / np.sqrt(x)", "torch.rsqrt(x)"),
    "recip": Beside("1 / x", "torch.reciprocal(x)"),
    "exp": Beside("np.exp(x)", "torch.exp(x)"),
    "exp2": Beside("np.exp2(x)", "torch.exp2(x)"),
    "expm1": Beside("np.expm1(x)", "torch.expm1(x)"),
    "ln": Beside("np.log(x)", "torch.log(x)"),
    "log1p": Beside("np.log1p(x)", "torch.log1p(x)"),
    "log2": Beside("np.log2(x)", "torch.log2(x)"),
    "log10": Beside("np.log10(x)", "torch.log10(x)"),
    "sin": Beside("np.sin(x)", "torch.sin(x)"),
    "cos": Beside("np.cos(x)", "torch.cos(x)"),
    "tan": Beside("np.tan(x)", "torch.tan(x)"),
    "asin": Beside("np.arcsin(x)", "torch.asin(x)"),
    "acos": Beside("np.arccos(x)", "torch.acos(x)"),
    "atan": Beside("np.arctan(x)", "torch.atan(x)"),
    "sinh": Beside("np.sinh(x)", "torch.sinh(x)"),
    "cosh": Beside("np.cosh(x)", "torch.cosh(x)"),
    "tanh": Beside("np.tanh(x)", "torch.tanh(x)"),
    "asinh": Beside("np.arcsinh(x)", "torch.asinh(x)"),
    "acosh": Beside("np.arccosh(x)", "torch.acosh(x)", "trueno.acosh([1.0, 2.0, 10.0])"),
    "atanh": Beside("np.arctanh(x)", "torch.atanh(x)"),
    "floor": Beside("np.floor(x)", "torch.floor(x)"),
    "ceil": Beside("np.ceil(x)", "torch.ceil(x)"),
    "round": Beside("np.rint(x)", "torch.round(x)", "trueno.round([-1.5, 0.5, 2.6])"),
    "trunc": Beside("np.trunc(x)", "torch.trunc(x)", "trueno.trunc([-1.5, 0.5, 2.6])"),
    "fract": Beside("x - np.trunc(x)", "torch.frac(x)", "trueno.fract([-1.5, 0.5, 2.25])"),
    "signum": Beside("np.sign(x)", "torch.sign(x)"),
    # activations
    "relu": Beside("np.maximum(x, 0)", "torch.relu(x)"),
    "leaky_relu": Beside("np.where(x >= 0, x, slope * x)", "F.leaky_relu(x, slope)"),
    "elu": Beside("np.where(x > 0, x, alpha * np.expm1(x))", "F.elu(x, alpha)"),
    "selu": Beside("1.05070098735548 * np.where(x > 0, x, 1.673263242354377 * np.expm1(x))", "torch.selu(x)"),
    "gelu": Beside(
        "x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))", "F.gelu(x, approximate=approximate)"
    ),
    "sigmoid": Beside("1 / (1 + np.exp(-x))", "torch.sigmoid(x)"),
    "silu": Beside("x / (1 + np.exp(-x))", "F.silu(x)"),
    "mish": Beside("x * np.tanh(np.log1p(np.exp(x)))", "F.mish(x)"),
    "hardswish": Beside("x * np.clip(x + 3, 0, 6) / 6", "F.hardswish(x)"),
    "softplus": Beside("np.logaddexp(0, x)", "F.softplus(x)"),
    "log_sigmoid": Beside("-np.logaddexp(0, -x)", "F.logsigmoid(x)"),
    "swiglu": Beside("gate / (1 + np.exp(-gate)) * up", "F.silu(gate) * up"),
    "geglu": Beside(
        "gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up",
        "F.gelu(gate, approximate=approximate) * up",
    ),
    "bias_activation": Beside("np.maximum(x + bias, 0)", "torch.relu(x + bias)"),
    # reductions
    "dot": Beside("np.vecdot(x, y)", "torch.linalg.vecdot(x, y)"),
    "sum": Beside("np.sum(x, axis=-1)", "torch.sum(x, dim=-1)"),
    "sum_kahan": Beside("np.sum(x, axis=-1, dtype=np.float64)", "torch.sum(x, dim=-1, dtype=torch.float64)"),
    "sum_of_squares": Beside("np.vecdot(x, x)", "torch.linalg.vecdot(x, x)"),
    "mean": Beside("np.mean(x, axis=-1)", "torch.mean(x, dim=-1)"),
    "min": Beside("np.min(x, axis=-1)", "torch.amin(x, dim=-1)"),
    "max": Beside("np.max(x, axis=-1)", "torch.amax(x, dim=-1)"),
    "argmin": Beside("np.argmin(x, axis=-1)", "torch.argmin(x, dim=-1)"),
    "argmax": Beside("np.argmax(x, axis=-1)", "torch.argmax(x, dim=-1)"),
    "norm_l1": Beside("np.linalg.norm(x, 1, axis=-1)", "torch.linalg.vector_norm(x, 1, dim=-1)"),
    "norm_l2": Beside("np.linalg.norm(x, axis=-1)", "torch.linalg.vector_norm(x, dim=-1)"),
    "norm_linf": Beside("np.linalg.norm(x, np.inf, axis=-1)", "torch.linalg.vector_norm(x, torch.inf, dim=-1)"),
    "variance": Beside("np.var(x, axis=-1)", "torch.var(x, dim=-1, correction=0)"),
    "stddev": Beside("np.std(x, axis=-1)", "torch.std(x, dim=-1, correction=0)"),
    "covariance": Beside(
        "np.cov(x, y, bias=True)[0, 1]", "torch.cov(torch.stack([x, y]), correction=0)[0, 1]", one_row=True
    ),
    "correlation": Beside("np.corrcoef(x, y)[0, 1]", "torch.corrcoef(torch.stack([x, y]))[0, 1]", one_row=True),
    # normalization
    "softmax": Beside(
        "(e := np.exp(x - x.max(axis=-1, keepdims=True))) / e.sum(axis=-1, keepdims=True)", "torch.softmax(x, dim=-1)"
    ),
    "log_softmax": Beside(
        "(z := x - x.max(axis=-1, keepdims=True)) - np.log(np.exp(z).sum(axis=-1, keepdims=True))",
        "torch.log_softmax(x, dim=-1)",
    ),
    "layer_norm": Beside(
        "(x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * w + b",
        "F.layer_norm(x, x.shape[-1:], w, b, eps)",
        "trueno.layer_norm([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.5])",
    ),
    "rms_norm": Beside(
        "x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w",
        "F.rms_norm(x, x.shape[-1:], w, eps)",
        "trueno.rms_norm([3.0, 4.0], [1.0, 1.0])",
    ),
    "residual_rms_norm": Beside(
        "(h := x + residual, h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + eps) * w)",
        "(h := x + residual, F.rms_norm(h, h.shape[-1:], w, eps))",
        "trueno.residual_rms_norm([1.0, 2.0], [2.0, 2.0], [1.0, 1.0])",
    ),
    "normalize": Beside("x / np.linalg.norm(x, axis=-1, keepdims=True)", "F.normalize(x, dim=-1)"),
    "zscore": Beside(
        "(x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)",
        "(x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)",
    ),
    "minmax_normalize": Beside(
        "(x - (low := x.min(-1, keepdims=True))) / (x.max(-1, keepdims=True) - low)",
        "(x - (low := x.amin(-1, keepdim=True))) / (x.amax(-1, keepdim=True) - low)",
    ),
    # matrix
    "matmul": Beside("a @ b", "a @ b"),
    "matvec": Beside("a @ x", "a @ x"),
    "vecmat": Beside("x @ a", "x @ a"),
    "batched_matmul": Beside("a @ b", "a @ b"),
    "transpose": Beside("x.T", "x.T", exact=COPIED),
    "outer": Beside("np.outer(x, y)", "torch.outer(x, y)"),
    "convolve2d": Beside(
        "np.einsum('ijpq,pq->ij', np.lib.stride_tricks.sliding_window_view(x, kernel.shape), kernel)",
        "F.conv2d(x[None, None], kernel[None, None], padding=mode)[0, 0]",
        "trueno.convolve2d([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, -1.0]])",
    ),
    "embedding_lookup": Beside(
        "table[i]", "F.embedding(i, table)", "trueno.embedding_lookup([[1.0, 2.0], [3.0, 4.0]], [1, 1, 0])", COPIED
    ),
    "symmetric_eigen": Beside(
        "(np.linalg.eigvalsh(a)[::-1], np.linalg.eigh(a)[1][:, ::-1])  # but for signs",
        "(torch.linalg.eigvalsh(a).flip(0), torch.linalg.eigh(a)[1].flip(1))  # but for signs",
        "trueno.symmetric_eigen([[2.0, 1.0], [1.0, 3.0]])",
        "residuals and orthogonality within some n · u of the largest value; computed by LAPACK or by Jacobi's method",
    ),
    # attention
    "rope": Beside(NONE, NONE, "trueno.rope([[[1.0, 0.0]], [[1.0, 0.0]]], [0, 1])", "angles to 2⁻⁴² of a turn"),
    "attention": Beside(
        NONE,
        "F.scaled_dot_product_attention(*(o.transpose(-3, -2) for o in (q, k, v)), is_causal=causal, "
        "enable_gqa=True).transpose(-3, -2)",
        TOKENS.format("attention", ""),
        SCORES,
    ),
    "attention_sinks": Beside(NONE, NONE, TOKENS.format("attention_sinks", ", [0.0]"), SCORES),
    "attention_masked": Beside(
        NONE,
        "F.scaled_dot_product_attention(*(o.transpose(-3, -2) for o in (q, k, v)), attn_mask=mask, "
        "enable_gqa=True).transpose(-3, -2)",
        TOKENS.format("attention_masked", ", [[[0.0, -np.inf], [0.0, 0.0]]]"),
        SCORES,
    ),
    "attention_ragged": Beside(NONE, NONE, TOKENS.format("attention_ragged", ", [0, 1, 2], [0, 1, 2]"), SCORES),
    # selection
    "topk": Beside(
        f"(np.take_along_axis(x, order := {DESCENDING}, axis=-1), order)",
        "tuple(torch.topk(x, k))",
        "trueno.topk([1.0, 3.0, 2.0], 2)",
        COPIED,
    ),
    "sample": Beside(NONE, NONE, "trueno.sample([[0.0, 1.0, 2.0]], [0.5])", "sums in float64"),
    # caches
    "attention_decode": Beside(
        NONE, NONE, CACHE + "trueno.attention_decode([[[[1.0, 0.0]]]], pages, pages, [[0]], [3])", SCORES
    ),
    "attention_decode_sinks": Beside(
        NONE,
        NONE,
        CACHE + "trueno.attention_decode_sinks([[[[1.0, 0.0]]]], pages, pages, [[0]], [3], [0.0])",
        SCORES,
    ),
    "kv_cache_scatter": Beside(
        NONE,
        NONE,
        "cache = np.zeros((1, 2, 1, 2), np.float16)  # one page of two tokens, with one head of two numbers\n"
        "trueno.kv_cache_scatter(cache, [[[1.0, 2.0]]], [1]).view(np.float16).reshape(2, 2)",
        "rounded to nearest even; q8_0 byte for byte as ggml quantizes",
    ),
    # layout
    "concatenate": Beside(
        "np.concatenate((a, b), axis)", "torch.cat((a, b), axis)", "trueno.concatenate([1.0, 2.0], [3.0])", COPIED
    ),
    # quantized
    "quantize_rows": Beside(
        NONE, NONE, ROWS + 'trueno.quantize_rows(x, format="q8_0").shape', "byte for byte as ggml's reference quantizer"
    ),
    "quantize_rows_weighted": Beside(
        NONE,
        NONE,
        ROWS + 'trueno.quantize_rows_weighted(x, x[0], format="q4_0").shape',
        "byte for byte as ggml's quantizer",
    ),
    "dequantize": Beside(
        NONE, NONE, ROWS + 'trueno.dequantize(trueno.quantize(x, "q8_0"))[0, :4]', "bit for bit as ggml's numbers"
    ),
    "quant_matvec": Beside(NONE, NONE, WEIGHTS + "trueno.quant_matvec(w, np.arange(32, dtype=np.float32))", QUANTIZED),
    "quant_matmul": Beside(NONE, NONE, WEIGHTS + "trueno.quant_matmul(np.ones((1, 32), np.float32), w)", QUANTIZED),
    "quant_matvec_colmajor": Beside(
        NONE, NONE, WEIGHTS + "trueno.quant_matvec_colmajor(w.T, [1.0, 2.0])[:4]", "a sum of k products of float32"
    ),
    "quant_matmul_colmajor": Beside(
        NONE,
        NONE,
        WEIGHTS + "trueno.quant_matmul_colmajor([[1.0, 2.0]], w.T)[:, :4]",
        "a sum of k products of float32",
    ),
    # indexed
    "quant_embedding_lookup": Beside(
        NONE, NONE, WEIGHTS + "trueno.quant_embedding_lookup(w, [1])[:, :4]", "bit for bit as ggml's numbers"
    ),
    "quant_experts": Beside(
        NONE, NONE, WEIGHTS + "trueno.quant_experts(w, np.ones((1, 32), np.float32), [1])", QUANTIZED
    ),
    # compression
    "lz4_compress": Beside(
        NONE, NONE, "trueno.lz4_compress(np.zeros((2, 64), np.uint8))[1]", "standard LZ4 blocks; which bytes is free"
    ),
    "lz4_decompress": Beside(
        NONE, NONE, "trueno.lz4_decompress(np.arange(8, dtype=np.uint8), [0], [-8], page=8)", "exact"
    ),
    "lz4_pack": Beside(NONE, NONE, "trueno.lz4_pack(np.ones((2, 3), np.uint8), [2, -1])", "exact"),
}
