"""Trueno: vector, matrix and quantized-tensor operations on the best hardware of the machine.

Every op of the table is a function here (`trueno.add`, `trueno.softmax`, `trueno.matmul`; `trueno ops`
lists them).  They are created at first use, so that importing this package loads no plugin.

`from trueno import *` brings the ops, `Vector`, `Matrix`, `use` and all other names here, except those that would hide
a name of Python or a package: write `trueno.` before `abs`, `max`, `min`, `pow`, `round`, `sum` and `numpy`.
"""

from typing import Any

from trueno.errors import (
    BackendUnavailable as BackendUnavailable,
)
from trueno.errors import (
    BatchError as BatchError,
)
from trueno.errors import (
    DeviceError as DeviceError,
)
from trueno.errors import (
    DeviceLost as DeviceLost,
)
from trueno.errors import (
    DtypeError as DtypeError,
)
from trueno.errors import (
    FileError as FileError,
)
from trueno.errors import (
    GuardError as GuardError,
)
from trueno.errors import (
    KernelError as KernelError,
)
from trueno.errors import (
    LZ4Error as LZ4Error,
)
from trueno.errors import (
    MissingFile as MissingFile,
)
from trueno.errors import (
    OutError as OutError,
)
from trueno.errors import (
    OutOfMemory as OutOfMemory,
)
from trueno.errors import (
    ParameterError as ParameterError,
)
from trueno.errors import (
    SettingError as SettingError,
)
from trueno.errors import (
    ShapeError as ShapeError,
)
from trueno.errors import (
    TruenoError as TruenoError,
)
from trueno.errors import (
    TruenoWarning as TruenoWarning,
)
from trueno.errors import (
    UnknownBackend as UnknownBackend,
)
from trueno.errors import (
    UnknownKeyword as UnknownKeyword,
)
from trueno.firstuse import importing
from trueno.version import __version__ as __version__

_ERRORS = (
    "BackendUnavailable",
    "BatchError",
    "DeviceError",
    "DeviceLost",
    "DtypeError",
    "FileError",
    "GuardError",
    "KernelError",
    "LZ4Error",
    "MissingFile",
    "OutError",
    "OutOfMemory",
    "ParameterError",
    "SettingError",
    "ShapeError",
    "TruenoError",
    "TruenoWarning",
    "UnknownBackend",
    "UnknownKeyword",
)
_HOMES = {
    "Batch": "trueno.batch",
    "Vector": "trueno.arrays",
    "Matrix": "trueno.arrays",
    "QuantizedMatrix": "trueno.quant",
    "KVCache": "trueno.caches",
    "Pages": "trueno.caches",
    "quantize": "trueno.quant",
    "requantize": "trueno.quant",
    "use": "trueno.dispatch.asking",
    "prefer": "trueno.dispatch.asking",
    "set_default": "trueno.dispatch.asking",
    "explain": "trueno.explaining",
    "Decision": "trueno.select.decision",
    "trace": "trueno.events.tracing",
    "stats": "trueno.events.stream",
    "reset_quarantine": "trueno.dispatch.asking",
    "forgive": "trueno.dispatch.asking",
    "register": "trueno.discovery.registry",
    "to": "trueno.dispatch.transfer",
    "numpy": "trueno.dispatch.transfer",
    "split": "trueno.pieces",
    "repeat": "trueno.pieces",
    "device": "trueno.context",
    "sync_available": "trueno.context",
    "Action": "trueno.guards.rules",
    "Condition": "trueno.guards.rules",
    "JidokaAction": "trueno.guards.guard",
    "JidokaCondition": "trueno.guards.guard",
    "JidokaGuard": "trueno.guards.guard",
    "backends": "trueno.select.available",
    "show_versions": "trueno.versions",
    "select_best_available_backend": "trueno.select.available",
}
_MODULES = ("aio", "gguf", "hooks", "lz4", "quant", "settings", "testing", "web")
_HIDING = frozenset(("abs", "max", "min", "pow", "round", "sum", "numpy"))
"""Names that a star import leaves out, because they would hide Python's functions, or NumPy."""


def __getattr__(name: str) -> Any:
    if name == "__all__":  # for a star import, and for help
        return sorted(set(_names()) - _HIDING)
    known = name in _HOMES or name in _MODULES
    if not known and (
        name.startswith("_") or _is_module(name)
    ):  # `from trueno import plan` looks here before it imports
        raise AttributeError(name)
    with importing:
        value = globals()[name] = _found(name)
    return value


def _found(name: str) -> Any:
    from importlib import import_module

    from trueno.floatenv import ieee  # start-up

    with ieee():  # Python folds constants when it compiles a module, under the rounding mode of that moment
        return _first(name, import_module)


def _first(name: str, import_module: Any) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"trueno.{name}")
    else:
        from trueno.dispatch.function import function  # start-up

        try:
            value = function(name)
        except KeyError:
            from trueno.hints import lacking  # start-up

            raise AttributeError(lacking("trueno has no op", name, [*_names(), *_MODULES])) from None
    return value


def _is_module(name: str) -> bool:
    with importing:
        from importlib.util import find_spec

        return find_spec(f"trueno.{name}") is not None


def _names() -> list[str]:
    """Every public name but the modules."""
    from trueno.ops import ALIASES, TABLE  # start-up

    return [*_ERRORS, *_HOMES, *TABLE, *ALIASES]


def __dir__() -> list[str]:
    dunders = [name for name in globals() if name.startswith("__")]
    return sorted({*dunders, "__all__", *_names(), *_MODULES})
