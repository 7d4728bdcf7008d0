"""The folder of compiled kernels, and the conditions under which they are still valid.

The folder carries a hash of what machine code depends on and Numba does not watch: all of this plugin's sources,
and the versions of Numba, LLVM and NumPy; the names of the files in it add the target that Numba made and its options.
A cache is code: `trueno.cachedir` says whether the folder can be trusted, and if it cannot, it is not used; and a file
begins with a digest of the rest, because flipped bits would be executed.

Numba's own cache keeps an index beside the code and numbers the files.  Two processes that compile one function for
two targets (`TRUENO_MAX_ISA`, or two machines with one home) both find an index without either, both take the first
number, and one of them is later given the other's instructions.  Here a file is named by what it holds, and says so.
"""

import pickle
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.serialize import dumps
from trueno.backend import cachedir, replacing

from trueno_simd.codecache import temporary
from trueno_simd.llvm import isa, target

isa.settle()  # before anything is printed: that asks for the level, as compiling does

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


def read(name: str) -> bytes | None:
    """What `write` kept under this name; None if there is nothing, or nothing that can be trusted."""
    if _kept() is None:  # another user who can write above a temporary folder can replace it
        return None
    try:
        whole = (folder() / name).read_bytes()
    except OSError:
        return None
    return whole[DIGEST:] if whole[:DIGEST] == _digest(whole[DIGEST:]) else None


def write(name: str, body: bytes) -> None:
    """Keep object code under a name that is a hash of what it was made from; a full disk is not an error."""
    with suppress(OSError), replacing(folder() / name) as beside:
        beside.write_bytes(_digest(body) + body)


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells Numba to keep a function's machine code in our folder."""

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__}.{function.__code__.co_firstlineno}"

    def get_cache_path(self) -> str:
        return str(folder())

    def get_source_stamp(self) -> str:
        return stamp()

    def get_disambiguator(self) -> str:
        return self._name

    @classmethod
    def from_function(cls, function: Any, _: str) -> "_Locator":
        return cls(function)


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)

    def check_cachable(self, result: Any) -> bool:
        """Whether the code is good in another process, silently: NUMBA_OPT=0 leaves addresses in it."""
        return not (result.library.has_dynamic_globals or any(not part.can_cache for part in result.lifted))


class _Files:
    """What `FunctionCache` keeps of one function: a file for each signature and target, written at once or not at all.

    Each file holds its key, (signature, target, hash of the code), so that whatever else got its name is a miss, and
    before that a digest, so that nothing damaged is unpickled or run.
    """

    def __init__(self, where: Path, name: str) -> None:
        self._where, self._name = where, name

    def path(self, key: Any) -> Path:
        return self._where / f"{self._name}.{blake2b(repr(key).encode(), digest_size=8).hexdigest()}.nbc"

    def load(self, key: Any) -> Any:
        body = read(self.path(key).name)
        if body is None:
            return None
        stored, data = pickle.loads(body)
        return data if stored == key else None

    def save(self, key: Any, data: Any) -> None:
        body = dumps((key, data))
        with replacing(self.path(key)) as beside:
            beside.write_bytes(_digest(body) + body)


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=DIGEST).digest()


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, in our folder; a damaged file is a miss, a full disk is not an error."""

    _impl_class = _Impl

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _Files(folder(), self._impl.filename_base)
        self._options = ""

    def load_overload(self, *args: Any) -> Any:
        try:
            config.reload_config()  # as a compilation does: what is looked for is what would be compiled
            self._options = target.options()
            return super().load_overload(*args)
        except Exception:  # foreign or unreadable: whatever pickle makes of it; compiled and written again
            return None

    def save_overload(self, *args: Any) -> None:
        if target.options() == self._options:  # else they were changed meanwhile, and who knows when
            with suppress(OSError):
                super().save_overload(*args)

    def _load_overload(self, *args: Any) -> Any:
        return super()._load_overload(*args) if _nameable() else None

    def _save_overload(self, *args: Any) -> None:
        if _nameable():
            super()._save_overload(*args)

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        """Numba's, with the target that was made in place of the one that its configuration names now."""
        signature, (triple, _, _), code = super()._index_key(signature, codegen)
        compiled_for = target.make()
        return (
            signature,
            (
                triple,
                compiled_for.cpu or llvm.get_host_cpu_name(),
                compiled_for.features,
                compiled_for.options,
                self._options,
            ),
            code,
        )


def _nameable() -> bool:
    """Whether the target can be told from another."""
    return target.make().cpu != ""
