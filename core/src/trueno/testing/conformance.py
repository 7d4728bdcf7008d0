"""The suite: every check × op × backend × dtype, as pytest tests.

Collected through `trueno.testing.plugin`, or imported by a test module of the repository.  A skip says
what the backend rejected and why; a backend that was named and cannot run is an error, not a skip.
"""

from typing import Any

import pytest

import trueno
from trueno.discovery import registry
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.testing.checks import CHECKS, check_values, rejected

DTYPES = ("float32", "float64")


def _option(config: pytest.Config, name: str, default: Any) -> Any:
    return config.getoption(name, default=default) or default


def backends_to_judge(config: pytest.Config) -> list[str]:
    """Those asked for, else all that are available."""
    named = _option(config, "--trueno-backend", [])
    for name in named:
        registry.load(name)
    return named or [name for name, entry in trueno.backends().items() if entry.available]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"op", "backend", "dtype"} <= set(metafunc.fixturenames):
        rows = [
            pytest.param(op, backend, dtype, id=f"{op.name}-{backend}-{dtype}")
            for backend in backends_to_judge(metafunc.config)
            for dtype in DTYPES
            for op in TABLE.values()
        ]
        metafunc.parametrize(("op", "backend", "dtype"), rows)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of all operands; `--trueno-seed` changes it."""
    return int(_option(request.config, "--trueno-seed", 0))


def _skip_rejected(op: Op, backend: str, dtype: str) -> None:
    reject = rejected(op, backend, dtype)
    if reject is not None:
        pytest.skip(f"{backend} rejects {op.name} in {dtype}: {reject.code} {reject.detail}")


def test_values(op: Op, backend: str, dtype: str, seed: int, request: pytest.FixtureRequest) -> None:
    """Every value inside its bound; operands unchanged; types, dtypes and shapes right."""
    _skip_rejected(op, backend, dtype)
    report = check_values(op, backend, dtype, seed)
    from trueno.testing.plugin import RESULTS

    request.config.stash.get(RESULTS, []).append(report)


def test_manners(op: Op, backend: str, dtype: str, seed: int) -> None:
    """out= in every manner, axis=, guards."""
    _skip_rejected(op, backend, dtype)
    for name, check in CHECKS.items():
        if name != "values":
            check(op, backend, dtype, seed)
