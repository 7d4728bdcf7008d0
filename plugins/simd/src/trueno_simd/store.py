"""Where compiled kernels are kept, and when they are still good.

The folder carries a hash of what machine code depends on and Numba does not watch: all of this plugin's sources,
and the versions of Numba, LLVM and NumPy; Numba's index in it adds the CPU's name and features.  A cache is
code: the folder must be the user's own and writable by nobody else, or it is not used.
"""

import os
import sys
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from trueno.errors import SettingError, TruenoWarning
from trueno.settings import settings


@cache
def stamp() -> str:
    """Hash of this plugin's sources and of the compiler's versions."""
    digest = blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    for name in ("numba", "llvmlite", "numpy"):
        digest.update(f"{name} {metadata.version(name)}".encode())
    digest.update(f"{sys.implementation.cache_tag}".encode())
    return digest.hexdigest()


@cache
def folder() -> Path:
    """Where printed kernels are kept: the user's cache, or a private temporary folder with one warning."""
    wanted = _wanted() / "simd" / stamp()
    reason = _secure(wanted)
    if not reason:
        return wanted
    private = Path(tempfile.mkdtemp(prefix="trueno-simd-"))
    warnings.warn(
        f"kernels are not kept on disk: {reason}; set TRUENO_CACHE_DIR to a folder of your own",
        TruenoWarning,
        stacklevel=3,
    )
    return private


def _wanted() -> Path:
    if given := settings.get("TRUENO_CACHE_DIR"):
        try:
            return Path(given).expanduser()
        except RuntimeError as error:
            raise SettingError(f"TRUENO_CACHE_DIR is {given!r}: {error}") from None
    from platformdirs import user_cache_path

    return user_cache_path("trueno", appauthor=False)


def _secure(path: Path) -> str:
    """Create `path` for the user alone; the reason why it must not be used, else nothing."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            for part in (path, path.parent, path.parent.parent):  # who owns a folder can swap what is in it
                facts = part.stat()
                if facts.st_uid != os.getuid():
                    return f"{part} belongs to another user"
                if facts.st_mode & 0o022:
                    return f"{part} can be written by others"
        with tempfile.NamedTemporaryFile(dir=path):
            pass
    except OSError as error:
        return f"{path} cannot be used ({error.strerror or error})"
    return ""


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


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, in our folder; a damaged file is a miss, a full disk is no error."""

    _impl_class = _Impl

    def load_overload(self, *args: Any) -> Any:
        try:
            return super().load_overload(*args)
        except Exception:  # truncated, foreign or unreadable: whatever pickle makes of it
            self.flush()
            return None

    def save_overload(self, *args: Any) -> None:
        with suppress(OSError):
            super().save_overload(*args)
