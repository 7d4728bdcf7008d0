"""The folder of compiled kernels, and the conditions under which they are still valid.

The folder carries a hash of what machine code depends on and Numba does not watch: all of this plugin's sources,
and the versions of Numba, LLVM and NumPy; the names of the files in it add the target.
A cache is code: `trueno.cachedir` says whether the folder can be trusted, and if it cannot, it is not used; and a file
begins with a digest of the rest, because flipped bits would be executed.
"""

import sys
from functools import cache
from hashlib import blake2b
from importlib import metadata
from pathlib import Path

from trueno.backend import cachedir, replacing

from trueno_simd.codecache import temporary

DIGEST = 32  # bytes


@cache
def stamp() -> str:
    """Hash of this plugin's sources and of the compiler's versions."""
    digest = blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    for name in ("numba", "llvmlite", "numpy"):
        digest.update(f"{name} {metadata.version(name)}".encode())
    digest.update(f"{sys.implementation.cache_tag}".encode())
    return digest.hexdigest()


@cache
def _kept() -> Path | None:
    return cachedir.folder("simd", stamp(), writing=True)


def folder() -> Path:
    """Where printed kernels are kept: the user's cache, or a private temporary folder with one warning."""
    return _kept() or temporary.folder()


def read(path: Path) -> bytes | None:
    """What `write` kept in a file of our folder; None if there is nothing, or nothing that can be trusted."""
    if _kept() is None:  # another user who can write above a temporary folder can replace it
        return None
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    return whole[DIGEST:] if whole[:DIGEST] == _digest(whole[DIGEST:]) else None


def write(path: Path, body: bytes) -> None:
    """Keep code in a file whose name is made from what the code was made from; OSError if there is no room."""
    with replacing(path) as beside:
        beside.write_bytes(_digest(body) + body)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=DIGEST).digest()
