"""The `gguf` package, or an error that says how to install it; and the package's facts about tensor types."""

import struct
from functools import cache
from typing import Any

import numpy as np

from trueno.errors import BackendUnavailable
from trueno.formats import FORMATS
from trueno.gguf.header import ARRAY, FIXED, LENGTH, STRING
from trueno.remedies import install


@cache
def package() -> Any:
    """The module `gguf`; BackendUnavailable if it is not installed."""
    try:
        import gguf
    except ImportError as error:
        raise BackendUnavailable(f"gguf: the package is not installed ({error}). Install: {install('gguf')}") from None
    return gguf


@cache
def names() -> dict[int, str]:
    """Names of tensor types in lower case, by ggml's number."""
    return {int(kind): kind.name.lower() for kind in package().GGMLQuantizationType}


@cache
def sizes() -> dict[int, tuple[int, int]]:
    """Elements and bytes of a block, by ggml's number; from our own table where a format is in it."""
    table = {int(kind): (int(n), int(size)) for kind, (n, size) in package().GGML_QUANT_SIZES.items()}
    return table | {f.type_id: (f.elements, f.nbytes) for f in FORMATS.values()}


@cache
def writer() -> Any:
    """The package's writer, but arrays are packed whole: item by item takes seconds, and fails if empty."""
    gguf = package()

    class Writer(gguf.GGUFWriter):  # type: ignore[misc, name-defined]
        def _pack_val(self, val: Any, vtype: Any, add_vtype: bool, sub_type: Any = None) -> bytes:
            if vtype != ARRAY or sub_type is None:
                return bytes(super()._pack_val(val, vtype, add_vtype, sub_type))
            head = struct.pack("<IIQ", vtype, sub_type, len(val))
            if sub_type != STRING:
                return head + np.array(val, FIXED[int(sub_type)]).tobytes()
            raws = [v.encode("utf-8") for v in val]
            return head + b"".join(part for raw in raws for part in (LENGTH.pack(len(raw)), raw))

    return Writer


def number(name: str) -> Any:
    """The package's name of a tensor type."""
    return package().GGMLQuantizationType[name.upper()]
