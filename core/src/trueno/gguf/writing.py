"""Write a GGUF file beside the target, and rename it when it is complete."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trueno.errors import DtypeError, FileError, ParameterError
from trueno.formats import INTERLEAVED
from trueno.gguf import keys, package
from trueno.gguf.file import PLAIN, Tensor
from trueno.quant.matrix import QuantizedMatrix
from trueno.replacing import permit, replacing

NAME = 63
"""The most bytes of a tensor's name that ggml reads."""


class Entry(NamedTuple):
    """A tensor to write.  raw: returns its bytes when they are needed."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int
    raw: Callable[[], Any]


ARRAYS = {"general.architecture": "unknown"}
"""The metadata of a file that is no model."""


def write(path: str | Path, tensors: Mapping[str, Any], metadata: Mapping[str, Any] = ARRAYS) -> None:
    """Write a GGUF file: version 3, little endian.

    tensors: by name, in order: NumPy arrays (float32, float16, float64, int8 to int64), QuantizedMatrix, or a `Tensor`
    of another file.  metadata: must hold `general.architecture`, by default "unknown".  Values from a file
    keep their types, and so do NumPy's numbers and arrays; otherwise an int becomes uint32 (or int32, uint64, int64 to
    hold it), a float float32 (float64 if out of its range), and a list an array of one such type (an empty list an
    array of texts).
    The file is written atomically.  FileError, ParameterError, DtypeError.
    """
    if not isinstance(path, (str, Path)):
        raise ParameterError(f"gguf: path is {type(path).__name__}; the order is write(path, tensors, metadata)")
    for what, given in (("tensors", tensors), ("metadata", metadata)):
        if not hasattr(given, "items"):
            raise ParameterError(f"gguf: {what} is {type(given).__name__}; give a dict by name, such as {{'w': w}}")
    put(path, [entry(name, x) for name, x in tensors.items()], metadata)


def entry(name: str, x: Any) -> Entry:
    """The entry for an array, a QuantizedMatrix or a tensor of another file."""
    from trueno.dispatch.transfer import imported, numpy, unwrap  # start-up

    if isinstance(x, Tensor):
        return Entry(name, x.type, x.shape, x.nbytes, lambda: x.raw)
    if isinstance(x, QuantizedMatrix):
        if x._columns:
            raise ParameterError(f"gguf: tensor {name!r} is a transposed view; write q, or requantize(q.T, format)")
        if x.format in INTERLEAVED:
            raise ParameterError(f"gguf: tensor {name!r} is in {x.format}, which files cannot hold; write q.plain()")
        return Entry(name, x.format, x.shape, x.nbytes, lambda: numpy(x.bytes))
    array = imported("gguf", f"tensor {name!r}", unwrap(x))
    kinds = {np.dtype(text): kind for kind, text in PLAIN.items()}
    kind = kinds.get(array.dtype.newbyteorder("<"))
    if kind is None:
        raise DtypeError(f"gguf: tensor {name!r} is {array.dtype}; {', '.join(str(k) for k in kinds)} are written")
    if not 0 < array.ndim <= 4:
        raise ParameterError(f"gguf: tensor {name!r} has {array.ndim} dimensions; 1 to 4 are possible")
    dtype = np.dtype(PLAIN[kind])
    return Entry(name, kind, array.shape, array.nbytes, lambda: np.ascontiguousarray(array, dtype))


def put(path: str | Path, entries: Iterable[Entry], metadata: Mapping[str, Any]) -> None:
    """Write entries one at a time, so that only one is in memory.  If the path is a link, its target is replaced."""
    entries, typed = list(entries), list(keys.typed(metadata))
    for e in entries:
        if not isinstance(e.name, str) or not 0 < len(e.name.encode("utf-8", "replace")) <= NAME:
            raise ParameterError(f"gguf: a tensor is called {e.name!r}; names have 1 to {NAME} bytes")
        keys.text(e.name, "the name of a tensor,")
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        raise FileError(f"{path}: it is not a regular file, so it is not replaced")
    try:
        with replacing(target) as beside:
            _write(beside, entries, typed)
            permit(beside, target)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def _write(path: Path, entries: list[Entry], typed: list[keys.Typed]) -> None:
    writer = None
    try:
        writer = _writer(str(path), entries, typed)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for e in entries:
            writer.write_tensor_data(np.asarray(e.raw()))
        writer.close()
    finally:
        with suppress(OSError):  # a full disk fails again when the file is closed
            if writer is not None:
                writer.close()


def _writer(name: str, entries: list[Entry], typed: list[keys.Typed]) -> Any:
    """The package's writer, with every key and tensor registered."""
    logging.getLogger("gguf.gguf_writer").setLevel(logging.ERROR)
    writer = package.writer()(name, "")  # it puts an architecture first; a copy keeps the original's order
    kinds = package.package().GGUFValueType
    for key, value, kind, item in typed:
        if key == keys.ALIGNMENT:
            writer.data_alignment = keys.alignment(value, kind)
        writer.add_key_value(key, value, kinds(kind), sub_type=None if item is None else kinds(item))
    for e in entries:
        writer.add_tensor_info(e.name, e.shape, np.dtype(np.float32), e.nbytes, raw_dtype=package.number(e.type))
    return writer
