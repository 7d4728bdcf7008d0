"""Read a GGUF file as a mapping of tensors; its bytes are memory-mapped, not copied.

The operating system kills a process (SIGBUS) that reads a page of a map whose file was truncated.  So the file's length
is checked on each access to a tensor or a key, and FileError says what is gone.  A truncation between this check and
the read, or while an array is in use, still kills the process: replace a model's file by renaming another to its name.
"""

import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import DtypeError, FileError, MissingFile, suggestion
from trueno.formats import FORMATS
from trueno.gguf import package
from trueno.gguf.header import ARRAY, Info, Value, content, read
from trueno.quant.matrix import QuantizedMatrix

PLAIN = {
    "f32": "<f4", "f16": "<f2", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
}  # fmt: skip
"""Tensor types that NumPy has."""
READ = (*PLAIN, "bf16", *FORMATS)
"""Tensor types whose numbers can be read; other types give only their bytes."""


class Mapped:
    """The bytes of a file, with a check that they still exist."""

    __slots__ = ("_map", "bytes", "path")

    def __init__(self, path: Path, said: str) -> None:
        self.path = said
        try:
            if path.stat().st_size == 0:  # true of a pipe, too, which may never be written to
                raise FileError(f"{said}: the file is empty")
            with builtins.open(path, "rb") as file:
                self._map = mmap(file.fileno(), 0, access=ACCESS_READ)
        except FileNotFoundError as error:
            raise MissingFile(f"{said}: {error.strerror or error}", said) from error
        except OSError as error:
            raise FileError(f"{said}: {error.strerror or error}") from error
        except ValueError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{said!r} is not a path of a file: {error}") from error
        self.bytes = np.frombuffer(self._map, np.uint8)

    def part(self, at: int, nbytes: int, what: str) -> npt.NDArray[np.uint8]:
        """Some bytes; FileError if the file has become too short for them."""
        left = self._map.size()
        if nbytes and at + nbytes > left:
            raise FileError(
                f"{self.path}: {what} ends at byte {at + nbytes}, but the file was cut to {left} bytes after it was "
                "opened; open it again when it is complete"
            )
        return self.bytes[at : at + nbytes]


Raw = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, init=False)
class Tensor:
    """One tensor of a file.

    type: ggml's name of it in lower case, `q4_k` or `f32`.  shape: NumPy's order, the row last.
    raw: its bytes, uint8, or a function that returns them.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    _raw: Raw | Callable[[], Raw] = field(repr=False)

    def __init__(self, name: str, type: str, shape: tuple[int, ...], raw: Raw | Callable[[], Raw]) -> None:  # noqa: A002
        for slot, value in zip(Tensor.__slots__, (name, type, shape, raw), strict=True):
            object.__setattr__(self, slot, value)

    @property
    def raw(self) -> Raw:
        """Its bytes: of a file, mapped and read-only; FileError if the file has been truncated before their end."""
        return self._raw() if callable(self._raw) else self._raw

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes

    @property
    def data(self) -> Any:
        """The tensor, mapped where it can be: an array, or a QuantizedMatrix with all leading axes as rows.

        bf16, which NumPy does not have, becomes float32: a copy.  DtypeError for a type that has no format here.
        """
        if self.type in FORMATS:
            return self.rows(0, prod(self.shape[:-1]))
        return _numbers(self._readable(), self.type).reshape(self.shape)

    def rows(self, start: int, end: int) -> Any:
        """Some rows, with all leading axes counted as rows: an array [rows, k], or a QuantizedMatrix."""
        count, raw = prod(self.shape[:-1]), self._readable()
        raw = raw.reshape(count, -1)[start:end] if count else raw
        if self.type in FORMATS:
            return QuantizedMatrix(raw, (len(raw), self.shape[-1]), self.type)
        return _numbers(raw.reshape(-1), self.type).reshape(len(raw), self.shape[-1])

    def _readable(self) -> Raw:
        if self.type not in READ:
            raise DtypeError(
                f"gguf: tensor {self.name!r} is in {self.type}, which cannot be read here; "
                "its bytes are file.tensors[...].raw"
            )
        return self.raw


def _numbers(raw: npt.NDArray[np.uint8], kind: str) -> Any:
    if kind == "bf16":
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    view = raw.view(PLAIN[kind])
    return view if view.flags.aligned else view.copy()  # a file may align its tensors to less than their itemsize


class Metadata(Mapping[str, Any]):
    """The keys of a file; a value is decoded on access, because vocabularies are long."""

    def __init__(self, keys: Mapping[str, Value], file: Mapped | None) -> None:
        self._keys, self._file = keys, file

    def __getitem__(self, key: str) -> Any:
        if self._file is None or key not in self._keys:
            raise KeyError(f"no key {key!r}{suggestion(str(key), self._keys)}")
        value = self._keys[key]
        self._file.part(value.at, value.end - value.at, f"the value of {key!r}")
        return content(self._file.bytes.data, value)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def types(self, key: str) -> tuple[int, int | None]:
        """GGUF's number of the type of a value, and of the items of an array."""
        value = self._keys[key]
        return value.kind, value.item if value.kind == ARRAY else None

    def __repr__(self) -> str:
        return f"<Metadata of {len(self)} keys>"


class Tensors(Mapping[str, Tensor]):
    """The tensors of a file in its order; each is created on access, because there may be many."""

    def __init__(self, known: dict[str, Info], names: dict[int, str], file: Mapped) -> None:
        self._known, self._names, self._file = known, names, file

    def __getitem__(self, name: str) -> Tensor:
        t = self._known[name]
        raw = partial(self._file.part, t.at, t.nbytes, f"tensor {name!r}")
        return Tensor(name, self._names[t.type], t.shape, raw)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<{len(self)} tensors>"


class File(Mapping[str, Any]):
    """An open file: `file[name]` is a tensor's data, `file.tensors[name]` says what it is, `file.metadata` the keys."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        names, sizes = package.names(), package.sizes()
        mapped = Mapped(self.path, str(path))
        header = read(mapped.path, mapped.bytes.data, sizes)
        self.alignment = header.alignment
        self.metadata = Metadata(header.keys, mapped)
        self.tensors: Mapping[str, Tensor] = Tensors(header.tensors, names, mapped)
        self._open = True

    def __getitem__(self, name: str) -> Any:
        if not self._open:
            raise FileError(f"{self.path}: the file is closed")
        if name not in self.tensors:
            raise KeyError(f"{self.path}: no tensor {name!r}{suggestion(str(name), self.tensors)}")
        return self.tensors[name].data

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __enter__(self) -> "File":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays that are still in use keep their part of it mapped."""
        self.tensors = {}
        self.metadata = Metadata({}, None)
        self._open = False

    def __repr__(self) -> str:
        held = f"{len(self.tensors)} tensors, {len(self.metadata)} keys" if self._open else "closed"
        return f"<File {self.path}: {held}>"


def open(path: str | Path) -> File:  # noqa: A001 - as gzip and zipfile name theirs
    """Open a GGUF file for reading.  If it is not GGUF or is damaged: FileError with the reason and the byte."""
    return File(path)
