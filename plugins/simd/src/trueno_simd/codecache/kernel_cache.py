"""Numba's cache of one function, in our folder.

Numba's own cache keeps an index beside the code and numbers the files.  Two processes that compile one function for
two targets (`TRUENO_MAX_ISA`, or two machines with one home) both find an index without either, both take the first
number, and one of them is later given the other's instructions.  Here a file is named by what it holds, and says so:
its name adds the target that Numba made and its options.
"""

import pickle
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba  # noqa: F401  # before its modules: see `elsewhere`
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.serialize import dumps

from trueno_simd.codecache.store import folder, read, stamp, write
from trueno_simd.llvm import isa, target

isa.settle()  # before anything is printed: that asks for the level, as compiling does


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
        body = read(self.path(key))
        if body is None:
            return None
        stored, data = pickle.loads(body)
        return data if stored == key else None

    def save(self, key: Any, data: Any) -> None:
        write(self.path(key), dumps((key, data)))


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
