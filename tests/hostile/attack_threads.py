"""Threads that compute what is known beforehand, while others change everything that can be changed."""

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import trueno
from trueno.discovery import registry

from .attack import Tally
from .known import known

BACKENDS = ("simd", "scalar", "cuda_emulated", "wgpu")
SHARE = 1.5
LIMIT = 300.0
SECONDS = 1.5
COMPUTING, CHANGING = 5, 4
ALWAYS = ("scalar", "reference")


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    """Some seconds of it; the numbers of one thread follow from the seed, and how the threads interleave does not."""
    for work in known(rng).values():  # what has to be compiled is compiled before the clock starts
        with trueno.use(backend, *ALWAYS):
            work()
    stop, errors, counts = threading.Event(), [], []

    def guarded(run: Callable[[np.random.Generator], int], own: np.random.Generator) -> None:
        try:
            counts.append(run(own))
        except BaseException as error:
            errors.append(error)
            stop.set()

    def computes(own: np.random.Generator) -> int:
        return _compute(own, backend, stop)

    def awaits(own: np.random.Generator) -> int:
        return asyncio.run(_await(own, backend, stop))

    def changes(own: np.random.Generator) -> int:
        while not stop.is_set():
            CHANGES[str(own.choice(list(CHANGES)))](own, backend)
            time.sleep(float(own.exponential(0.003)))
        return 0

    runs = [computes] * COMPUTING + [awaits] + [changes] * CHANGING
    threads = [threading.Thread(target=guarded, args=(r, g), daemon=True) for r, g in zip(runs, rng.spawn(len(runs)),
                                                                                           strict=True)]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error", trueno.TruenoWarning)
        for thread in threads:
            thread.start()
        stop.wait(SECONDS)
        stop.set()
        for thread in threads:
            thread.join(60)
    alive = [thread for thread in threads if thread.is_alive()]
    trueno.set_default()
    for name in OVERRIDES:
        trueno.settings.override(name, None)
    tally.calls, tally.states = sum(counts), len(threads)
    if errors:
        raise errors[0]
    assert not alive, f"{len(alive)} threads do not end"


def _context(own: np.random.Generator, backend: str) -> Any:
    """One of what a caller may compute under; every answer stays the same."""
    manager = int(own.integers(7))
    if manager == 0:
        return trueno.use(backend, *ALWAYS)
    if manager == 1:
        return trueno.use(str(own.choice(ALWAYS)))
    if manager == 2:
        return trueno.prefer(backend)
    if manager == 3:
        return trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    if manager == 4:
        return trueno.trace(limit=50)
    if manager == 5:
        return trueno.JidokaGuard()
    return ExitStack()


def _compute(own: np.random.Generator, backend: str, stop: threading.Event) -> int:
    count = 0
    while not stop.is_set():
        works = list(known(own, large=backend == "simd").values())
        with trueno.use(backend, *ALWAYS), _context(own, backend), _context(own, backend):
            for k in own.integers(0, len(works), 12):
                works[k]()
                count += 1
    return count


async def _await(own: np.random.Generator, backend: str, stop: threading.Event) -> int:
    count = 0
    x = own.integers(-9, 10, (3, 500)).astype("f4")
    while not stop.is_set():
        with trueno.use(backend, *ALWAYS):
            tasks = [asyncio.ensure_future(trueno.aio.add(x, x)) for _ in range(6)]
            tasks += [asyncio.ensure_future(trueno.aio.sum(x)) for _ in range(2)]
        await asyncio.sleep(0)
        for k in own.integers(0, len(tasks), 2):
            tasks[k].cancel()
        for k, task in enumerate(tasks):
            with suppress(asyncio.CancelledError):
                assert np.array_equal(await task, x + x if k < 6 else x.sum(-1))
                count += 1
    return count


OVERRIDES: dict[str, tuple[Any, ...]] = {
    "TRUENO_THREADS": (1, 2, 3, None),
    "TRUENO_FALLBACK": ("error", "warn", None),
    "TRUENO_GUARD": ("nan:stop", None),
    "TRUENO_CALIBRATION": ("off", None),
}


def _override(own: np.random.Generator, _: str) -> None:
    name = str(own.choice(list(OVERRIDES)))
    values = OVERRIDES[name]
    trueno.settings.override(name, values[int(own.integers(len(values)))])


def _count(own: np.random.Generator, backend: str) -> None:
    if backend == "simd":
        from trueno_simd.threads import pool

        pool.set_count(int(own.integers(1, 5)))


def _batches(own: np.random.Generator, backend: str) -> None:
    with trueno.use(backend, *ALWAYS):
        known(own)["batch"]()


class _Other:
    """The scalar backend under another name."""

    def __init__(self, name: str) -> None:
        self.name, self._to = name, registry.load("scalar")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


_others: dict[str, _Other] = {}


def _register(own: np.random.Generator) -> None:
    name = f"another{int(own.integers(4))}"
    facts = {"name": name, "api": [1, 1], "kind": "cpu", "tier": 1, "opt_in": True, "arrays": ["numpy:ndarray"]}
    trueno.register(facts | {"install": "nothing"}, factory=_others.setdefault(name, _Other(name)))
    with trueno.use(name):
        known(own)["add"]()


CHANGES: dict[str, Callable[[np.random.Generator, str], Any]] = {
    "override": _override,
    "reload": lambda own, b: trueno.settings.reload(),
    "reset_quarantine": lambda own, b: trueno.reset_quarantine(),
    "set_default": lambda own, b: trueno.set_default(*([str(own.choice([b, *ALWAYS]))] if own.random() < 0.7 else [])),
    "forget": lambda own, b: registry.forget(),
    "register": lambda own, b: _register(own),
    "explain": lambda own, b: trueno.explain("add", np.ones(3, "f4"), np.ones(3, "f4")),
    "stats": lambda own, b: trueno.stats(),
    "count": _count,
    "batches": _batches,
    "gc": lambda own, b: gc.collect(int(own.integers(3))),
}
