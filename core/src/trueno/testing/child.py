"""Run by the kit in a child process: `python -m trueno.testing.child TASK NAME MANIFEST REPORT`.

A probe's effects on a process can be seen only in a new one.  The report is written to a file, so that stdout
holds only what the backend printed.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def _load(name: str, path: str) -> tuple[Any, Callable[[], Any]]:
    """The manifest and the factory, found but not yet imported."""
    from trueno.discovery import registry  # start-up

    if name not in registry.entries():
        registry.register(path)
    manifest = registry.entries()[name].manifest
    assert manifest is not None

    def factory() -> Any:
        module, _, attribute = manifest.factory.partition(":")
        return getattr(import_module(module), attribute)()

    return manifest, factory


def _surroundings() -> dict[str, Any]:
    """The state that a probe must not change."""
    import numpy as np

    return {
        "environment variable": dict(os.environ),
        "working directory": {"": os.getcwd()},
        "handler of Ctrl-C": {"": repr(signal.getsignal(signal.SIGINT))},
        "error state of NumPy": {k: str(v) for k, v in np.geterr().items()},
        "sys.stdout": {"": str(sys.stdout is sys.__stdout__)},
    }


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [
        f"{what} {key}: {before[what].get(key)!r} became {after[what].get(key)!r}".replace("  ", " ")
        for what in before
        for key in sorted({*before[what], *after[what]})
        if before[what].get(key) != after[what].get(key)
    ]


def probes(name: str, path: str) -> dict[str, Any]:
    """Both probes, the first twice; the factory twice; and the changes around them."""
    _, factory = _load(name, path)
    before = _surroundings()
    backend = factory()
    first = backend.probe(1)
    changes = _changes(before, _surroundings())
    again, other = backend.probe(1), factory().probe(1)
    second = backend.probe(2)
    return {
        "one": [first.ok, first.reason],
        "same": repr(first) == repr(again),
        "twice": repr(first) == repr(other),
        "two": [second.ok, second.reason],
        "changes": changes or _changes(before, _surroundings()),
    }


def fork(name: str, path: str) -> dict[str, Any]:
    """After probe(1) here, a forked child calls probe(2) and runs a kernel."""
    _, factory = _load(name, path)
    backend = factory()
    backend.probe(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        message = "it ended without a message"
        try:
            os.close(reader)
            verdict = backend.probe(2)
            message = "" if verdict.ok else f"probe(2) says no: {verdict.reason}"
            message = message or _runs(name, path)
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, message.encode()[:60_000])
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        message = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    died = f"the forked process was ended by signal {status & 127}" if status & 127 else ""
    return {"said": died or message}


def _runs(name: str, path: str) -> str:
    """One op through the public API; returns what went wrong, if anything."""
    import numpy as np

    import trueno  # start-up
    from trueno.ops import TABLE  # start-up
    from trueno.testing.checks import check_values, rejected  # start-up

    _load(name, path)
    for op in TABLE.values():
        for dtype in ("float32", "float64"):
            if rejected(op, name, dtype) is None:
                check_values(
                    op, name, np.dtype(dtype), long=False, chosen=lambda c: c.label in ("one row of 7", "normal")
                )
                return ""
    return f"{name} takes no op of trueno {trueno.__version__}"


def discovery(name: str, path: str) -> dict[str, Any]:
    """What listing the backends imports of this one; called a second time, so that its verdict is known."""
    import trueno  # start-up

    manifest, _ = _load(name, path)
    module = manifest.factory.partition(":")[0]
    package = module if module.startswith("trueno.") else module.partition(".")[0]  # the core has its own backend
    entry = trueno.backends()[name]
    listed = package in sys.modules
    available, reason = entry.available, entry.reason
    return {"listed": listed, "asked": package in sys.modules, "available": available, "reason": reason}


TASKS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "probes": probes,
    "fork": fork,
    "discovery": discovery,
}


def main(task: str, name: str, path: str, report: str) -> None:
    """Write the task's result as JSON to the file `report`."""
    try:
        result = TASKS[task](name, path)
    except BaseException as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    with open(report, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(*sys.argv[1:5])
