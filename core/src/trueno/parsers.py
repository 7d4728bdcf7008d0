"""Conversion of the text of a variable to a value; errors say which values are allowed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trueno.errors import suggestion

TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off")
GUARD_CONDITIONS = ("nan", "inf", "overflow")
GUARD_ACTIONS = ("stop", "log", "promote_f64", "fall_back")


@dataclass(frozen=True, slots=True)
class Parser:
    """Parses a text; raises ValueError with `takes`, and with the message of `read`."""

    takes: str
    read: Callable[[str], Any]

    def __call__(self, text: str) -> Any:
        try:
            return self.read(text)
        except ValueError as error:
            raise ValueError(f"{self.takes}{error}") from None


def _bool(text: str) -> bool:
    if text.lower() not in (*TRUE, *FALSE):
        raise ValueError
    return text.lower() in TRUE


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip().lower() for word in text.split(",") if word.strip())


def _whole(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise ValueError
    return int(text)


def _count(text: str) -> int:
    if _whole(text) < 1:
        raise ValueError
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError from None
    if not 0 < value < 1e6:
        raise ValueError
    return value


def _tolerance(text: str) -> float:
    """The tolerance of a divergence; 0 requires equal bits."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError from None
    if not 0 <= value < math.inf:
        raise ValueError
    return value


boolean = Parser("one of 1 0 true false yes no on off", _bool)
text = Parser("any text", str)
names = Parser("names separated by commas", _names)
whole = Parser("a whole number", _whole)
count = Parser("an integer, 1 or more", _count)
seconds = Parser("a number of seconds above 0", _seconds)


def choice(*words: str) -> Parser:
    """One of `words`."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(suggestion(text, words))
        return text.lower()

    return Parser(f"one of {' '.join(words)}", read)


def some(*words: str, modes: tuple[str, ...] = ()) -> Parser:
    """Some of `words` and `modes`; `all`, or a true word, means all of `words`, a false word none."""

    def read(text: str) -> tuple[str, ...]:
        chosen: list[str] = []
        for word in _names(text):
            if word in ("all", *TRUE):
                chosen += words
            elif word in (*words, *modes):
                chosen.append(word)
            elif word not in FALSE:
                raise ValueError(suggestion(word, (*words, *modes, "all")))
        return tuple(dict.fromkeys(chosen))

    return Parser(f"all, or some of {' '.join((*words, *modes))}", read)


def _guard(text: str) -> tuple[tuple[str, str], ...]:
    rules: list[tuple[str, str]] = []
    for word in text.lower().split(","):
        condition, colon, action = (part.strip() for part in word.partition(":"))
        if word.strip() in FALSE:
            continue
        if not colon:
            action = "stop" if condition in TRUE else condition
            rules += [("nan", action), ("inf", action)]
        else:
            rules.append((condition, action))
    for condition, action in rules:
        if condition.startswith("divergence(") and condition.endswith(")"):
            _tolerance(condition[11:-1])
        elif condition not in GUARD_CONDITIONS:
            raise ValueError(suggestion(condition, GUARD_CONDITIONS))
        if action not in GUARD_ACTIONS:
            raise ValueError(suggestion(action, GUARD_ACTIONS))
    return tuple(rules)


guard = Parser(
    f"1, an action, or condition:action separated by commas; conditions {' '.join(GUARD_CONDITIONS)} "
    f"divergence(1e-5), actions {' '.join(GUARD_ACTIONS)}",
    _guard,
)

TYPES: dict[str, Parser] = {
    "bool": boolean,
    "int": whole,
    "count": count,
    "str": text,
    "names": names,
    "seconds": seconds,
}
"""The types that a plugin's manifest may name for a variable."""
