"""`Pages`: the bytes of one layer's keys or values, and their format."""

from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.errors import DtypeError, ShapeError
from trueno.formats import decode, format_of
from trueno.formats.table import CACHES

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
AXES = 4


class Pages:
    """Keys or values of one layer: `shape` (pages, tokens of a page, heads, numbers of a head), in `format`.

    x: an array of float32, float16 or bfloat16, which this borrows; or bytes [pages, page, heads, bytes of a head],
    uint8, of the host or of a device, with `format`: "f32", "f16", "bf16" or "q8_0".  Ops on caches take one wherever
    they take an array, and a batch uploads one without a copy.  `.bytes` is the memory, `numpy()` its numbers.
    """

    __slots__ = ("bytes", "format", "shape")

    def __init__(self, x: Any, format: str = "") -> None:  # noqa: A002 - the field's own word
        dtype = np.dtype(getattr(x, "dtype", object))
        shape = tuple(getattr(x, "shape", (0,) * AXES))
        if len(shape) != AXES:
            raise ShapeError(f"Pages: x has shape {shape}; pages are [pages, page, heads, numbers of a head]")
        if dtype != np.uint8:
            known = DTYPES.get(dtype.name, "")
            if not isinstance(x, np.ndarray) or not known or not dtype.isnative:
                kind = dtype if isinstance(x, np.ndarray) else type(x).__name__
                taken = "float32, float16, bfloat16, or uint8 with format"
                raise DtypeError(f"Pages: x is {kind}; give an array of {taken}")
            if format not in ("", known):
                raise DtypeError(f"Pages: x is {dtype}, but format is {format!r}; leave format out")
            if not x.flags.c_contiguous:
                raise ShapeError("Pages: x has gaps, and would be copied; copy it: numpy.ascontiguousarray(x)")
            x, name = x.view(np.uint8), known
        else:
            name = format.lower() if isinstance(format, str) else format
        if name not in CACHES:
            raise DtypeError(f"Pages: format is {format!r}; a cache is in {', '.join(CACHES)}")
        self.bytes, self.format = x, name
        self.shape = (*x.shape[:-1], format_of(name, cache=True).row_elements(x.shape[-1]))

    @property
    def _blocks(self) -> tuple[Any, str, bool]:
        return self.bytes, self.format, False

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.bytes.shape, dtype=np.int64))

    def numpy(self) -> np.ndarray[Any, Any]:
        """The numbers as float32, in new memory."""
        from trueno.dispatch.transfer import numpy  # start-up

        return decode(format_of(self.format, cache=True), numpy(self.bytes))

    def __repr__(self) -> str:
        home = registry.home(self.bytes)
        where = f", on {home.name}" if home else ""
        return f"<Pages {'x'.join(map(str, self.shape))} {self.format}{where}>"
