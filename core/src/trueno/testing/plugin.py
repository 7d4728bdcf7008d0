"""The pytest plugin: options of the kit, and collection of its suite from the installed package.

A package's own conftest would come too late to add an option, hence `-p trueno.testing.plugin`.
"""

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
RESULTS = pytest.StashKey[list[Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trueno", "conformance of Trueno backends")
    group.addoption(
        "--trueno-backend",
        action="append",
        metavar="NAME",
        help="judge this backend (repeatable; default: all available)",
    )
    group.addoption("--trueno-seed", type=int, default=0, metavar="N", help="seed of the operands")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = []


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The suite is not called test_*.py, because it is a part of the library."""
    if file_path == HERE / "conformance.py":
        return pytest.Module.from_parent(parent, path=file_path)
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How near to its bound each op came, and what share could not be judged."""
    reports = config.stash[RESULTS]
    if not reports:
        return
    terminalreporter.section("trueno conformance: worst error over bound, share not judged")
    for r in sorted(reports, key=lambda r: (r.backend, r.dtype, -r.worst)):
        terminalreporter.line(
            f"{r.backend:10} {r.dtype:8} {r.op:18} {r.worst:5.2f} {r.free:7.2%}  {r.cases:3} calls {r.size:9,} values"
        )
