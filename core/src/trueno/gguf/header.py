"""The header of a GGUF file: its keys, and the location of each tensor.

A file of 100 bytes may claim to have 2⁶⁰ entries.  This module checks every count, length and offset against the
remaining bytes before it uses them, so that no allocation is larger than the file justifies; Python's memory
for keys and tensors, some 300 bytes each, is bounded by the limits on their number.  The reader of the `gguf` package
does not check; and for a vocabulary of 150 000 texts it takes a hundred times longer, and 500 MB.
Format: ggml's gguf.h, versions 2 and 3, little endian.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from trueno.errors import FileError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""The alignment unless `general.alignment` sets another."""
FIXED = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""NumPy's dtype of the types of values that have a fixed size."""
UINT32, STRING, ARRAY = 4, 8, 9
DIMS = 4
ELEMENTS = 1 << 59
"""The most elements of a tensor; NumPy can still count its bytes."""
REMOVED = (4, 5, 31, 32, 33, 36, 37, 38)
"""Tensor types that ggml has removed."""
KEYS, TENSORS = 1 << 16, 1 << 17
"""The most of them in a file: models have some 100 keys, and with an array for every expert 70 000 tensors."""
NAME = (1 << 16) - 1
"""The most bytes of a name, by the format."""
LENGTH = struct.Struct("<Q")


class Value(NamedTuple):
    """The location of a key's value: `length` items of type `item`, bytes `at` to `end`; `kind` is ARRAY or `item`."""

    kind: int
    item: int
    length: int
    at: int
    end: int


class Info(NamedTuple):
    """One tensor: ggml's number of its type, its shape in NumPy's order, and its first byte in the file."""

    type: int
    shape: tuple[int, ...]
    at: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """The claims of a file's header, all of them checked."""

    keys: dict[str, Value]
    tensors: dict[str, Info]
    alignment: int


class Walk:
    """Reads values in sequence; FileError where the file ends too early."""

    def __init__(self, path: str, data: memoryview) -> None:
        self.path, self.data, self.at, self.size = path, data, 0, len(data)

    def wrong(self, what: str) -> FileError:
        return FileError(f"{self.path}: {what}, at byte {self.at}; the file is damaged or is not a GGUF file")

    def left(self, count: int, each: int, what: str) -> None:
        """FileError unless `count` items of at least `each` bytes can still follow."""
        if count * each > self.size - self.at:
            raise self.wrong(f"{what} needs {count * each} bytes, but {self.size - self.at} are left")

    def number(self, form: str, what: str) -> int:
        size = struct.calcsize(form)
        self.left(1, size, what)
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return int(value)

    def name(self, what: str) -> str:
        """The name of a key or a tensor."""
        length = self.number("Q", f"the length of {what}")
        if length > NAME:
            raise self.wrong(f"{what} has {length} bytes; up to {NAME} are possible")
        self.left(length, 1, what)
        try:
            name = str(self.data[self.at : self.at + length], "utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"{what} is not UTF-8") from None
        self.at += length
        return name

    def texts(self, count: int, what: str) -> None:
        """Skip texts: as `text`, for many."""
        self.left(count, LENGTH.size, what)
        data, at, size, unpack = self.data, self.at, self.size, LENGTH.unpack_from
        try:
            for _ in range(count):
                at += LENGTH.size + unpack(data, at)[0]
                if at > size:
                    break
        except struct.error:
            at = size + 1
        start, self.at = self.at, at
        if at > size:
            self.at = size
            raise self.wrong(f"{what} of {count} texts extends beyond the end")
        for a, b in spans(data, start, count):
            try:
                str(data[a:b], "utf-8")
            except UnicodeDecodeError:
                self.at = a
                raise self.wrong(f"{what} has a text that is not UTF-8") from None

    def value(self, what: str) -> Value:
        """Skip a value."""
        kind = item = self.number("I", f"the type of {what}")
        count = 1
        if kind == ARRAY:
            item = self.number("I", f"the type of {what}")
            count = self.number("Q", f"the length of {what}")
        at = self.at
        if item in FIXED:
            size = np.dtype(FIXED[item]).itemsize
            self.left(count, size, what)
            self.at += count * size
        elif item == STRING:
            self.texts(count, what)
        elif item == ARRAY:
            raise self.wrong(f"{what} is an array of arrays, which cannot be read here")
        else:
            raise self.wrong(f"{what} has the unknown type {item}")
        return Value(kind, item, count, at, self.at)


def spans(data: memoryview, at: int, count: int) -> Iterator[tuple[int, int]]:
    """First byte and end of each of `count` texts from byte `at` on."""
    unpack = LENGTH.unpack_from
    for _ in range(count):
        start = at + LENGTH.size
        at = start + unpack(data, at)[0]
        yield start, at


def content(data: memoryview, value: Value) -> Any:
    """The value as a Python object: a number, a text, a bool, or a list of them."""
    if value.item == STRING:
        items = [str(data[a:b], "utf-8") for a, b in spans(data, value.at, value.length)]
    else:
        items = np.frombuffer(data, FIXED[value.item], value.length, value.at).tolist()
    return items if value.kind == ARRAY else items[0]


def read(path: str, data: memoryview, sizes: dict[int, tuple[int, int]]) -> Header:
    """The header of a GGUF file; FileError, naming what and where, unless every number in it fits the file.

    sizes: elements and bytes of a block, by ggml's number of a tensor type.
    """
    walk = Walk(path, data)
    if bytes(data[:4]) != MAGIC:
        raise walk.wrong(f"it begins with {bytes(data[:4])!r}, not {MAGIC!r}")
    walk.at = 4
    version = walk.number("I", "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        reason = (
            "big-endian files cannot be read" if swapped else f"versions {VERSIONS[0]} and {VERSIONS[1]} can be read"
        )
        raise walk.wrong(f"version {version}: {reason}")
    tensors, count = walk.number("Q", "the number of tensors"), walk.number("Q", "the number of keys")
    walk.left(count, 13, f"{count} keys")
    walk.left(tensors, 24, f"{tensors} tensors")
    for number, most, what in ((count, KEYS, "keys"), (tensors, TENSORS, "tensors")):
        if number > most:
            raise walk.wrong(f"{number} {what}; up to {most} are read")
    keys: dict[str, Value] = {}
    for _ in range(count):
        name = walk.name("a key")
        if name in keys or not name:
            raise walk.wrong(f"the key {name!r} appears twice" if name else "a key has no name")
        keys[name] = walk.value(repr(name))
    alignment = _alignment(walk, keys)
    infos: dict[str, Info] = {}
    for _ in range(tensors):
        name = walk.name("a tensor's name")
        if name in infos:
            raise walk.wrong(f"the tensor {name!r} appears twice")
        infos[name] = _tensor(walk, name, alignment, sizes)
    start = -(-walk.at // alignment) * alignment
    placed = {name: t._replace(at=start + t.at) for name, t in infos.items()}
    _fit(walk, placed)
    return Header(keys, placed, alignment)


def _alignment(walk: Walk, keys: dict[str, Value]) -> int:
    value = keys.get("general.alignment")
    if value is None:
        return ALIGNMENT
    if value.kind != UINT32:
        raise walk.wrong(f"general.alignment has the type {value.kind}, not {UINT32} (uint32)")
    alignment = int(content(walk.data, value))
    if alignment == 0 or alignment & (alignment - 1):
        raise walk.wrong(f"general.alignment is {alignment}, which is not a power of two")
    return alignment


def _tensor(walk: Walk, name: str, alignment: int, sizes: dict[int, tuple[int, int]]) -> Info:
    """The header's entry for one tensor; `at` counts from the start of the tensor data."""
    ndim = walk.number("I", f"the dimensions of {name!r}")
    if ndim > DIMS:
        raise walk.wrong(f"tensor {name!r} has {ndim} dimensions; up to {DIMS} are possible")
    shape = tuple(walk.number("Q", f"a dimension of {name!r}") for _ in range(ndim))[::-1] or (1,)
    kind = walk.number("I", f"the type of {name!r}")
    offset = walk.number("Q", f"the offset of {name!r}")
    if kind not in sizes:
        gone = "one that ggml has removed" if kind in REMOVED else "an unknown one"
        raise walk.wrong(f"tensor {name!r} has the type {kind}, {gone}")
    elements, nbytes = sizes[kind]
    if shape[-1] % elements:
        raise walk.wrong(f"tensor {name!r} has rows of {shape[-1]} elements, but blocks of {elements}")
    if prod(max(n, 1) for n in shape) > ELEMENTS:  # the other dimensions of an empty tensor count as well
        raise walk.wrong(f"tensor {name!r} has the shape {shape}")
    if offset % alignment:
        raise walk.wrong(f"tensor {name!r} is at offset {offset}, which is not a multiple of {alignment}")
    return Info(kind, shape, offset, prod(shape) // elements * nbytes)


def _fit(walk: Walk, tensors: dict[str, Info]) -> None:
    """FileError where a tensor extends beyond the end, or two share bytes."""
    filled = sorted(((name, t) for name, t in tensors.items() if t.nbytes), key=lambda pair: pair[1].at)
    for name, t in filled:
        if t.at + t.nbytes > walk.size:
            raise walk.wrong(f"tensor {name!r} ends at byte {t.at + t.nbytes}, but the file at {walk.size}")
    for (name, one), (other, two) in pairwise(filled):
        if one.at + one.nbytes > two.at:
            raise walk.wrong(f"tensors {name!r} and {other!r} share bytes")
