"""GGUF files whose tensors the workers read, rows by rows: no byte of them passes through the client or a graph."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import trueno
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes
from trueno.errors import FileError, suggestion
from trueno.formats import FORMATS

Array = npt.NDArray[Any]
Stamp = tuple[int, int]


def read(path: str, size: int, name: str, start: int, stop: int, shape: list[int]) -> Array:
    """Rows of a tensor, counted over all leading axes, in this shape: numbers, or the bytes of blocks.

    size: the length of the file on the client; FileError where another one is here.
    """
    here = _stamp(path)
    if here[0] != size:
        raise FileError(f"{path}: the file has {here[0]} bytes here, but {size} on the client; give workers one file")
    tensor = _opened(path, here).tensors[name]
    rows = tensor.rows(start, stop)
    return np.asarray(rows.bytes if tensor.type in FORMATS else rows).reshape(shape)


def _stamp(path: str) -> Stamp:
    try:
        facts = Path(path).stat()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}; every worker reads the file by this path") from error
    return facts.st_size, facts.st_mtime_ns


@lru_cache(maxsize=16)
def _opened(path: str, stamp: Stamp) -> Any:
    """The file, opened once per process."""
    return trueno.gguf.open(path)


class File(Mapping[str, Any]):
    """A GGUF file: `file[name]` is a lazy QuantizedMatrix or Dask array, `file.metadata` has the keys.

    chunks: about how many bytes a chunk has; a chunk holds whole rows.
    """

    def __init__(self, path: str | Path, chunks: int | str = "128 MiB") -> None:
        self.path = str(Path(path).absolute())
        self.chunks = parse_bytes(chunks)
        self._file = trueno.gguf.open(self.path)
        self._stamp = _stamp(self.path)
        self.metadata = self._file.metadata

    def __getitem__(self, name: str) -> Any:
        if name not in self._file.tensors:
            raise KeyError(f"{self.path}: no tensor {name!r}{suggestion(str(name), self._file.tensors)}")
        tensor = self._file.tensors[name]
        k = tensor.shape[-1]
        if tensor.type in FORMATS:
            rows = prod(tensor.shape[:-1])
            width = tensor.nbytes // max(rows, 1)
            return trueno.QuantizedMatrix(
                self._lazy(name, 1, (rows, width), np.dtype(np.uint8)), (rows, k), tensor.type
            )
        dtype = tensor.rows(0, 0).dtype
        if len(tensor.shape) == 1:
            return self._lazy(name, 1, (1, k), dtype)[0]
        return self._lazy(name, prod(tensor.shape[1:-1]), tensor.shape, dtype)

    def _lazy(self, name: str, each: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> da.Array:
        """A tensor of this shape, cut along its first axis, of which an index has `each` rows."""
        few = max(1, self.chunks // max(prod(shape[1:]) * dtype.itemsize, 1))
        sizes = tuple(min(few, shape[0] - start) for start in range(0, shape[0], few)) or (0,)
        title = f"gguf-{tokenize(self.path, self._stamp, name, sizes)}"
        graph, start = {}, 0
        for i, n in enumerate(sizes):
            rows = (start * each, (start + n) * each)
            key = (title, i, *(0,) * (len(shape) - 1))
            graph[key] = (read, self.path, self._stamp[0], name, *rows, [n, *shape[1:]])
            start += n
        layers = HighLevelGraph.from_collections(title, graph)
        return da.Array(layers, title, (sizes, *((n,) for n in shape[1:])), dtype=dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}: {len(self)} tensors, read by workers>"


def open_gguf(path: str | Path, chunks: int | str = "128 MiB") -> File:
    """Open a GGUF file whose tensors are read by the workers, each its chunks: `q = open_gguf(path)[name]; q @ x`.

    path: that of a file which every worker sees, unchanged.  chunks: bytes per chunk, in whole rows.  FileError and
    MissingFile as `trueno.gguf.open`; later, from a worker, for a file that is not there, or another one.
    """
    return File(path, chunks)
