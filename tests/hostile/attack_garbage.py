"""Objects of every kind as operands, parameters and `out` of ops and classes: only our errors come out."""

import asyncio
import gc
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import trueno
from trueno.dispatch.parameters import parameters
from trueno.errors import KernelError, TruenoError
from trueno.formats.samples import random_rows
from trueno.ops import TABLE
from trueno.testing.cases import keywords

from .attack import Tally
from .objects import OPERANDS, PARAMETERS, Mine

BACKENDS = ("simd", "scalar", "reference", "cuda_emulated")
LIMIT = 180.0
OPS = list(TABLE.values())
TRIES = 25


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    with warnings.catch_warnings(), trueno.use(backend):
        warnings.simplefilter("ignore")
        for _ in range(TRIES):
            tally.calls += 1
            (_op if rng.random() < 0.75 else _other)(rng)
    gc.collect()


def _drawn(rng: np.random.Generator, table: dict[str, Callable[[], Any]]) -> tuple[str, Any]:
    name = str(rng.choice(list(table)))
    with trueno.use("reference"):  # some objects are made by ops that not every backend has
        return name, table[name]()


def _op(rng: np.random.Generator) -> None:
    op = OPS[int(rng.integers(len(OPS)))]
    options: dict[str, Any] = dict(keywords(op)[0])
    sizes = dict.fromkeys(sorted({d for s in op.signature.inputs for d in s.dims}), 3)
    held = op.held(sizes, options)
    operands, said = [], []
    for spec, shape in zip(op.signature.inputs, held, strict=True):
        if rng.random() < 0.6:
            name, x = _drawn(rng, OPERANDS)
            said.append(name)
        elif spec.blocks:
            x = random_rows(op.blocks(options), shape, rng)
        elif spec.index:
            x = rng.integers(0, 3, 2)
        elif spec.type == "bytes":
            x = rng.integers(0, 256, shape, np.uint8)
        else:
            x = np.ones(shape or (3,), np.float32)
        operands.append(x)
    for p in parameters(op):
        if p.name in op.operands or rng.random() < 0.6:
            continue
        name, options[p.name] = _drawn(rng, OPERANDS if p.name == "out" else PARAMETERS)
        said.append(f"{p.name}={name}")
    _allowed(f"{op.name}: {', '.join(said)}", lambda: getattr(trueno, op.name)(*operands, **options))


def _allowed(said: str, call: Callable[[], Any], also: tuple[type[Exception], ...] = ()) -> None:
    """Call it: a result, an error of ours that hides no other, the object's own, or no memory."""
    try:
        call()
    except KernelError as error:
        if isinstance(error.__cause__, (TypeError, AttributeError, LookupError, AssertionError)):
            raise AssertionError(f"{said}: a kernel failed with {error.__cause__!r}") from error
    except (TruenoError, Mine, MemoryError, *also):
        pass
    except Exception as error:
        raise AssertionError(f"{said}: {type(error).__name__} came out: {str(error)[:300]}") from error


ROW = np.ones(32, np.float32)
BLOCKS = trueno.quantize(np.ones((4, 32), np.float32), "q8_0")


def _in_batch(act: Callable[[Any, Any], Any]) -> None:
    with trueno.Batch("scalar") as b:
        h = b.upload(ROW)
        act(b, h)
        b.execute()


def _restored(act: Callable[[], Any]) -> None:
    try:
        act()
    finally:
        trueno.set_default()


def _under(manager: Any) -> None:
    with manager:
        trueno.add(ROW, ROW)


def _written(metadata: Any, tensors: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trueno.gguf.write(Path(folder) / "x.gguf", tensors, metadata)


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "lz4.compress": lambda a, b: trueno.lz4.compress(a),
    "lz4.compress page": lambda a, b: trueno.lz4.compress(b"abc" * 20, page=b),
    "lz4.compress backend": lambda a, b: trueno.lz4.compress(b"abc", backend=b),
    "lz4.decompress": lambda a, b: trueno.lz4.decompress(a),
    "lz4.decompress limit": lambda a, b: trueno.lz4.decompress(trueno.lz4.compress(b"abc"), limit=b),
    "lz4.compress_pages": lambda a, b: trueno.lz4.decompress_pages(trueno.lz4.compress_pages(a)),
    "lz4.open": lambda a, b: trueno.lz4.open(b),
    "Vector": lambda a, b: trueno.Vector(a),
    "Vector, dtype": lambda a, b: trueno.Vector([1.0], dtype=b),
    "Vector, backend": lambda a, b: trueno.Vector([1.0], backend=b),
    "Vector.from_slice": lambda a, b: trueno.Vector.from_slice(a),
    "Vector +": lambda a, b: trueno.Vector(ROW) + a,
    "Vector r+": lambda a, b: a + trueno.Vector(ROW),
    "Vector @": lambda a, b: trueno.Vector(ROW) @ a,
    "Vector.dot": lambda a, b: trueno.Vector(ROW).dot(a),
    "Vector ==": lambda a, b: trueno.Vector(ROW) == a,
    "Vector[]": lambda a, b: trueno.Vector(ROW)[b],
    "Vector.to": lambda a, b: trueno.Vector(ROW).to(b),
    "Vector.with_backend": lambda a, b: trueno.Vector(ROW).with_backend(b),
    "Matrix": lambda a, b: trueno.Matrix(a),
    "Matrix.from_slice": lambda a, b: trueno.Matrix.from_slice(b, 3, a),
    "Matrix @": lambda a, b: trueno.Matrix(np.ones((32, 32), np.float32)) @ a,
    "QuantizedMatrix": lambda a, b: trueno.QuantizedMatrix(a, b, "q8_0"),
    "QuantizedMatrix, format": lambda a, b: trueno.QuantizedMatrix(BLOCKS.bytes, (4, 32), b),
    "q @": lambda a, b: BLOCKS @ a,
    "@ q": lambda a, b: a @ BLOCKS,
    "q[]": lambda a, b: BLOCKS[b],
    "q ==": lambda a, b: a == BLOCKS,
    "quantize": lambda a, b: trueno.quantize(a, "q8_0"),
    "quantize, format": lambda a, b: trueno.quantize(np.ones((2, 32), np.float32), b),
    "quantize, imatrix": lambda a, b: trueno.quantize(np.ones((2, 32), np.float32), "q4_0", a),
    "requantize": lambda a, b: trueno.requantize(a, b),
    "use": lambda a, b: _under(trueno.use(b)),
    "prefer": lambda a, b: _under(trueno.prefer(b)),
    "set_default": lambda a, b: _restored(lambda: trueno.set_default(b)),
    "explain": lambda a, b: trueno.explain(b, a),
    "explain add": lambda a, b: trueno.explain("add", a, b),
    "reset_quarantine": lambda a, b: trueno.reset_quarantine(b),
    "register": lambda a, b: trueno.register(b),
    "to": lambda a, b: trueno.to(a, b),
    "numpy": lambda a, b: trueno.numpy(a),
    "device": lambda a, b: trueno.device(b),
    "Batch": lambda a, b: trueno.Batch(b),
    "upload": lambda a, b: _in_batch(lambda batch, h: batch.upload(a)),
    "update": lambda a, b: _in_batch(lambda batch, h: batch.update(h, a)),
    "update, handle": lambda a, b: _in_batch(lambda batch, h: batch.update(a, ROW)),
    "keep": lambda a, b: _in_batch(lambda batch, h: batch.keep(a)),
    "read": lambda a, b: _in_batch(lambda batch, h: batch.read(a)),
    "read, out": lambda a, b: _in_batch(lambda batch, h: batch.read(h, a)),
    "batch.add": lambda a, b: _in_batch(lambda batch, h: batch.add(h, a)),
    "batch.sum": lambda a, b: _in_batch(lambda batch, h: batch.sum(h, axis=b)),
    "batch.matmul": lambda a, b: _in_batch(lambda batch, h: batch.matmul(a, h)),
    "settings.override": lambda a, b: trueno.settings.override(b, a),
    "gguf.write, tensors": lambda a, b: _written({"general.architecture": "llama"}, {"w": a}),
    "gguf.write, keys": lambda a, b: _written({"general.architecture": "llama", "x": b}, {"w": ROW}),
    "aio.add": lambda a, b: asyncio.run(trueno.aio.add(a, ROW)),
    "aio.softmax": lambda a, b: asyncio.run(trueno.aio.softmax(ROW, axis=b)),
}
PYTHONS: dict[str, tuple[type[Exception], ...]] = {
    "Vector[]": (IndexError, TypeError, ValueError, OverflowError),
    "Vector ==": (TypeError, ValueError, OverflowError),
    "Vector +": (TypeError,),
    "Vector r+": (TypeError, ValueError),  # a masked array on the left adds up by itself
    "Vector @": (TypeError,),
    "Matrix @": (TypeError,),
    "@ q": (TypeError,),
    "q ==": (TypeError, ValueError, OverflowError),
    "q[]": (IndexError, TypeError, ValueError),
}
"""What Python's own operators, and NumPy's `==` and `[]`, raise of objects that they do not go with."""


def _other(rng: np.random.Generator) -> None:
    name = str(rng.choice(list(OTHERS)))
    (first, a), (second, b) = _drawn(rng, OPERANDS), _drawn(rng, PARAMETERS)
    _allowed(f"{name}: {first}, {second}", lambda: OTHERS[name](a, b), PYTHONS.get(name, ()))
