"""Printed kernels live in files, because Numba caches by file, and a user can read what ran.

The file's name carries a hash of everything the machine code depends on and Numba does not watch: the
program, the dtype, how it is scheduled, this plugin's own sources, and the versions of Numba, LLVM and NumPy.
(Numba's own index adds the CPU's name and features.)  A cache is code: the folder must be the user's own
and writable by nobody else, or it is not used.
"""

import os
import sys
import tempfile
import warnings
from functools import cache
from hashlib import blake2b
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType

from trueno.errors import TruenoWarning
from trueno.settings import settings

_lock = RLock()


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
        f"kernels are not kept on disk: {reason}; set TRUENO_CACHE_DIR to a folder of your own", TruenoWarning, stacklevel=3
    )
    return private


def _wanted() -> Path:
    if given := settings.get("TRUENO_CACHE_DIR"):
        return Path(given).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("trueno", appauthor=False)


def _secure(path: Path) -> str:
    """Create `path` for the user alone; the reason why it must not be used, else nothing."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            for part in (path, path.parent):
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


def module(name: str, text: str) -> ModuleType:
    """The module `name` with source `text`, written once and imported; compiling happens on import."""
    with _lock:
        if name in sys.modules:
            return sys.modules[name]
        path = folder() / f"{name}.py"
        if not path.exists() or path.read_text("utf-8") != text:
            beside = path.with_suffix(f".{os.getpid()}.tmp")
            beside.write_text(text, "utf-8")
            beside.replace(path)
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        made = module_from_spec(spec)
        sys.modules[name] = made
        try:
            spec.loader.exec_module(made)
        except BaseException:
            del sys.modules[name]
            raise
        return made
