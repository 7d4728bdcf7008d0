"""Quantize a whole model from file to file, one tensor at a time."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from trueno.errors import FileError, ParameterError, ShapeError
from trueno.formats import FORMATS
from trueno.formats.decode import field
from trueno.gguf import file, package
from trueno.gguf.file import File, Metadata, Tensor
from trueno.gguf.header import UINT32
from trueno.gguf.recipe import EMBEDDINGS, Mixture, recipe
from trueno.gguf.writing import Entry, put
from trueno.ops.quantized import LEAST
from trueno.quant.matrix import QuantizedMatrix
from trueno.quant.quantize import quantize

VERSION = 2
"""`general.quantization_version` of the current formats."""
PIECE = 1 << 24
"""Elements quantized at once: 64 MB of float32."""
SPLIT = ("split.no", "split.count", "split.tensors.count")
FLOATS = ("f32", "f16", "bf16", "f64")


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one tensor: `was` becomes `type`; both sizes in bytes.

    columns: elements of a row.  ruled_out: the mixture's format for it, if a row is not a whole number of its blocks.
    """

    name: str
    was: str
    type: str
    before: int
    after: int
    columns: int = 0
    ruled_out: str = ""


def convert(
    source: str | Path,
    target: str | Path,
    kind: str,
    *,
    imatrix: Mapping[str, Any] | None = None,
    requantize: bool = False,
    each: Callable[[Step, int], None] = lambda step, rows: None,
) -> list[Step]:
    """Quantize the GGUF file `source` into `target` by the mixture `kind`, such as q4_k_m, as llama-quantize does.

    imatrix: importance of the columns by tensor name, each [k] (for a stack of experts [experts, k]), as
    `importance(path)` reads them.  requantize: also tensors that are quantized already, which loses precision twice.
    each: called after every piece, with the tensor's step and the number of its rows that are done.
    The target is written atomically.  FileError, ParameterError; ShapeError for an imatrix that does not fit.
    """
    mixture = recipe(kind)
    apart(source, target)
    with file.open(source) as model:
        if model.metadata.get("split.count", 1) not in (0, 1):
            raise FileError(f"{source}: it is a part of a split model; join the parts first (llama-gguf-split --merge)")
        steps = plan(model, mixture.name, weighted=imatrix is not None, requantize=requantize)
        new = {"general.quantization_version": VERSION, "general.file_type": mixture.file_type}
        weights = dict(imatrix or {})
        entries = [_entry(model.tensors[s.name], s, weights.get(s.name), each) for s in steps]
        put(target, entries, _Changed(model.metadata, new))
        return steps


def apart(source: str | Path, target: str | Path) -> None:
    """ParameterError where both are the same file, under whatever names."""
    if os.path.exists(target) and os.path.exists(source) and os.path.samefile(target, source):
        raise ParameterError(f"gguf: {target} is the input file; write another")


def plan(model: File, kind: str, *, weighted: bool = False, requantize: bool = False) -> list[Step]:
    """What `convert` would do with each tensor, in the order of the new file: layer by layer, as in llama.cpp."""
    mixture = Mixture(recipe(kind), {n: t.shape for n, t in model.tensors.items()}, model.metadata, weighted)
    steps = []
    for name in mixture.order:
        t = model.tensors[name]
        new = mixture.format(name) or t.type
        if new != t.type and t.type not in FLOATS:
            if t.type not in FORMATS:
                raise FileError(f"{model.path}: tensor {name!r} is in {t.type}, which cannot be quantized here")
            if not requantize:
                raise ParameterError(
                    f"gguf: tensor {name!r} is in {t.type} already; quantizing it again loses precision: "
                    "start from the original, or request it (requantize=True, --allow-requantize)"
                )
        elements, nbytes = package.sizes()[int(package.number(new))]
        count = prod(t.shape)
        unfit = mixture.ruled_out(name)
        steps.append(Step(name, t.type, new, t.nbytes, count // elements * nbytes, t.shape[-1], unfit))
    return steps


def importance(path: str | Path) -> dict[str, Any]:
    """The importance of columns by tensor name, from an imatrix file of llama.cpp (GGUF): mean squares of inputs."""
    with file.open(path) as imatrix:
        names = [n.removesuffix(".in_sum2") for n in imatrix.tensors if n.endswith(".in_sum2")]
        if not names:
            raise FileError(f"{path}: no tensor ends with .in_sum2; it is not an imatrix file")
        result = {}
        for name in names:
            if f"{name}.counts" not in imatrix:
                raise FileError(f"{path}: there is {name}.in_sum2, but no {name}.counts")
            for part in (imatrix.tensors[f"{name}.in_sum2"], imatrix.tensors[f"{name}.counts"]):
                if part.type != "f32":
                    raise FileError(f"{path}: {part.name} is in {part.type}, not f32; it is not an imatrix file")
            total, counts = imatrix[f"{name}.in_sum2"], imatrix[f"{name}.counts"].reshape(-1, 1)
            if not counts.size or not total.size or total.size % counts.size:
                raise FileError(f"{path}: {name}.in_sum2 has {total.size} numbers for {counts.size} counts")
            means = total.reshape(len(counts), -1) / np.maximum(counts, 1)
            means = np.where(counts > 0, means, np.float32(1))
            result[name] = means[0] if len(means) == 1 else means
        return result


def _entry(t: Tensor, step: Step, weight: Any, each: Callable[[Step, int], None]) -> Entry:
    def raw() -> Any:
        if step.type == step.was:
            each(step, _rows(t))
            return t.raw
        return _quantized(t, step, weight, each)

    return Entry(step.name, step.type, t.shape, step.after, raw)


def _rows(t: Tensor) -> int:
    return prod(t.shape[:-1])


def _quantized(t: Tensor, step: Step, weight: Any, each: Callable[[Step, int], None]) -> Any:
    """The bytes of a tensor in its new type, some rows at a time."""
    rows, k = _rows(t), t.shape[-1]
    weights = _weights(t, weight)
    own = rows // len(weights)  # each expert has its own importance of columns
    some = max(1, min(PIECE // max(k, 1), own))
    out = np.empty((rows, step.after // rows if rows else 0), np.uint8)
    for expert, importance_ in enumerate(weights):
        for start in range(expert * own, (expert + 1) * own, some):
            end = min(start + some, (expert + 1) * own)
            try:
                out[start:end] = _blocks(t.rows(start, end), step.type, importance_)
            except ParameterError as error:
                raise ParameterError(f"gguf: tensor {t.name!r}, rows from {start}: {error}") from None
            each(step, end)
    return out


def _weights(t: Tensor, weight: Any) -> list[Any]:
    """The importance of columns for each expert of a stack; [None] where it is unknown."""
    if weight is None:
        return [None]
    weight, stack = np.asarray(weight, np.float32), t.shape[-3] if len(t.shape) > 2 else 1
    if weight.size != stack * t.shape[-1] or not weight.size:
        if t.name in EMBEDDINGS:  # llama.cpp's entries for them need not fit, and llama.cpp ignores them, too
            return [None]
        of = f"{stack} times {t.shape[-1]}" if stack > 1 else t.shape[-1]
        raise ShapeError(f"gguf: the imatrix of {t.name!r} has shape {weight.shape}, but it has {of} columns")
    return list(weight.reshape(stack, -1))


def _blocks(part: Any, kind: str, weight: Any) -> Any:
    """Rows in blocks (or as float16): uint8 [rows, bytes]."""
    from trueno.dispatch.function import function  # start-up

    part = function("dequantize")(part) if isinstance(part, QuantizedMatrix) else part.astype(np.float32)
    if kind == "f16":
        with np.errstate(over="ignore"):
            half = part.astype("<f2")
        if not np.isfinite(half).all():
            raise ParameterError("a number is NaN, Inf, or out of the range of float16")
        return half.view(np.uint8)
    f = FORMATS[kind]
    if weight is not None and weight.max() < LEAST:  # an expert whose inputs were all 0: `quantize` would raise
        from trueno.formats.encoders import encode  # start-up

        data = encode(f, part, weight)
    else:
        data = quantize(part, kind, weight).bytes
    blocks = data.reshape(-1, f.nbytes)
    if not all(np.isfinite(field(f, blocks, name)).all() for name in (f.d, f.m) if name):
        raise ParameterError(f"the numbers are so large that a scale of {kind} is out of the range of float16")
    return data


class _Changed(Metadata):
    """The keys of a file, with some of them replaced."""

    def __init__(self, of: Metadata, new: dict[str, int]) -> None:
        self._of, self._new = of, new

    def __getitem__(self, key: str) -> Any:
        return self._new[key] if key in self._new else self._of[key]

    def __contains__(self, key: object) -> bool:
        return key in self._new or key in self._of

    def __iter__(self) -> Any:
        yield from (key for key in self._of if key not in self._new and key not in SPLIT)
        yield from self._new

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def types(self, key: str) -> tuple[int, int | None]:
        if key in self._new:
            return UINT32, None
        return self._of.types(key)
