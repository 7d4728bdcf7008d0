"""Settings: one table, one strict parser, and every value knows where it came from.

Read once, at first need; `reload()` reads the environment again.  A namespaced variable wins over the bare
one (`TRUENO_FORCE_CPU` over `FORCE_CPU`).  An unknown value is an error, an unknown `TRUENO_*` a warning.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trueno.errors import SettingError, TruenoWarning, suggestion

TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off")


def _bool(text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise ValueError("one of 1 0 true false yes no on off")


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip().lower() for word in text.split(",") if word.strip())


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number, 1 or more")
    return int(text)


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() in words:
            return text.lower()
        raise ValueError(f"one of {' '.join(words)}{suggestion(text, words)}")

    return parse


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: how it is read, its default, and the sentence that documents it."""

    parse: Callable[[str], Any]
    default: Any
    help: str
    bare: str | None = None


SETTINGS: dict[str, Setting] = {
    "TRUENO_FORCE_CPU": Setting(_bool, False, "use only CPU backends; no GPU plugin is loaded or probed", "FORCE_CPU"),
    "TRUENO_BACKEND": Setting(_names, (), "the backends to use, best first; an error if none of them can run"),
    "TRUENO_AUTOLOAD": Setting(str, "1", "0: load no plugin; a list of names: load only these"),
    "TRUENO_BLOCK": Setting(_names, (), "backends that are never loaded"),
    "TRUENO_MAX_ISA": Setting(
        _choice("sse2", "avx", "avx2", "avx512", "neon"), None, "the highest CPU level that kernels may use"
    ),
    "TRUENO_THREADS": Setting(_count, None, "threads of CPU kernels; default: the CPUs this process may use"),
    "TRUENO_CACHE_DIR": Setting(str, None, "where compiled kernels are kept; default: the user's cache folder"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value and its origin: `default`, `environment FORCE_CPU`, or `code`."""

    value: Any
    origin: str


class Settings:
    """The values in force."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._values: dict[str, Value] = {}
        self._declared = dict(SETTINGS)

    def reload(self) -> None:
        """Forget what was read; the next use reads the environment again."""
        self._values.clear()

    def get(self, name: str) -> Any:
        """Value of a setting, by its full name."""
        return self.origin(name).value

    def origin(self, name: str) -> Value:
        """Value of a setting, and where it came from; SettingError for a value that cannot be read."""
        if not self._values:
            self._read()
        return self._values[name]

    def all(self) -> dict[str, Value]:
        """Every setting with its origin."""
        return {name: self.origin(name) for name in self._declared}

    def _read(self) -> None:
        environ = os.environ if self._environ is None else self._environ
        values = {}
        for name, setting in self._declared.items():
            values[name] = Value(setting.default, "default")
            for variable in (name, setting.bare):
                text = environ.get(variable, "").strip() if variable else ""
                if text:
                    try:
                        values[name] = Value(setting.parse(text), f"environment {variable}")
                    except ValueError as error:
                        raise SettingError(f"{variable} is {text!r}, but must be {error}") from None
                    break
        for variable in environ:
            if variable.startswith("TRUENO_") and variable not in self._declared:
                hint = suggestion(variable, self._declared)
                warnings.warn(f"{variable} is set, but no such setting exists{hint}", TruenoWarning, stacklevel=4)
        self._values = values


settings = Settings()

get, origin, reload, values = settings.get, settings.origin, settings.reload, settings.all
"""The process's settings, as functions of this module: `trueno.settings.get("TRUENO_THREADS")`."""
