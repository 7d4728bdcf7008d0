"""The parameters of the tests: backends × dtypes × ops, from the options or from the module that collects them."""

import os
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pytest

import trueno
from trueno.discovery import registry
from trueno.errors import BackendUnavailable, DeviceLost
from trueno.formats.lz4 import missing
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op
from trueno.testing import halves
from trueno.testing.declared import blocking_problems
from trueno.testing.subject import rejected, subject

DTYPES = ("float32", "float64")
_ran: dict[str, str] = {}
"""By backend, the test that began last in this process while the backend worked."""
_lost: dict[str, str] = {}
"""By backend, the sentence about its loss."""


def option(config: pytest.Config, name: str, default: Any = None) -> Any:
    """An option of the kit's plugin; the default where the plugin is not loaded."""
    return config.getoption(name, default=default) or default


def words(text: str) -> list[str]:
    """The names in `a,b,c`."""
    return [word.strip() for word in text.split(",") if word.strip()]


def backends_to_judge(config: pytest.Config, module: Any = None) -> list[str]:
    """Those requested, else the module's own `BACKEND`, else all available ones but those in its `APART`."""
    own = getattr(module, "BACKEND", None)
    named = option(config, "--trueno-backend", []) or ([own] if own else [])
    for name in named:
        registry.load(name)
    apart = getattr(module, "APART", ())
    return named or [name for name, entry in trueno.backends().items() if entry.available and name not in apart]


def chosen_ops(config: pytest.Config) -> tuple[str, ...]:
    """The ops that `--trueno-ops` names; none if all are meant."""
    return tuple(dict.fromkeys(ALIASES.get(name, name) for name in words(option(config, "--trueno-ops", ""))))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = set(metafunc.fixturenames)
    if "backend" not in names:
        return
    backends = backends_to_judge(metafunc.config, metafunc.module)
    asked = words(option(metafunc.config, "--trueno-dtype", ""))
    dtypes = asked or list(DTYPES)
    ops = [TABLE[name] for name in chosen_ops(metafunc.config)] or list(TABLE.values())
    sample = getattr(metafunc.module, "SAMPLE", None)  # of a module that judges a part: dtype → names of ops
    for name in asked or halves.known():
        halves.declare(name)
    if {"op", "dtype"} <= names:
        rows = [
            pytest.param(o, b, t, id=f"{o.name}-{b}-{t}")
            for b in backends
            for t in (dtypes if asked or sample is None else [*DTYPES, *halves.known()])
            for o in ops
            if sample is None or o.name in sample.get(t, ())
        ]
        if not asked and sample is None:
            kernels = metafunc.function.__name__ == "test_kernels"
            rows += _halves([b for b in backends if not kernels or halves.native(b)], ops)
        metafunc.parametrize(("op", "backend", "dtype"), rows)
    elif "dtype" in names:
        metafunc.parametrize(("backend", "dtype"), [(b, t) for b in backends for t in dtypes])
    else:
        metafunc.parametrize("backend", backends)


def _halves(backends: list[str], ops: list[Op]) -> list[Any]:
    """A few rows in 16-bit floats, used if no dtypes are requested."""
    rows = []
    for dtype in halves.known():
        chosen = [op for op in ops if op.name in halves.SAMPLE[dtype]]
        rows += [pytest.param(op, b, dtype, id=f"{op.name}-{b}-{dtype}") for b in backends for op in chosen]
    return rows


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of all operands; `--trueno-seed` changes it."""
    return int(option(request.config, "--trueno-seed", 0))


def quick(request: pytest.FixtureRequest) -> bool:
    """Whether `--trueno-quick`, or `QUICK` of the module that collects, asks for fewer cases."""
    return bool(option(request.config, "--trueno-quick", False) or getattr(request.module, "QUICK", False))


@pytest.fixture
def every_layout(request: pytest.FixtureRequest, backend: str) -> bool:
    """Whether every op is tried in every layout: yes, except for backends in the `SPARING` of the module that collects.

    For those, which compile a kernel per layout, the ops of `trueno.testing.layouts.THOROUGH` represent all.
    """
    return backend not in getattr(request.module, "SPARING", ())


def tell(request: pytest.FixtureRequest, key: str, value: Any) -> None:
    """Pass something to the report: it travels with the test's result, between processes too."""
    plain = value if isinstance(value, (str, int, float, dict)) else asdict(value)
    request.node.user_properties.append((f"trueno.{key}", plain))


@cache
def _blocking(backend: str) -> str:
    return next(iter(blocking_problems(backend)), "")


def skip_unsound(backend: str) -> None:
    """Skip tests that are meaningless while the backend's own declarations are invalid, or once it was lost."""
    _skip_lost(backend)
    problem = _blocking(backend)
    if problem:
        pytest.skip(f"not judged before this is fixed: {problem}")


def _skip_lost(backend: str) -> None:
    """Fail once, and then skip, where the backend has stopped working in this process: a device that was lost stays so.

    The failure names the test that began last before that.
    """
    if backend in _lost:
        pytest.skip(f"not judged: {_lost[backend]}")
    try:
        by = subject(backend)
        if by.foreign:  # a kernel that is called directly takes nothing out of use
            by.take(by.give(np.zeros(1, np.float32)))
    except (BackendUnavailable, DeviceLost) as error:
        last = _ran.get(backend, "the start of this process")
        _lost[backend] = f"{backend} was lost in {last} ({error})"
        remedy = "this process skips the tests of it that follow; run that test alone first, then the others"
        pytest.fail(f"{_lost[backend]}; {remedy}", pytrace=False)
    except Exception:  # the tests of its declarations report it
        return
    _ran[backend] = os.environ.get("PYTEST_CURRENT_TEST", "a test").rpartition("::")[2].partition(" (")[0]


def skip_rejected(op: Op, backend: str, dtype: str) -> None:
    """Skip an op that the backend does not take, saying why."""
    if op.family == "compression" and (problem := missing()):
        pytest.skip(f"{op.name} is not judged: {problem}")
    skip_unsound(backend)
    reject = rejected(op, backend, dtype)
    if reject is not None:
        pytest.skip(f"{backend} rejects {op.name} in {dtype}: {reject.code} {reject.detail}")


def none_of(problems: list[str]) -> None:
    """Fail with all problems, each once."""
    if problems:
        pytest.fail("\n".join(dict.fromkeys(problems)), pytrace=False)
