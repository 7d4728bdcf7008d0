"""Reading: a GGUF file as a mapping of tensors, its bytes mapped and not copied."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import DtypeError, FileError, suggestion
from trueno.formats import FORMATS
from trueno.gguf import package
from trueno.gguf.header import ARRAY, Info, Value, content, read
from trueno.quant.matrix import QuantizedMatrix

PLAIN = {
    "f32": "<f4", "f16": "<f2", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8",
}  # fmt: skip
"""Tensor types that NumPy has."""
READ = (*PLAIN, "bf16", *FORMATS)
"""Tensor types whose numbers are read; of any other there are the bytes."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file.

    type: ggml's name of it in lower case, `q4_k` or `f32`.  shape: NumPy's order, the row last.
    raw: its bytes, uint8, mapped from the file and read-only.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    raw: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes

    @property
    def data(self) -> Any:
        """The tensor, mapped where it can be: an array, or a QuantizedMatrix with all leading axes as rows.

        bf16, which NumPy does not have, becomes float32: a copy.  DtypeError for a type that no format here reads.
        """
        if self.type not in READ:
            raise DtypeError(
                f"gguf: tensor {self.name!r} is in {self.type}, which is not read here; "
                "its bytes are file.tensors[...].raw"
            )
        if self.type in FORMATS:
            rows = prod(self.shape[:-1])
            return QuantizedMatrix(self.raw.reshape(rows, -1) if rows else self.raw, (rows, self.shape[-1]), self.type)
        return _numbers(self.raw, self.type).reshape(self.shape)

    def rows(self, start: int, end: int) -> Any:
        """Some rows, all leading axes taken as rows: an array [rows, k], or a QuantizedMatrix."""
        count = prod(self.shape[:-1])
        raw = self.raw.reshape(count, -1)[start:end]
        if self.type in FORMATS:
            return QuantizedMatrix(raw, (len(raw), self.shape[-1]), self.type)
        return _numbers(raw.reshape(-1), self.type).reshape(len(raw), self.shape[-1])


def _numbers(raw: npt.NDArray[np.uint8], kind: str) -> Any:
    if kind == "bf16":
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    found = raw.view(PLAIN[kind])
    return found if found.flags.aligned else found.copy()  # a file may align its tensors to less than their items


class Metadata(Mapping[str, Any]):
    """The keys of a file; a value is made when it is asked for, as vocabularies are long."""

    def __init__(self, keys: Mapping[str, Value], data: memoryview) -> None:
        self._keys, self._data = keys, data

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(f"no key {key!r}{suggestion(str(key), self._keys)}")
        return content(self._data, self._keys[key])

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


class File(Mapping[str, Any]):
    """An open file: `file[name]` is a tensor's data, `file.tensors[name]` says what it is, `file.metadata` the keys."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        said = str(path)
        names, sizes = package.names(), package.sizes()
        try:
            if self.path.stat().st_size == 0:
                raise FileError(f"{said}: the file is empty")
            data = np.asarray(np.memmap(self.path, np.uint8, "r"))
        except OSError as error:
            raise FileError(f"{said}: {error.strerror or error}") from error
        header = read(said, data.data, sizes)
        self.alignment = header.alignment
        self.metadata = Metadata(header.keys, data.data)
        self.tensors = {t.name: _tensor(t, names[t.type], data) for t in header.tensors}
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
        """Let the file go; arrays that are still held keep their part of it mapped."""
        self.tensors = {}
        self.metadata = Metadata({}, memoryview(b""))
        self._open = False

    def __repr__(self) -> str:
        held = f"{len(self.tensors)} tensors, {len(self.metadata)} keys" if self._open else "closed"
        return f"<File {self.path}: {held}>"


def _tensor(t: Info, kind: str, data: npt.NDArray[np.uint8]) -> Tensor:
    return Tensor(t.name, kind, t.shape, data[t.at : t.at + t.nbytes])


def open(path: str | Path) -> File:  # noqa: A001 - as gzip and zipfile name theirs
    """Open a GGUF file for reading.  FileError, saying what is wrong at which byte, for one that is none or damaged."""
    return File(path)
