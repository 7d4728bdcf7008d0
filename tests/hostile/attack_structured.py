"""Products, convolutions, lookups, eigenvalues and blocks on odd arrays, against longdouble and the gguf package."""

from math import prod

import gguf
import numpy as np
import trueno
from gguf import quants
from ml_dtypes import bfloat16
from trueno.discovery import registry
from trueno.dispatch.call import request
from trueno.errors import KernelError, OutError
from trueno.formats import decode, format_of
from trueno.formats.activations import rounded_activations
from trueno.formats.interleave import interleaved, plain
from trueno.formats.samples import random_rows
from trueno.formats.table import FORMATS
from trueno.judge.structured import structured_bound
from trueno.ops import TABLE
from trueno.testing.cases import cases, keywords
from trueno.testing.expected import split, verdict
from trueno.testing.halves import is_half
from trueno.testing.shapes import OFFSETS, fits, offsets, places
from trueno.testing.subject import rejected

from .arrays import DTYPES, SHARES, VALUES, bytes_of, laid, values
from .attack import ALL, Tally
from .outs import outs

BACKENDS = ALL
SHARE = 2.0
LIMIT = 300.0
OPS = [op for op in TABLE.values() if op.structured]
DIMS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65)
LARGE = (127, 128, 129, 200, 257)
HEADS = (1, 2, 3, 7, 32, 33, 64, 96, 128)
"""Of a cache of floats; one of blocks has one to three blocks."""
ROWS = (4096, 4097, 5000)
"""Long enough for several blocks of threads that share a row, as of logits."""
CHANGES_VALUES = ("broadcast", "overlapping")
OF_BYTES = ("plain", "offset", "Fortran", "reversed", "strided", "read-only", "memmap", "subclass", "permuted")
QUANTIZED = ("natural", "normal", "tiny", "constant", "zeros", "whole", "near")
TRIES = 3
MOST = 1 << 22
"""Numbers of an operand: a broadcast copy of the largest still fits what software that plays a GPU binds at once."""
POSITIONS = 64  # of tokens: the frequencies of `rope` are rounded to 2⁻⁶⁵ turns, which grows with the position
wide = np.longdouble


def _convolved(x, kernel, mode="valid"):
    x, kernel = (a if a.ndim > 2 else a[(None,) * k] for k, a in ((1, x), (2, kernel)))
    p, q = kernel.shape[-2:]
    if mode == "same":
        x = np.pad(x, [(0, 0), ((p - 1) // 2, p // 2), ((q - 1) // 2, q // 2)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (p, q), (1, 2))  # [c, i, j, p, q]
    return np.einsum("cijpq,ocpq->oij", windows, kernel)


def _rotated(
    x, positions, *, style, dims=0, scaling="none", theta=1e4, factor=1, context=0, slow=1, fast=0, magnitude=0
):
    """A factor of 1 is no scaling; linear is the only one that this knows."""
    if scaling not in ("none", "linear") and factor != 1:
        return None
    turned = dims or x.shape[-1]
    rates = wide(theta) ** (-np.arange(0, turned, 2, dtype=wide) / max(turned, 1))
    unit = 8 * np.arctan(wide(1)) / wide(2) ** 64  # radians of the unit to which frequencies are rounded
    rates = np.rint(rates / (factor if scaling == "linear" else 1) / unit) * unit
    angles = positions.astype(wide)[..., None, None] * rates
    a, b = np.s_[: turned // 2, turned // 2 :] if style == "neox" else np.s_[::2, 1::2]
    y = np.array(np.broadcast_to(x, (*np.broadcast_shapes(x.shape[:-2], positions.shape), *x.shape[-2:])))
    y[..., a] = (x[..., a] * np.cos(angles) - x[..., b] * np.sin(angles)) * (magnitude or 1)
    y[..., b] = (x[..., b] * np.cos(angles) + x[..., a] * np.sin(angles)) * (magnitude or 1)
    return y


MEANINGS = {
    "matmul": lambda a, b: np.einsum("ik,kj->ij", a, b),
    "matvec": lambda a, x: np.einsum("ik,k->i", a, x),
    "vecmat": lambda x, a: np.einsum("k,kj->j", x, a),
    "batched_matmul": lambda a, b: np.einsum("...ik,...kj->...ij", a, b),
    "transpose": lambda x: x.T,
    "outer": lambda x, y: x[:, None] * y,
    "convolve2d": _convolved,
    "embedding_lookup": lambda table, i: table[i],
    "rope": _rotated,
}
"""What ops mean, said once more; of quantized ones see `_numbers`."""


def _numbers(w, form):
    """What blocks stand for, by the gguf package where it knows the format."""
    f = format_of(form)
    if f.plain:
        w, f = plain(w, f), FORMATS[f.plain]
    kind = getattr(gguf.GGMLQuantizationType, f.name.upper(), None)
    if kind not in quants._type_traits or not w.size:
        return decode(f, w)
    with np.errstate(all="ignore"):
        return quants.dequantize(np.ascontiguousarray(w), kind)


def _meaning(op, arrays, given, params):
    """In longdouble; None where nothing but the judge knows."""
    if op.name in MEANINGS:
        given = {**dict(zip(op.symbolic, params, strict=True)), **given}
        return MEANINGS[op.name](*(a if a.dtype.kind in "iu" else a.astype(wide) for a in arrays), **given)
    if op.chain is None or not op.quantized:
        return None
    form, how = given["format"], given.get("activations", "f32")
    (w,) = (a for a, s in zip(arrays, op.signature.inputs, strict=True) if s.blocks)
    (x,) = (a for a, s in zip(arrays, op.signature.inputs, strict=True) if not s.type)
    w = _numbers(w, form)
    if how == "bf16":
        x, w = (a.astype(np.float32).astype(bfloat16) for a in (x, w))
    else:
        x = np.asarray(rounded_activations(x, format_of(form), how))
    x, w = x.astype(wide), w.astype(wide)
    if op.name == "quant_experts":
        experts = w.reshape(len(w) // given["outputs"], given["outputs"], w.shape[1])
        return np.einsum("...k,...nk->...n", x, experts[arrays[-1]])
    if op.columnwise:
        return np.einsum("...k,kn->...n", x, w)
    return np.einsum("...k,nk->...n", x, w)


def _shapes(rng, op, given, small):
    def size():
        return int(rng.choice(LARGE if not small and rng.random() < 0.08 else DIMS))

    if op.name == "convolve2d":
        (p, q), (h, w) = rng.integers(1, 8, 2), (size() + 8, size() + 8)
        return [(h, w), (p, q)] if rng.random() < 0.5 else [(int(c := rng.integers(0, 4)), h, w), (3, int(c), p, q)]
    sizes = {d: size() for s in op.signature.inputs for d in s.dims}
    if op.quantized:
        blocks, specs = op.blocks(given), (*op.signature.inputs, *op.signature.outputs)
        whole = {s.dims[-1] for s in specs if s.blocks}
        lengths = HEADS if op.caches and blocks.cells else (1, 2, 3)
        sizes |= {d: blocks.elements * int(rng.choice(lengths)) for d in sizes if d in whole}
    if op.name == "quant_experts":
        sizes["m"] = max(sizes["m"], 1)  # without rows there is no index, and the leading axes are another's
    if op.caches:
        sizes = {d: n if d in whole else min(n, 33 if d == "page" else 9) for d, n in sizes.items()}
        sizes["hq"] = sizes.get("hk", 0) * int(rng.integers(1, 5))
    if op.family == "attention" and op.name != "rope":
        sizes["hq"] = sizes["hk"] * int(rng.integers(1, 5))
        sizes |= {d: int(rng.choice([1, sizes[of]])) for d, of in (("m", "hq"), ("r", "t")) if d in sizes}
        sizes |= {"n": max(sizes["n"], 1)} if "n" in sizes else {}
    if op.family == "selection" and rng.random() < 0.05:
        sizes["n"] = int(rng.choice(ROWS))
    if op.name == "symmetric_eigen":
        sizes = {d: min(n, 40) for d, n in sizes.items()}
    held = op.held(sizes, given)
    if op.name == "embedding_lookup":
        return [held[0], tuple(int(n) for n in rng.integers(0, 7, int(rng.integers(0, 3))))]
    leads = [(), (3,), (2, 1), (2, 3), (1, 3)]
    return [(*leads[int(rng.integers(5))], *h) if s.leading else h
            for s, h in zip(op.signature.inputs, held, strict=True)]  # fmt: skip


def _operands(rng, op, dtype, given, shapes):
    made, said = [], []
    kinds = QUANTIZED if any(s.blocks for s in op.signature.outputs) else VALUES
    for spec, shape in zip(op.signature.inputs, shapes, strict=True):
        kind, layout = str(rng.choice(kinds)), ""
        if spec.index and op.caches:
            x = places(spec.name, made, shape, rng)
        elif spec.name in OFFSETS:
            x = offsets(spec.name, made, shape, rng)
        elif spec.index:
            rows = POSITIONS if op.signature.inputs[0].leading else len(made[0])
            x = rng.integers(0, rows, shape if rows else (0,)).astype(rng.choice(["i8", "i4", "u1", "u8"]))
        elif spec.blocks:
            kind = str(rng.choice(["blocks", "any bytes"], p=[0.8, 0.2]))
            f = op.blocks(given)
            x = _any_bytes(rng, f, shape) if kind == "any bytes" else random_rows(f, shape, rng)
            layout = str(rng.choice(OF_BYTES))
        elif spec.name == "imatrix":
            x = rng.exponential(size=shape).astype(dtype)
        elif op.name == "symmetric_eigen":
            x = values(rng, str(rng.choice(["normal", "constant", "zeros", "whole"])), shape, dtype)
            x = np.maximum(x, x.T)
        else:
            x = values(rng, kind, shape, dtype)
        if op.name == "symmetric_eigen" or spec.index:
            layout = str(rng.choice(OF_BYTES))
        x, layout = laid(rng, x, layout)
        made.append(x)
        said.append(f"{np.shape(x)} {kind} {layout}")
    return made, said


def _any_bytes(rng, f, shape):
    """Random bytes, but for powers of two that make a weight past float32: its exact product may be a number."""
    if f.plain and FORMATS[f.plain].e8m0:
        return interleaved(_any_bytes(rng, FORMATS[f.plain], shape), f)
    x = rng.integers(0, 256, shape, np.uint8)
    if f.e8m0:
        powers = x.reshape(-1, f.nbytes)[:, f.fields[f.d].offset]
        np.minimum(powers, 127 + 128 - max(f.values).bit_length() + 1, out=powers)
    return x


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    op = OPS[int(rng.integers(len(OPS)))]
    dtype = np.dtype(np.float32) if op.single else DTYPES[int(rng.choice(len(DTYPES), p=SHARES))]
    if rejected(op, backend, dtype) is not None:
        return
    options = keywords(op)
    given = options[int(rng.integers(len(options)))]
    if op.family == "compression":
        _on_bytes(rng, op, backend, tally)
        return
    for _ in range(TRIES):
        shapes = _shapes(rng, op, given, small=backend == "cuda_emulated")
        while not fits(op, tuple(shapes), given) or max(map(prod, shapes)) > MOST:
            shapes = _shapes(rng, op, given, small=backend == "cuda_emulated")
        operands, said = _operands(rng, op, dtype, given, shapes)
        how = str(rng.choice(["none", "none", "none", "fresh", "strided", "reversed", "unaligned", "Fortran", "wrong"]))
        label = f"{op.name}({', '.join(said)}, {given}, out {how}) {dtype}"
        try:
            _call(rng, op, dtype, backend, operands, given, how, tally)
        except Exception as error:
            raise AssertionError(f"{label}: {type(error).__name__}: {error}") from error


def _on_bytes(rng, op, backend, tally):
    """One of the kit's cases of an op on bytes, of another seed, in an odd layout."""
    every = [c for c in cases(op, np.float32, int(rng.integers(1 << 30))) if c.operands[0].size < 70_000]
    for _ in range(TRIES):
        drawn = every[int(rng.integers(len(every)))]
        operands, layouts = zip(*(laid(rng, x, str(rng.choice(OF_BYTES))) for x in drawn.operands), strict=True)
        how = str(rng.choice(["none", "none", "fresh", "strided", "reversed", "unaligned", "Fortran", "wrong"]))
        try:
            _call(rng, op, np.dtype(np.float32), backend, operands, drawn.kwargs, how, tally)
        except Exception as error:
            raise AssertionError(f"{drawn}, {layouts}, out {how}: {type(error).__name__}: {error}") from error


def _call(rng, op, dtype, backend, operands, given, how, tally):
    accuracy = registry.load(backend).accuracy
    plain_ones = [np.array(x, x.dtype.newbyteorder("=") if isinstance(x, np.ndarray) else dtype) for x in operands]
    params, static = split(op, given)
    shapes = op.result_shapes(tuple(x.shape for x in plain_ones), static)
    made = outs(rng, how, [(s, o.holds(dtype)) for s, o in zip(shapes, op.signature.outputs, strict=True)], operands)
    before = [bytes_of(x) for x in operands]
    tally.calls += 1
    try:
        with trueno.use(backend), np.errstate(all="raise"):
            results = getattr(trueno, op.name)(*operands, **given, out=made.given)
    except OutError:
        assert made.wrong
        return
    except KernelError:
        if registry.load(backend).supports(request(op, tuple(operands), given)) is None:
            raise
        return
    assert not made.wrong, "no OutError"
    made.check()
    assert [bytes_of(x) for x in operands] == before, "an operand was changed"
    found = results if isinstance(results, tuple) else (results,)
    for got, shape in zip(found, shapes, strict=True):
        assert got.shape == shape, f"shape {got.shape}, not {shape}"
    judged = verdict(op, plain_ones, given, dtype, found, accuracy)
    assert judged.ok, str(judged)
    _by_others(op, dtype, plain_ones, given, params, static, accuracy, found[0])


def _by_others(op, dtype, arrays, given, params, static, accuracy, got):
    """The first result against a formula that is not the op's body, within what the judge allows."""
    if op.name == "dequantize":
        want = _numbers(arrays[0], given["format"]).reshape(got.shape)
        alike = (got == want) | (np.isnan(got) & np.isnan(want))
        assert alike.all(), f"{got[~alike][:3]}, but gguf says {want[~alike][:3]}"
        return
    with np.errstate(all="ignore"):
        want = _meaning(op, arrays, given, params)
        if want is None or is_half(dtype) or not got.size:
            return
        want = want.reshape(got.shape)
        (allowed, *_) = structured_bound(op, arrays, static, dtype, params, accuracy)
        number = np.isfinite(want) & np.isfinite(allowed.low) & np.isfinite(allowed.high)
        room = (
            np.maximum(allowed.high - allowed.value, allowed.value - allowed.low)
            + 1e-14 * np.abs(want)
            + np.finfo(dtype).smallest_subnormal
        )
        wrong = number & ~(np.abs(got.astype(wide) - want) <= room)
    assert not wrong.any(), f"{got[wrong][:3]}, but longdouble says {want[wrong][:3]}, give or take {room[wrong][:3]}"
