"""llama.cpp's CPU code (ggml), through the shared libraries that the package llama-cpp-python brings.

An optional requirement of the benchmarks alone: `library()` is None where it is not installed, and `MISSING` says what
to do.  Nothing of it is imported: its libraries are loaded by path, and called through ctypes.

    MulMat("q4_k", n=4096, k=4096, m=1, threads=2, repack=True).run()

computes y[m, n] = x[m, k] · W[n, k]ᵀ once, by a graph and on a thread pool that were made beforehand, as llama.cpp does
for every token; `.result()` is what came out, and `.check()` compares it with NumPy's.  `quantizer` and
`dequantizer` are the functions of rows.  Of ggml's structures only one is written down here, three fields long; all
else goes through its functions.
"""

import ctypes as c
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from trueno.formats.table import FORMATS

from benchmarks.timing import Thunk, bind

Array = np.ndarray[Any, Any]
MISSING = "ggml is not installed: `pip install llama-cpp-python` brings it (it is compiled, in a few minutes)"
FOLDED = 192 << 20  # bytes of copies to rotate through, so that none is left in a cache when its turn comes
SAMPLE = 256  # rows that are quantized for a matrix; it repeats them
CHECKED = 64  # rows of a matrix whose products are compared with NumPy's
F32 = 0  # ggml's number of float32


class _InitParams(c.Structure):
    """ggml_init_params."""

    _fields_ = (("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool))


P, SIZE, I64, INT = c.c_void_p, c.c_size_t, c.c_int64, c.c_int
SIGNATURES: dict[str, tuple[Any, ...]] = {  # result, then arguments
    "ggml_init": (P, _InitParams),
    "ggml_free": (None, P),
    "ggml_tensor_overhead": (SIZE,),
    "ggml_graph_overhead_custom": (SIZE, SIZE, c.c_bool),
    "ggml_new_tensor_2d": (P, P, INT, I64, I64),
    "ggml_mul_mat": (P, P, P, P),
    "ggml_new_graph_custom": (P, P, SIZE, c.c_bool),
    "ggml_build_forward_expand": (None, P, P),
    "ggml_backend_cpu_init": (P,),
    "ggml_backend_free": (None, P),
    "ggml_backend_cpu_set_n_threads": (None, P, INT),
    "ggml_backend_cpu_set_threadpool": (None, P, P),
    "ggml_threadpool_params_init": (None, P, INT),
    "ggml_threadpool_new": (P, P),
    "ggml_threadpool_free": (None, P),
    "ggml_backend_get_device": (P, P),
    "ggml_backend_dev_backend_reg": (P, P),
    "ggml_backend_reg_get_proc_address": (P, P, c.c_char_p),
    "ggml_backend_dev_supports_op": (c.c_bool, P, P),
    "ggml_backend_cpu_buffer_type": (P,),
    "ggml_backend_buft_name": (c.c_char_p, P),
    "ggml_backend_alloc_ctx_tensors_from_buft": (P, P, P),
    "ggml_backend_buffer_free": (None, P),
    "ggml_backend_tensor_set": (None, P, P, SIZE, SIZE),
    "ggml_backend_tensor_get": (None, P, P, SIZE, SIZE),
    "ggml_backend_graph_compute": (INT, P, P),
    "ggml_quantize_chunk": (SIZE, INT, P, P, I64, I64, I64, P),
    "ggml_log_set": (None, P, P),
    "ggml_version": (c.c_char_p,),
}
_QUIET = c.CFUNCTYPE(None, INT, c.c_char_p, P)(lambda level, text, data: None)


class Library:
    """ggml's functions, with their signatures, whichever of the two libraries has them."""

    def __init__(self, folder: Path) -> None:
        self._parts = [c.CDLL(str(_found(folder, name)), mode=c.RTLD_GLOBAL) for name in ("ggml-base", "ggml-cpu")]
        for name, (result, *arguments) in SIGNATURES.items():
            setattr(self, name, self.function(name, result, *arguments))
        self.ggml_log_set(_QUIET, None)  # it tells of every matrix that it rearranges

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """The exported function of that name; AttributeError if there is none."""
        for part in reversed(self._parts):
            try:
                function = part[name]
            except AttributeError:
                continue
            function.restype, function.argtypes = result, arguments
            return function
        raise AttributeError(f"this build of ggml exports no {name}")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not in SIGNATURES")


def _found(folder: Path, name: str) -> Path:
    for pattern in (f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll", f"lib{name}.dll"):
        if (folder / pattern).exists():
            return folder / pattern
    raise OSError(f"{folder} has no library {name}")


@cache
def library() -> Library | None:
    """ggml, or None where llama-cpp-python is not installed or its libraries do not load."""
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        return Library(Path(next(iter(spec.submodule_search_locations))) / "lib")
    except (OSError, AttributeError):
        return None


def needed() -> Library:
    """ggml; RuntimeError with the remedy where it is not."""
    ggml = library()
    if ggml is None:
        raise RuntimeError(MISSING)
    return ggml


def _suffix(name: str) -> str:
    """`q4_K`: ggml writes K-quants so."""
    return name[:-1] + "K" if name.endswith("_k") else name


def _address(x: Array) -> int:
    return int(x.ctypes.data)


# ---- functions of rows


def quantizer(name: str, x: Array, out: Array, imatrix: Array | None = None) -> Thunk:
    """float32 rows x[m, k] to blocks in out[m, row_bytes], by `ggml_quantize_chunk` as llama-quantize does.

    The two activation formats have no such function; theirs is the reference for one row.
    """
    ggml, row = needed(), FORMATS[name]
    m, k = x.shape
    if row.weights:
        weights = None if imatrix is None else _address(imatrix)
        return _keeping(
            bind(ggml.ggml_quantize_chunk, row.type_id, _address(x), _address(out), 0, m, k, weights), x, out, imatrix
        )
    return _rows(ggml.function(f"quantize_row_{_suffix(name)}_ref", None, P, P, I64), x, out, k)


def dequantizer(name: str, w: Array, out: Array) -> Thunk:
    """Blocks w[m, row_bytes] to float32 rows out[m, k]; AttributeError where ggml has no such function (q8_1)."""
    return _rows(needed().function(f"dequantize_row_{_suffix(name)}", None, P, P, I64), w, out, out.shape[1])


def activation_quantizer(name: str, x: Array, out: Array) -> Thunk:
    """float32 rows to q8_0, q8_1 or q8_k as the CPU backend does before a product, which rounds unlike `quantizer`."""
    return _rows(needed().function(f"quantize_row_{_suffix(name)}", None, P, P, I64), x, out, x.shape[1])


def _rows(function: Any, source: Array, target: Array, k: int) -> Thunk:
    """Rows without gaps are one long row: no call a row is charged to ggml."""
    assert source.flags.c_contiguous
    assert target.flags.c_contiguous
    return _keeping(bind(function, _address(source), _address(target), k * len(source)), source, target)


def _keeping(call: Thunk, *arrays: Array | None) -> Thunk:
    """The call, which knows addresses only: its arrays live as long as it does."""
    call.arrays = arrays  # type: ignore[attr-defined]
    return call


def quantized(name: str, x: Array) -> Array:
    """x[m, k] in ggml's blocks: uint8[m, row_bytes]."""
    x = np.ascontiguousarray(x, np.float32)
    out = np.empty((len(x), FORMATS[name].row_bytes(x.shape[1])), np.uint8)
    quantizer(name, x, out)()
    return out


def dequantized(name: str, w: Array) -> Array:
    """The float32 values of blocks."""
    out = np.empty((len(w), FORMATS[name].row_elements(w.shape[1])), np.float32)
    dequantizer(name, w, out)()
    return out


def matrix(name: str, n: int, k: int, seed: int = 0) -> Array:
    """Some matrix n×k in blocks: normal values, a few rows quantized and then repeated, for that takes seconds else."""
    sample = np.random.default_rng(seed).standard_normal((min(n, SAMPLE), k), np.float32)
    return np.resize(quantized(name, sample), (n, FORMATS[name].row_bytes(k)))


def copies(nbytes: int) -> int:
    """How many matrices of this size to rotate through, so that each comes from memory."""
    return FOLDED // nbytes + 1


# ---- products


def _extra_types(ggml: Library, device: int) -> dict[str, int]:
    """Buffer types in which a CPU backend keeps weights rearranged, by name."""
    registry = ggml.ggml_backend_dev_backend_reg(device)
    address = ggml.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return {}
    listed = c.CFUNCTYPE(c.POINTER(P), P)(address)(device)
    buffer_types: dict[str, int] = {}
    for buffer_type in listed if listed else ():
        if not buffer_type:
            break
        buffer_types[ggml.ggml_backend_buft_name(buffer_type).decode()] = buffer_type
    return buffer_types


class Unsupported(Exception):
    """ggml has no rearranged layout for this format on this CPU."""


class MulMat:
    """y[m, n] = x[m, k] · Wᵀ on ggml's CPU backend, W[n, k] in blocks of format `name` and x float32.

    repack: W lies as llama.cpp rearranges it when it loads a model, which is its default wherever it has a layout for
    the format; Unsupported where it has none.  copies: so many matrices, which calls take in turn.  w, x: the operands,
    else some are made.
    """

    def __init__(
        self, name: str, n: int, k: int, m: int = 1, threads: int = 1, repack: bool = False, copies: int = 1,
        w: Array | None = None, x: Array | None = None,
    ) -> None:  # fmt: skip
        ggml = needed()
        self.format, self.shape, self.threads, self.repack = name, (n, k, m), threads, repack
        self.w = matrix(name, n, k) if w is None else np.ascontiguousarray(w)
        self.x = np.random.default_rng(1).standard_normal((m, k), np.float32) if x is None else x.reshape(m, k)
        if self.w.shape != (n, FORMATS[name].row_bytes(k)) or self.w.dtype != np.uint8:
            raise ValueError(f"w is {self.w.dtype}{self.w.shape}: {n}×{k} in {name} is another array of bytes")
        undo: list[tuple[Callable[..., Any], int]] = []
        self._close = weakref.finalize(self, _undo, undo)
        backend = ggml.ggml_backend_cpu_init()
        undo.append((ggml.ggml_backend_free, backend))
        ggml.ggml_backend_cpu_set_n_threads(backend, threads)
        params = c.create_string_buffer(4096)  # opaque: half a kilobyte
        ggml.ggml_threadpool_params_init(params, threads)
        pool = ggml.ggml_threadpool_new(params)
        undo.append((ggml.ggml_threadpool_free, pool))
        ggml.ggml_backend_cpu_set_threadpool(backend, pool)

        plain = ggml.ggml_backend_cpu_buffer_type()
        device = ggml.ggml_backend_get_device(backend)
        kept = _extra_types(ggml, device).get("CPU_REPACK") if repack else plain
        if kept is None:
            raise Unsupported("this build of ggml rearranges nothing")
        weights = self._context(ggml, undo, copies * ggml.ggml_tensor_overhead())
        a = [ggml.ggml_new_tensor_2d(weights, FORMATS[name].type_id, k, n) for _ in range(copies)]
        undo.append((ggml.ggml_backend_buffer_free, ggml.ggml_backend_alloc_ctx_tensors_from_buft(weights, kept)))

        each = ggml.ggml_tensor_overhead() + ggml.ggml_graph_overhead_custom(8, False)
        rest = self._context(ggml, undo, copies * each + ggml.ggml_tensor_overhead())
        b = ggml.ggml_new_tensor_2d(rest, F32, k, m)
        self._results = [ggml.ggml_mul_mat(rest, t, b) for t in a]
        self._graphs = [ggml.ggml_new_graph_custom(rest, 8, False) for _ in a]
        for graph, result in zip(self._graphs, self._results, strict=True):
            ggml.ggml_build_forward_expand(graph, result)
        undo.append((ggml.ggml_backend_buffer_free, ggml.ggml_backend_alloc_ctx_tensors_from_buft(rest, plain)))
        if not ggml.ggml_backend_dev_supports_op(device, self._results[0]):
            raise Unsupported(f"ggml has no {'rearranged ' if repack else ''}product for {name} on this CPU")
        for t in a:
            ggml.ggml_backend_tensor_set(t, _address(self.w), 0, self.w.nbytes)
        self._b = b
        self.give(self.x)
        nothing = np.full((m, n), np.nan, np.float32)
        for result in self._results:
            ggml.ggml_backend_tensor_set(result, _address(nothing), 0, nothing.nbytes)
        self.run = self._runner(ggml, backend)
        """Compute once, on the next of the copies."""

    @staticmethod
    def _context(ggml: Library, undo: list[tuple[Callable[..., Any], int]], nbytes: int) -> int:
        """A context that holds descriptions of tensors, and no data."""
        context = ggml.ggml_init(_InitParams(nbytes + 4096, None, True))
        undo.append((ggml.ggml_free, context))
        return int(context)

    def _runner(self, ggml: Library, backend: int) -> Thunk:
        compute = ggml.ggml_backend_graph_compute
        if len(self._graphs) == 1:
            return bind(compute, backend, self._graphs[0])
        return rotating([bind(compute, backend, graph) for graph in self._graphs])

    def give(self, x: Array) -> None:
        """Take these activations from now on."""
        self.x = np.ascontiguousarray(x, np.float32)
        needed().ggml_backend_tensor_set(self._b, _address(self.x), 0, self.x.nbytes)

    def result(self, copy: int = 0) -> Array:
        """y[m, n] that a copy gave, after `run()`; NaN before."""
        n, _, m = self.shape
        out = np.empty((m, n), np.float32)
        needed().ggml_backend_tensor_get(self._results[copy], _address(out), 0, out.nbytes)
        return out

    def check(self) -> float:
        """Run every copy, and compare a sample of each result's columns with NumPy's; the largest error over the bound.

        NumPy multiplies the same quantized operands in float64, so that what is left is float32's rounding of the sums,
        (k + 4) · 2⁻²⁴ · Σ|w·a|; and the rounding of each block's sum to float16 where the activations are q8_1, whose
        codes and scales are those of q8_0.  ArithmeticError if it is above 1.
        """
        n, k, _ = self.shape
        partner = FORMATS[self.format].activations
        codes = np.empty((len(self.x), FORMATS["q8_0" if partner == "q8_1" else partner].row_bytes(k)), np.uint8)
        rounding = (k + 4) * 2.0**-24
        if partner == "q8_1":
            partner, rounding = "q8_0", rounding + 2.0**-9
        activation_quantizer(partner, self.x, codes)()
        at = np.unique(np.linspace(0, n - 1, CHECKED).astype(int))
        activations = dequantized(partner, codes).astype(float)
        weights = dequantized(self.format, np.ascontiguousarray(self.w[at])).astype(float)
        wanted, most = activations @ weights.T, rounding * (np.abs(activations) @ np.abs(weights).T)
        worst = 0.0
        for i in range(len(self._results)):
            self.run()
            error = np.abs(self.result(i)[:, at] - wanted)
            worst = max(worst, float(np.max(np.where(error <= most, error / np.maximum(most, 1e-300), np.inf))))
        if worst > 1:
            raise ArithmeticError(f"ggml's product of {self.format} {self.shape} is not what NumPy finds")
        return worst

    def close(self) -> None:
        """Give the memory back; it also goes with the object."""
        self._close()


def _undo(steps: list[tuple[Callable[..., Any], int]]) -> None:
    while steps:
        function, handle = steps.pop()
        function(handle)


def rotating(calls: Sequence[Thunk]) -> Thunk:
    """The next of these calls each time."""
    following = cycle(calls).__next__
    return lambda: following()()
