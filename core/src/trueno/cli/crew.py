"""A pool of child processes that compile kernels in parallel into the disk cache.

It does not use `multiprocessing`, which would run a user's script again.  If a child dies, one op is lost:
its failure is reported and another child continues with the rest.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from trueno.cli.plans import Keys
from trueno.errors import SettingError


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one op in one dtype."""

    op: str
    dtype: str
    done: int = 0
    failures: list[str] = field(default_factory=list)


Work = tuple[str, str, Keys]
"""An op, a dtype, and the keys to compile; an empty list means all."""


def processors() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(len(os.sched_getaffinity(0)), 1)
    return os.cpu_count() or 1


def compile_all(backend: str, work: Sequence[Work], jobs: int) -> Iterator[Outcome]:
    """Compile every item of `work` on a backend with `jobs` processes; yields outcomes as they arrive."""
    if not sys.executable:
        raise SettingError("no Python executable is known here, so no child processes can compile; use --jobs 1")
    todo: SimpleQueue[Work] = SimpleQueue()
    for item in work:
        todo.put(item)
    outcomes: SimpleQueue[Outcome] = SimpleQueue()
    children: list[subprocess.Popen[str]] = []
    threads = [
        Thread(target=_serve, args=(backend, todo, outcomes, children), daemon=True)
        for _ in range(min(jobs, len(work)))
    ]
    for thread in threads:
        thread.start()
    missing = len(work)
    try:
        while missing:
            outcome = outcomes.get()
            missing -= 1
            yield outcome
    finally:
        if missing:  # the caller has stopped, by Ctrl-C for example
            while not todo.empty():
                try:
                    todo.get_nowait()
                except Empty:
                    break
            for child in children:
                child.kill()
        for thread in threads:
            thread.join(5)


def _serve(
    backend: str, todo: SimpleQueue[Work], outcomes: SimpleQueue[Outcome], children: list[subprocess.Popen[str]]
) -> None:
    """Keep one child busy until no work is left; start another if one has died."""
    child = None
    while True:
        try:
            item = todo.get_nowait()
        except Empty:
            break
        try:
            if child is None:
                child = _start(backend)
                children.append(child)
            outcomes.put(Outcome(*item[:2], **_ask(child, item)))
        except (OSError, ValueError) as error:
            name, dtype, _ = item
            outcomes.put(Outcome(name, dtype, failures=[f"{name} ({dtype}): {_epitaph(child, error)}"]))
            _dismiss(child)
            child = None
    _dismiss(child)


def _dismiss(child: "subprocess.Popen[str] | None") -> None:
    """End a child, dead or alive, and close its pipes; an idle one has nothing to lose."""
    if child is not None:
        child.kill()
        with suppress(OSError):  # a pipe to a dead child may still hold a line
            child.__exit__(None, None, None)


def _start(backend: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, "-m", "trueno.cli.child", backend],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path},
    )


def _ask(child: "subprocess.Popen[str]", item: Work) -> dict[str, Any]:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(json.dumps(item) + "\n")
    child.stdin.flush()
    line = child.stdout.readline()
    if not line:
        raise OSError("the process ended without an answer")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _epitaph(child: "subprocess.Popen[str] | None", error: Exception) -> str:
    if child is None:
        return f"no process could be started ({error})"
    try:
        code = child.wait(5)
    except subprocess.TimeoutExpired:
        return str(error)
    return (
        f"the compiling process was ended by signal {-code}"
        if code < 0
        else f"the compiling process ended with code {code}"
    )
