"""GGUF files, byte by byte, true or not."""

import struct

import numpy as np
import trueno
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows

ARCH = {"general.architecture": "llama"}
SEED = 20261121


def blocks(name, rows=3, count=2, seed=SEED):
    """A random QuantizedMatrix of `count` blocks a row."""
    f = FORMATS[name]
    data = random_rows(f, (rows, count * f.nbytes), np.random.default_rng(seed))
    return trueno.QuantizedMatrix(data, (rows, count * f.elements), name)


def text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, payload):
    return text(name) + struct.pack("<I", kind) + payload


def info(name, shape, kind, offset):
    """A tensor; `shape` is in the file's order, the row first."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def raw_file(keys=(), tensors=(), data=b"", *, magic=b"GGUF", version=3, counts=None, alignment=32):
    """A file from its parts, true or not."""
    n = counts or (len(tensors), len(keys))
    head = magic + struct.pack("<IQQ", version, *n) + b"".join(keys) + b"".join(tensors)
    return head + (bytes(-len(head) % alignment) + data if data else b"")
