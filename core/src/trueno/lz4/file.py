"""Files of LZ4 frames, of which any page can be read without those before it."""

import builtins
import mmap
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, chain
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np

from trueno.dispatch.coerce import shown
from trueno.errors import DtypeError, FileError, LZ4Error, MissingFile, ParameterError
from trueno.lz4.header import Array, Frame, frames
from trueno.lz4.incoming import whole
from trueno.lz4.reading import PAGE, block, pages

Path = str | os.PathLike[str]
AT_ONCE = 1024
"""Pages that one call decompresses."""


def open(path: Path, *, backend: str | None = None) -> "File":  # noqa: A001 - as gzip and zipfile name theirs
    """A file of LZ4 frames, to read pages and ranges of bytes from.

    Opening reads the headers of all blocks, and compares their checksums if there are any.  backend: where to
    decompress; the best one by default.  FileError for a file that cannot be read, MissingFile if
    there is none, LZ4Error for one that is damaged or is not LZ4, or whose blocks refer to each other:
    `trueno.lz4.decompress` reads that.
    """
    return File(path, backend)


class File:
    """An open file of LZ4 frames: `file.read(page)`, `file[start:stop]`, `file.pages`; close it, or use `with`.

    Threads may share it: a call that has begun when another thread closes the file returns its bytes.
    """

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
            why = getattr(error, "strerror", None) or error
            raise FileError(f"lz4.open: {self.path} cannot be read: {why}") from None
        self._data = np.frombuffer(self._map or b"", np.uint8)
        try:
            self.frames = self._checked()
        except BaseException:
            self.close()
            raise
        counts = [len(frame.sizes) for frame in self.frames]
        self._first = np.cumsum([0, *counts]).tolist()
        self._starts = [0]
        """Where pages begin in the content, as far as that is known, and the end of the last of these."""
        self._longest = 0
        """Bytes of the longest page that was read: room for the next ones."""
        self._measuring = Lock()

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
        data = self._open()
        number = whole("lz4.File.read", "page", page, -self.pages)
        if number >= self.pages:
            raise ParameterError(f"lz4.File.read: page is {number}, and {self.path} has {self.pages}")
        return b"".join(self._read(data, number % self.pages, 1))

    def __len__(self) -> int:
        """Bytes of the content of all frames; without decompressing where their headers say it."""
        return self._length(self._open())

    def _length(self, data: Array) -> int:
        said = [frame.content for frame in self.frames]
        if None not in said:
            return sum(n for n in said if n is not None)
        while self._measure(data):
            pass
        return self._starts[-1]

    def __getitem__(self, which: int | slice) -> Any:
        """A byte, or a range of bytes, of the content.

        Frames do not say how long their pages are, so the first range that ends farther than all before decompresses
        the pages up to there once; from then on only those that a range needs.  `read` decompresses one page alone.
        """
        data = self._open()
        length = self._length(data)
        if not isinstance(which, slice):
            try:
                place = range(length)[which]
            except (IndexError, TypeError):
                raise ParameterError(f"lz4.File: byte {shown(which)} is not one of {length}") from None
            return self._range(data, place, place + 1)[0]
        try:
            start, stop, step = which.indices(length)
        except (TypeError, ValueError):  # an end that is not a whole number, a step of 0
            problem = f"{shown(which)} is not a range of bytes; its ends are whole numbers, its step is 1"
            raise ParameterError(f"lz4.File: {problem}: file[a:b]") from None
        if step != 1:
            raise ParameterError(f"lz4.File: the step is {step}; a range of bytes has step 1: file[a:b][::{step}]")
        return self._range(data, start, stop) if start < stop else b""

    def __iter__(self) -> Iterator[int]:
        """The bytes of the content as numbers, as those of `bytes`; pages are decompressed on the way."""
        return chain.from_iterable(self._read(self._open(), 0, self.pages))

    def __bytes__(self) -> bytes:
        """The content."""
        return bytes(self[:])

    __contains__ = None  # with `__iter__` alone, `b"ab" in file` would be False; `b"ab" in file[:]` searches

    def _range(self, data: Array, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop` of the content, which has them."""
        while self._starts[-1] < stop and self._measure(data):
            pass
        first, last = bisect_right(self._starts, start) - 1, bisect_left(self._starts, stop) - 1
        content = b"".join(self._read(data, first, last - first + 1))
        return content[start - self._starts[first] : stop - self._starts[first]]

    def _open(self) -> Array:
        """The bytes of the file, which a call keeps to its end; FileError if it is closed."""
        data = self._data  # before the question: what is read behind it may be what `close` leaves
        if self._closed:
            raise FileError(f"lz4.File: {self.path} is closed")
        return data

    def _read(self, data: Array, first: int, count: int) -> Iterator[bytes]:
        """The bytes of some pages that follow each other."""
        while count:
            k = bisect_right(self._first, first) - 1
            frame, at = self.frames[k], first - self._first[k]
            some = min(count, self._first[k + 1] - first, AT_ONCE if self._longest else 1)
            if frame.most > PAGE:
                yield from (block(frame, at + i, data) for i in range(some))
            else:
                which = np.arange(at, at + some)
                room = int(frame.holds(which).max())
                found = pages(frame, which, min(room, self._longest or room), data, self._backend)
                self._longest = max(self._longest, *map(len, found))
                yield from map(bytes, found)
            first, count = first + some, count - some

    def _measure(self, data: Array) -> bool:
        """Find out where some more pages begin; False if all are known.  LZ4Error if a header says something else."""
        with self._measuring:
            starts = self._starts
            known = len(starts) - 1
            if known == self.pages:
                return False
            k = bisect_right(self._first, known) - 1
            frame, end = self.frames[k], self._first[k + 1]
            some = min(end - known, max(AT_ONCE * PAGE // frame.most, 1))
            try:
                lengths = [len(page) for page in self._read(data, known, some)]
            except LZ4Error:
                if some == 1:
                    raise
                lengths = [len(page) for page in self._read(data, known, 1)]  # a damaged page may not be needed
            more = list(accumulate(lengths, initial=starts[-1]))[1:]
            if known + len(more) == end:
                content = more[-1] - starts[self._first[k]]
                if frame.content not in (None, content):
                    raise frame.error(f"its content has {content} bytes, and its header says {frame.content}")
            self._starts = starts + more
            return True

    def close(self) -> None:
        """Close the file; pages cannot be read any more.  Closing again has no effect."""
        self._closed = True  # first: `_open` relies on it
        self._data = np.empty(0, np.uint8)
        held, self._map = self._map, None
        if held is not None:
            with suppress(BufferError):  # of an error's traceback or a call of another thread, which still refer to it
                held.close()

    def __enter__(self) -> "File":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        how = "closed" if self._closed else f"{self.pages} pages in {self.nbytes} bytes"
        return f"<LZ4 file {self.path}, {how}>"
