"""Files of LZ4 frames, of which any page can be read without those before it."""

import builtins
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

from trueno.errors import DtypeError, FileError, MissingFile, ParameterError
from trueno.lz4.header import Array, Frame, frames
from trueno.lz4.incoming import whole
from trueno.lz4.reading import PAGE, block, pages

Path = str | os.PathLike[str]


def open(path: Path, *, backend: str | None = None) -> "File":  # noqa: A001 - as gzip and zipfile name theirs
    """A file of LZ4 frames, to read pages and ranges of bytes from.

    Opening reads the headers of all blocks, and compares their checksums if there are any.  backend: where to
    decompress; the best one by default.  FileError for a file that cannot be read, MissingFile if
    there is none, LZ4Error for one that is damaged or is not LZ4, or whose blocks refer to each other:
    `trueno.lz4.decompress` reads that.
    """
    return File(path, backend)


class File:
    """An open file of LZ4 frames: `file.read(page)`, `file[start:stop]`, `file.pages`; close it, or use `with`."""

    def __init__(self, path: Path, backend: str | None = None) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise DtypeError(f"lz4.open: path is {type(path).__name__}; give a str or a pathlib.Path")
        self.path, self._backend = os.fspath(path), backend
        self._map: mmap.mmap | None = None
        self._closed = False
        try:
            with builtins.open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
        except FileNotFoundError as error:
            raise MissingFile(f"lz4.open: {self.path} cannot be read: {error.strerror}", self.path) from None
        except (OSError, ValueError) as error:
            raise FileError(f"lz4.open: {self.path} cannot be read: {error}") from None
        self._data = np.frombuffer(self._map or b"", np.uint8)
        try:
            self.frames = self._checked()
        except BaseException:
            self.close()
            raise
        counts = [len(frame.sizes) for frame in self.frames]
        self._first = np.cumsum([0, *counts]).tolist()
        self._starts: Array | None = None
        self._exact = False

    def _checked(self) -> list[Frame]:
        found = frames(self._data.data)
        for frame in found:
            if frame.linked:
                raise frame.error("its blocks refer to those before them; read it with trueno.lz4.decompress")
        return found

    @property
    def pages(self) -> int:
        """The number of pages in all frames."""
        return int(self._first[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return len(self._data)

    def read(self, page: int) -> bytes:
        """The bytes of one page; negative numbers count from the end.  ParameterError for a page that is not there."""
        self._open()
        number = whole("lz4.File.read", "page", page, -self.pages)
        if number >= self.pages:
            raise ParameterError(f"lz4.File.read: page is {number}, and {self.path} has {self.pages}")
        return b"".join(self._read(number % self.pages, 1))

    def __len__(self) -> int:
        """Bytes of the content of all frames."""
        self._open()
        return int(self._places()[-1])

    def __getitem__(self, which: int | slice) -> Any:
        """A byte, or a range of bytes, of the content; only the pages that hold them are decompressed."""
        self._open()
        if not isinstance(which, slice):
            places = range(len(self))
            try:
                return self[places[which] : places[which] + 1][0]
            except (IndexError, TypeError):
                raise ParameterError(f"lz4.File: byte {which!r} is not one of {len(self)}") from None
        start, stop, step = which.indices(len(self))
        if step != 1:
            raise ParameterError(f"lz4.File: the step is {step}; a range of bytes has step 1: file[a:b][::{step}]")
        if stop <= start:
            return b""
        while True:
            places = self._places().tolist()
            first, last = bisect_right(places, start) - 1, bisect_right(places, stop - 1) - 1
            found = list(self._read(first, last - first + 1))
            if self._exact or [len(p) for p in found] == np.diff(places[first : last + 2]).tolist():
                return b"".join(found)[start - places[first] : stop - places[first]]
            self._starts = self._measured()  # pages of different lengths

    def _open(self) -> None:
        if self._closed:
            raise FileError(f"lz4.File: {self.path} is closed")

    def _read(self, first: int, count: int) -> Iterator[bytes]:
        """The bytes of some pages that follow each other."""
        while count:
            k = bisect_right(self._first, first) - 1
            frame, at = self.frames[k], first - self._first[k]
            some = min(count, self._first[k + 1] - first, 1024)
            if frame.most > PAGE:
                yield from (block(frame, at + i, self._data) for i in range(some))
            else:
                which = np.arange(at, at + some)
                found = pages(frame, which, int(frame.holds(which).max()), self._data, self._backend)
                yield from map(bytes, found)
            first, count = first + some, count - some

    def _places(self) -> Array:
        """Where each page begins in the content, and its end: as headers let expect, unless that was wrong."""
        if self._starts is None:
            lengths = [self._expected(k) for k in range(len(self.frames))]
            if any(each is None for each in lengths):
                self._starts = self._measured()
            else:
                self._starts = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        return self._starts

    def _expected(self, k: int) -> Array | None:
        """The lengths of a frame's pages, if its header gives the whole and all but the last are as the first."""
        frame, count = self.frames[k], len(self.frames[k].sizes)
        if not count:
            return np.zeros(0, np.int64)
        if frame.content is None:
            return None
        page = len(self.read(self._first[k]))
        rest = frame.content - page * (count - 1)
        if not 0 <= rest <= page:
            return None
        return np.array([page] * (count - 1) + [rest])

    def _measured(self) -> Array:
        """Where each page begins, by decompressing all of them."""
        self._exact = True
        lengths = [len(page) for page in self._read(0, self.pages)]
        return np.cumsum([0, *lengths], dtype=np.int64)

    def close(self) -> None:
        """Close the file; pages cannot be read any more.  Closing again has no effect."""
        self._closed, self._data = True, np.empty(0, np.uint8)
        if self._map is not None:
            with suppress(BufferError):  # of an error's traceback, which still refers to it
                self._map.close()
            self._map = None

    def __enter__(self) -> "File":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        how = "closed" if self._closed else f"{self.pages} pages in {self.nbytes} bytes"
        return f"<LZ4 file {self.path}, {how}>"
