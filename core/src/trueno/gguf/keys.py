"""The keys of a file to write: which type each value gets."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trueno.errors import ParameterError
from trueno.gguf.file import Metadata
from trueno.gguf.header import ARRAY, FIXED, STRING, UINT32

ARCHITECTURE, ALIGNMENT = "general.architecture", "general.alignment"
INT32, FLOAT32, BOOL, UINT64, INT64, FLOAT64 = 5, 6, 7, 10, 11, 12
WHOLE = {UINT32: (0, 1 << 32), INT32: (-(1 << 31), 1 << 31), UINT64: (0, 1 << 64), INT64: (-(1 << 63), 1 << 63)}
"""First number and end of the types for a Python int: the first that can hold it is used."""
NUMPY = {np.dtype(text): kind for kind, text in FIXED.items()}
Typed = tuple[str, Any, int, int | None]


def typed(metadata: Mapping[str, Any]) -> Iterator[Typed]:
    """Key, value, GGUF's type of it, and of its items if it is an array.  ParameterError for other values."""
    if not isinstance(metadata.get(ARCHITECTURE), str):
        raise ParameterError(f"gguf: metadata[{ARCHITECTURE!r}] must say what kind of model this is, such as 'llama'")
    for key in metadata:
        if not isinstance(key, str) or not key:
            raise ParameterError(f"gguf: the metadata has the key {key!r}; keys are texts")
        text(key, "the key")
        value = metadata[key]
        if isinstance(metadata, Metadata):
            yield key, value, *metadata.types(key)
        else:
            yield key, *_typed(key, value)


def alignment(value: Any, kind: int) -> int:
    """`general.alignment`; ParameterError where it is not a power of two."""
    if kind != UINT32 or value == 0 or value & (value - 1):
        raise ParameterError(f"gguf: metadata[{ALIGNMENT!r}] is {value!r}; it must be a power of two")
    return int(value)


def text(value: str, what: str) -> None:
    """ParameterError for a text that UTF-8 cannot encode."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError(f"gguf: {what} {value!r} has a lone surrogate, which UTF-8 cannot encode") from None


def _typed(key: str, value: Any) -> tuple[Any, int, int | None]:
    """A Python or NumPy value in the form that the package needs, and GGUF's types."""
    if isinstance(value, (np.generic, np.ndarray)) and not isinstance(value, np.str_):
        kind = NUMPY.get(value.dtype.newbyteorder("<"))
        if kind is None or value.ndim > 1:
            raise ParameterError(
                f"gguf: metadata[{key!r}] is {value.dtype} of shape {value.shape}; integers, float32, float64 and "
                "bools can be written, one or a list"
            )
        return (value.tolist(), ARRAY, kind) if value.ndim else (value.item(), kind, None)
    if isinstance(value, (list, tuple)):
        return list(value), ARRAY, _kind(key, list(value)) if value else STRING  # no item determines the type
    return value, _kind(key, [value]), None


def _kind(key: str, values: list[Any]) -> int:
    """The common type of some values."""
    if all(isinstance(v, (bool, np.bool_)) for v in values):
        return BOOL
    if all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in values):
        least, most = min(values), max(values)
        for kind, (first, end) in WHOLE.items():
            if first <= least and most < end:
                return kind
        raise ParameterError(f"gguf: metadata[{key!r}] has {least} and {most}, which no 64-bit type can hold together")
    if all(isinstance(v, (float, np.floating)) for v in values):
        largest = max((abs(float(v)) for v in values if np.isfinite(v)), default=0.0)
        return FLOAT32 if largest <= float(np.finfo(np.float32).max) else FLOAT64
    if all(isinstance(v, str) for v in values):
        for v in values:
            text(v, f"metadata[{key!r}] is or has")
        return STRING
    types = ", ".join(sorted({type(v).__name__ for v in values}))
    raise ParameterError(
        f"gguf: metadata[{key!r}] has {types}; numbers, texts, bools and lists of one of these can be written"
    )
