"""LZ4 frames, files and pages of bytes, by the ops `lz4_compress`, `lz4_decompress` and `lz4_pack`.

    frame = trueno.lz4.compress(data)                 # a standard frame: the lz4 command reads it
    data = trueno.lz4.decompress(frame)               # any standard frame, also those of others
    pages = trueno.lz4.compress_pages(array)          # stays on the device of the array
    with trueno.lz4.open("data.lz4") as file:
        file.read(7)                                  # one page, anywhere in the file

It needs the packages lz4 and xxhash (`pip install 'trueno[lz4]'`).  `trueno lz4` does it from the command line.
"""

from typing import TYPE_CHECKING, NoReturn

from trueno.hints import member
from trueno.lz4.file import File, open  # noqa: A004 - as gzip and zipfile name theirs
from trueno.lz4.pages import Pages, compress_pages, decompress_pages
from trueno.lz4.reading import decompress
from trueno.lz4.writing import compress

__all__ = ["File", "Pages", "compress", "compress_pages", "decompress", "decompress_pages", "open"]


if not TYPE_CHECKING:  # checkers know what is here
    from trueno.hints import member

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(member(__name__, name, __all__))
