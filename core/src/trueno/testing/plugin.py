"""The pytest plugin: options of the kit, collection of its suites from the installed package, and the report.

A package's own conftest would come too late to add an option, hence `-p trueno.testing.plugin`.
"""

from pathlib import Path
from typing import Any

import pytest

from trueno.errors import TruenoError, suggestion
from trueno.escape import escaped
from trueno.testing.ledger import Ledger, unwritable

HERE = Path(__file__).parent
ORDER = ("declared", "behaviour", "kernels", "values", "rates", "threads")
"""The suites, quick and basic ones first."""
LEDGER = pytest.StashKey[Ledger]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trueno", "conformance of Trueno backends")
    group.addoption(
        "--trueno-backend",
        action="append",
        metavar="NAME",
        help="judge this backend (repeatable; default: all available)",
    )
    group.addoption("--trueno-ops", default="", metavar="A,B", help="only these ops (default: all)")
    group.addoption(
        "--trueno-dtype",
        default="",
        metavar="A,B",
        help="only these dtypes (default: float32,float64, and a sample in float16,bfloat16)",
    )
    group.addoption("--trueno-quick", action="store_true", help="fewer cases: a look, not a proof")
    group.addoption("--trueno-seed", type=int, default=0, metavar="N", help="seed of the operands")
    group.addoption("--trueno-json", metavar="PATH", help="write the report as JSON too")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEDGER] = Ledger()
    _check_words(config)
    from trueno.discovery import registry  # start-up

    named = config.getoption("--trueno-backend") or []
    if named:
        registry.forget(refresh=True)  # the author of a plugin has just changed it: cached verdicts do not count
    for name in named:
        try:
            registry.load(name)
        except TruenoError as error:
            raise pytest.UsageError(str(error)) from None
    if path := config.getoption("--trueno-json"):
        problem = unwritable(_where(config, path))  # minutes of judging must not end in a lost report
        if problem:
            raise pytest.UsageError(problem)


def _check_words(config: pytest.Config) -> None:
    from trueno.dispatch.half import NAMES  # start-up
    from trueno.ops import ALIASES, TABLE  # start-up
    from trueno.testing import halves  # start-up
    from trueno.testing.suites.rows import DTYPES, words  # start-up

    if "bfloat16" in words(config.getoption("--trueno-dtype")) and "bfloat16" not in halves.known():
        raise pytest.UsageError("bfloat16 is a type of ml_dtypes. Install: pip install ml_dtypes")
    for option, known in (("--trueno-ops", [*TABLE, *ALIASES]), ("--trueno-dtype", [*DTYPES, *NAMES])):
        for word in words(config.getoption(option)):
            if word not in known:
                what = "an op" if "ops" in option else "a dtype of the ops"
                raise pytest.UsageError(f"{word!r} is not {what}{suggestion(word, known)}")


def _where(config: pytest.Config, path: str) -> Path:
    return config.invocation_params.dir / path


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The tests are not named test_*.py, because they are part of the library."""
    if file_path == HERE / "conformance.py":
        return pytest.Module.from_parent(parent, path=file_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick and basic tests come first; tests that are not ours stay in place."""
    places = [_place(item) for item in items]
    ours = iter(sorted((i for i in items if _place(i) >= 0), key=_place))
    items[:] = [item if place < 0 else next(ours) for item, place in zip(items, places, strict=True)]


def _place(item: pytest.Item) -> int:
    package, _, suite = str(getattr(getattr(item, "obj", None), "__module__", "")).rpartition(".")
    return ORDER.index(suite) if package == "trueno.testing.suites" and suite in ORDER else -1


def pytest_itemcollected(item: pytest.Item) -> None:
    """Each result carries its subject."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    if "backend" in params and _place(item) >= 0:
        op = params.get("op")
        row = {"test": item.name, "backend": params["backend"], "op": op.name if op else ""}
        item.user_properties.append(("trueno.row", row | {"dtype": params["dtype"] if op else ""}))


class Listener:
    """Collects results where they arrive, which with several workers is only one process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ledger.add(report)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Listener(session.config.stash[LEDGER]), "trueno-listener")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """If no op got a verdict, nothing conforms: exit code 5, as for no tests."""
    ledger = session.config.stash[LEDGER]
    if session.exitstatus == 0 and not all(map(ledger.judged, ledger.backends)):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The support matrix, rates, remarks and the verdict; the JSON if requested."""
    ledger = config.stash[LEDGER]
    for backend in ledger.backends:
        terminalreporter.section(f"trueno conformance: {backend}")
        for line in ledger.lines(backend):
            terminalreporter.line(escaped(line))
    path = config.getoption("--trueno-json")
    if path:
        where = _where(config, path)
        ledger.write(where, seed=config.getoption("--trueno-seed"), quick=config.getoption("--trueno-quick"))
        terminalreporter.line(escaped(f"written to {where}"))
