"""Probe a backend, in any process: create it, call its `probe`, and report what went wrong as a sentence.

Level 0 is the manifest's (`Manifest.unmet`).  Level 1 runs the factory and `probe(1)` in this process.
Level 2 runs both, `probe(2)` and the core's own check of one or two ops, in a child process: see `process`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from trueno.discovery.protocol import Backend, Device, Probe
from trueno.firstuse import importing

METHODS = (
    "probe", "supports", "kernel", "rates", "empty", "to_device", "to_host", "synchronize", "close"
)  # fmt: skip


class ProbeError(Exception):
    """What went wrong when a backend was probed; as the cause of BackendUnavailable, the traceback of the child."""


def build(name: str, factory: str | Callable[[], Any]) -> Backend:
    """Import a factory and call it; ProbeError for an object that is not a backend, and any error of the plugin."""
    with importing:
        if isinstance(factory, str):
            module, _, attribute = factory.partition(":")
            make: Any = getattr(import_module(module), attribute)
        else:
            make = factory
        if not callable(make):
            raise ProbeError(f"its factory {factory} is a {type(make).__name__}, which cannot be called")
        backend: Any = make()
    lacking = [method for method in METHODS if not callable(getattr(backend, method, None))]
    if lacking:
        raise ProbeError(f"its factory gave a {type(backend).__name__} without {', '.join(lacking)}")
    if getattr(backend, "name", None) != name:
        raise ProbeError(f"its object is called {getattr(backend, 'name', None)!r}, and its manifest {name!r}")
    return backend  # type: ignore[no-any-return]


def ask(backend: Backend, level: int) -> Probe:
    """The answer of `probe(level)`, with a reason if and only if it is not ok."""
    answer: Any = backend.probe(level)
    try:
        ok, reason = answer.ok, answer.reason
        devices = tuple(Device(str(d.name), str(d.isa), bool(d.software)) for d in answer.devices)
        absent = bool(getattr(answer, "absent", False))  # an answer of another class need not have it
    except (AttributeError, TypeError):
        raise ProbeError(f"its probe({level}) gave a {type(answer).__name__} where a Probe was expected") from None
    if ok:
        return Probe(True, devices=devices)
    sentence = (str(reason).strip() if reason else "") or f"its probe({level}) says no, without a reason"
    return Probe(False, sentence, devices, absent)


def describe(error: BaseException) -> str:
    """An error as part of a sentence."""
    try:
        text = str(error).strip()
    except Exception:  # its own __str__ raises
        text = ""
    if isinstance(error, ProbeError):
        return text
    return f"{type(error).__name__}: {text}" if text else f"{type(error).__name__}, without a message"


@contextmanager
def restore_environ(notes: list[str]) -> Iterator[None]:
    """Undo changes to `os.environ` made inside, and record them."""
    before = dict(os.environ)
    try:
        yield
    finally:
        after = dict(os.environ)
        edited = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
        for name in edited:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
        if edited:
            notes.append(f"it edits the environment, which was undone: {', '.join(edited)}")
