"""Settings: one table, one strict parser, and every value records its origin.

Read once, at first use; `reload()` reads the environment again.  A namespaced variable wins over the bare
one (`TRUENO_FORCE_CPU` over `FORCE_CPU`).  An unknown value is an error, an unknown `TRUENO_*` a warning.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trueno import parsers
from trueno.errors import SettingError, suggestion, warn
from trueno.parsers import Parser


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: its parser, its default, and the sentence that documents it."""

    parse: Parser
    default: Any
    help: str
    bare: str | None = None


EVENTS = ("decision", "compile", "run", "fallback", "quarantine", "transfer", "guard", "probe", "calibrate")
"""Kinds of event, which `trueno.events.stream` documents."""

SETTINGS: dict[str, Setting] = {
    "TRUENO_FORCE_CPU": Setting(
        parsers.boolean, False, "use only CPU backends; no GPU plugin is loaded or probed", "FORCE_CPU"
    ),
    "TRUENO_BACKEND": Setting(parsers.names, (), "the backends to use, best first; an error if none of them can run"),
    "TRUENO_AUTOLOAD": Setting(parsers.text, "1", "0: load no plugin; a list of names: load only these"),
    "TRUENO_BLOCK": Setting(parsers.names, (), "backends that are never loaded"),
    "TRUENO_MAX_ISA": Setting(
        parsers.choice("sse2", "avx", "avx2", "avx512", "neon"),
        None,
        "the highest CPU level that kernels may use; read once, at first use",
    ),
    "TRUENO_THREADS": Setting(
        parsers.count,
        None,
        "threads of CPU kernels for the whole process; a change applies from the next plan on; "
        "default: the CPUs this process may use",
    ),
    "TRUENO_FUSION": Setting(
        parsers.boolean, True, "off: each op of a batch is a kernel of its own, to compare with; a change is a new plan"
    ),
    "TRUENO_CACHE_DIR": Setting(
        parsers.text, None, "folder for compiled kernels and measurements; default: the user's cache folder"
    ),
    "TRUENO_DOOR": Setting(
        parsers.choice("auto", "off"),
        "auto",
        "off: calls run as Python functions, which profilers see, even where a backend has compiled their entry",
    ),
    "TRUENO_PROBE": Setting(
        parsers.choice("on", "off", "cached"),
        "on",
        "off: no child process probes a backend first; cached: use only verdicts already known",
    ),
    "TRUENO_PROBE_TIMEOUT": Setting(parsers.seconds, 20.0, "time limit of a child process that probes, in seconds"),
    "TRUENO_CALIBRATION": Setting(parsers.boolean, True, "off: choose by declared speeds, not by speeds measured here"),
    "TRUENO_FALLBACK": Setting(
        parsers.choice("error", "warn", "log", "silent"),
        "warn",
        "what happens when an automatically chosen kernel fails",
    ),
    "TRUENO_GUARD": Setting(
        parsers.guard, (), "a guard around every call: nan:stop,overflow:promote_f64; 1: stop at NaN and Inf"
    ),
    "TRUENO_TRACEBACK": Setting(
        parsers.choice("short", "full"),
        "short",
        "full: tracebacks of an op's errors show the frames inside trueno, too",
    ),
    "TRUENO_NOTICE": Setting(
        parsers.boolean, True, "off: no line on a terminal while a kernel compiles for more than a second"
    ),
    "TRUENO_VERBOSE": Setting(
        parsers.some(*EVENTS, modes=("json",)), (), "events written to stderr; json: as JSON, one per line"
    ),
}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value and its origin: `default`, `environment FORCE_CPU`, or `code`."""

    value: Any
    origin: str


class Settings:
    """The current values."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._values: dict[str, Value] = {}
        self._declared = dict(SETTINGS)
        self._said: set[str] = set()
        self._listeners: list[Callable[[], None]] = []
        self._set: dict[str, Any] = {}

    def reload(self) -> None:
        """Forget all values; the next use reads the environment again, and plans are discarded."""
        self._values = {}
        for listener in self._listeners:
            listener()

    def override(self, name: str, value: Any) -> None:
        """Set a setting from code, which wins over the environment; None removes the override.

        The value is parsed as the variable's text would be; a tuple stands for a list.  Plans are discarded.
        """
        self.origin(name)
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
            value = self._parse(name, name, text.strip())
        self._set.pop(name, None)
        if value is not None:
            self._set[name] = value
        self.reload()

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Call `listener` at every reload."""
        self._listeners.append(listener)

    def declare(self, name: str, setting: Setting) -> None:
        """Add a plugin's variable; SettingError if another has it, or if it is not `TRUENO_…`."""
        if not name.startswith("TRUENO_") or name in SETTINGS:
            raise SettingError(f"{name} cannot be declared: a plugin's variables begin with TRUENO_ and are its own")
        if name not in self._declared:
            self._declared[name] = setting
            self._values = {}

    def declared(self) -> dict[str, Setting]:
        """Every known setting: the core's, then those of plugins."""
        return dict(self._declared)

    def get(self, name: str) -> Any:
        """Value of a setting, by its full name."""
        return self.origin(name).value

    def origin(self, name: str) -> Value:
        """Value of a setting, and its origin; SettingError for a value that cannot be parsed."""
        values = self._values or self._read()
        if not isinstance(name, str):
            raise SettingError(
                f"a setting is named by a text such as 'TRUENO_THREADS', but this is {type(name).__name__}"
            )
        if name not in values:
            raise SettingError(f"there is no setting {name}{suggestion(name, self._declared)}")
        return values[name]

    def all(self) -> dict[str, Value]:
        """Every setting with its origin."""
        return {name: self.origin(name) for name in self._declared}

    def _read(self) -> dict[str, Value]:
        environ = os.environ if self._environ is None else self._environ
        values = {}
        for name, setting in self._declared.items():
            values[name] = Value(setting.default, "default")
            for variable in (name, setting.bare):
                text = environ.get(variable, "").strip() if variable else ""
                if text:
                    values[name] = Value(self._parse(name, variable, text), f"environment {variable}")
                    break
            if name in self._set:
                values[name] = Value(self._set[name], "code")
        self._values = values
        return values

    def _parse(self, name: str, variable: str | None, text: str) -> Any:
        try:
            return self._declared[name].parse(text)
        except ValueError as error:
            raise SettingError(f"{variable} is {text!r}, but must be {error}") from None

    def unknown(self) -> list[str]:
        """A sentence for each `TRUENO_*` variable that is not declared; call it once plugins have declared theirs."""
        environ = os.environ if self._environ is None else self._environ
        return [
            f"{variable} is set, but no such setting exists{suggestion(variable, self._declared)}"
            for variable in environ
            if variable.startswith("TRUENO_") and variable not in self._declared
        ]

    def warn_unknown(self) -> None:
        """Warn of them, once per process each."""
        for sentence in self.unknown():
            if sentence not in self._said:
                self._said.add(sentence)
                warn(sentence)


settings = Settings()
"""The settings of this process: `settings.get("TRUENO_FALLBACK")`; a plugin's own work the same way."""

get, origin, reload, values, override = (
    settings.get, settings.origin, settings.reload, settings.all, settings.override
)  # fmt: skip
"""The process's settings, as functions of this module: `trueno.settings.get("TRUENO_THREADS")`."""


def __dir__() -> list[str]:
    return [
        "EVENTS",
        "SETTINGS",
        "Setting",
        "Settings",
        "Value",
        "get",
        "origin",
        "override",
        "reload",
        "settings",
        "values",
    ]
