"""Printed kernels become modules: their text is written to the store, because a user may want to read what ran.

Python's own import would keep bytecode beside the text and trust it by its date, damaged or not.
"""

import os
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from threading import RLock
from types import ModuleType

import numba  # noqa: F401  # before its modules: see `elsewhere`
from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock
from trueno.backend import replacing

from trueno_simd.codecache import store

_lock = RLock()


def _after_fork() -> None:
    """A lock that a thread of the parent held would never be released here; Numba and llvmlite have one, too."""
    global _lock
    _lock = RLock()
    global_compiler_lock._lock = RLock()
    with suppress(AttributeError):  # a finalizer of another thread's may have held it
        ffi.lib._lock._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def module(name: str, text: str) -> ModuleType:
    """The module `name` with source `text`, written once and imported; compiling happens on import."""
    with _lock:
        if name in sys.modules:
            return sys.modules[name]
        path = store.folder() / f"{name}.py"
        source = text.encode()
        if not path.exists() or path.read_bytes() != source:
            with replacing(path) as beside:
                beside.write_bytes(source)
        spec = spec_from_file_location(name, path)
        assert spec is not None
        loaded = module_from_spec(spec)
        sys.modules[name] = loaded
        try:
            exec(compile(source, path, "exec"), loaded.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        return loaded
