"""Plugins that come and go: installed into a folder made by hand, for child processes or for this one.

Nothing here changes the environment that runs the tests: an installed distribution is a `*.dist-info` beside
copies of its packages, and a process sees it because the folder is on its path.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
PROJECTS = {
    "chaos": TESTS / "chaos",
    "twin": TESTS / "chaos" / "twin",
    "fake": TESTS / "fake_device",
}
OUTER = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
PRELUDE = """
import json, os, sys, warnings
import numpy as np
import trueno
def say(**facts):
    print("\\n@" + json.dumps(facts, default=str))
"""


def install(site: Path, project: str, only: Iterable[str] | None = None, packages: Path | None = None) -> None:
    """Put a distribution into the folder `site`, with `only` these of its entry points; its code into `packages`."""
    root = PROJECTS[project]
    with (root / "pyproject.toml").open("rb") as file:
        facts = tomllib.load(file)["project"]
    points = facts["entry-points"]["trueno.backends"]
    if only is not None:
        points = {name: points[name] for name in only}
    for package in (root / "src").iterdir():
        if package.is_dir() and package.suffix == "" and not (packages and (packages / package.name).exists()):
            shutil.copytree(
                package,
                (packages or site) / package.name,
                ignore=shutil.ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )
    info = site / f"{facts['name'].replace('-', '_')}-{facts['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {facts['name']}\nVersion: {facts['version']}\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[trueno.backends]\n{lines}")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/entry_points.txt,,\n{info.name}/RECORD,,\n")


def clean_environment(cache: Path, **extra: str) -> dict[str, str]:
    """This process's environment without settings of Trueno; simd is left out, which would compile."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRUENO_", "PYTHONPATH", "CHAOS_"))}
    kept.pop("FORCE_CPU", None)
    return kept | {"TRUENO_CACHE_DIR": str(cache), "TRUENO_BLOCK": "simd", "PYTHONIOENCODING": "utf-8"} | extra


@dataclass
class Done:
    """A child process that ended: what it `say`s is in `said`."""

    code: int
    out: str
    err: str
    said: Any = None

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out[-3000:]}\n--- stderr\n{self.err[-3000:]}"


@dataclass
class Host:
    """Runs programs that see the plugins of one folder."""

    site: Path
    environment: dict[str, str]

    def start(self, *arguments: str, **extra: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment | {"PYTHONPATH": os.pathsep.join([str(self.site), *OUTER])} | extra,
            cwd=self.site,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def finish(self, child: "subprocess.Popen[str]", timeout: float = 150) -> Done:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            return Done(-999, out, err)
        said = [json.loads(line[1:]) for line in out.splitlines() if line.startswith("@{")]
        return Done(child.returncode, out, err, said[-1] if said else None)

    def begin(self, code: str, **extra: str) -> "subprocess.Popen[str]":
        """Start a program after PRELUDE; what it says last with `say(...)` is in `finish(...).said`."""
        return self.start("-c", PRELUDE + code, **extra)

    def script(self, code: str, **extra: str) -> Done:
        """The same from a file, which child processes of `multiprocessing` can import again."""
        path = self.site / "program.py"
        path.write_text(PRELUDE + code)
        return self.finish(self.start(str(path), **extra))

    def says(self, code: str, **extra: str) -> Any:
        """What a program says that must succeed."""
        done = self.finish(self.begin(code, **extra))
        assert done.code == 0 and done.said is not None, str(done)
        return done.said

    def doctor(self, *arguments: str, **extra: str) -> tuple[int, dict[str, Any]]:
        """Exit code and report of `trueno doctor --json`."""
        pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
        done = self.finish(self.start("-m", "trueno.cli", "doctor", "--json", *arguments, **extra))
        try:
            return done.code, json.loads(done.out)
        except ValueError:
            raise AssertionError(f"doctor gave no JSON: {done}") from None


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for all these tests, so that sound backends are tried once."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Callable[..., Host]:
    """`host(chaos=["prints"], fake=None)`: a host with these distributions; None: all of their backends."""

    def make(own_cache: Path | None = None, **projects: Iterable[str] | None) -> Host:
        site = tmp_path_factory.mktemp("site")
        for project, only in projects.items():
            install(site, project, only)
        return Host(site, clean_environment(own_cache or cache))

    return make


def fresh() -> None:
    """Trueno as it is in a new process, as far as this one can be one."""
    import trueno
    from trueno.discovery import registry
    from trueno.settings import settings

    settings.reload()
    registry.forget()
    trueno.reset_quarantine()
    from trueno.dispatch import fallback

    fallback._said.clear()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of every project, for this process.

    It outlives the tests that install it: a process imports a plugin and calls its factory once.
    """
    folder = tmp_path_factory.mktemp("packages")
    for project in PROJECTS:
        install(folder, project)
    for info in folder.glob("*.dist-info"):
        shutil.rmtree(info)
    return folder


@pytest.fixture
def plugins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, packages: Path
) -> Iterator[Callable[..., ModuleType | SimpleNamespace]]:
    """`plugins(chaos=["raises_mid_run"], TRUENO_PROBE="off")`: install into this very process, until the test ends."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), str(packages), *sys.path])
    for name in [n for n in os.environ if n.startswith("TRUENO_") or n == "FORCE_CPU"]:
        monkeypatch.delenv(name)
    for name, value in (("TRUENO_CACHE_DIR", str(cache)), ("TRUENO_BLOCK", "simd,cuda")):
        monkeypatch.setenv(name, value)

    def make(**given: Any) -> None:
        for name, value in given.items():
            if name in PROJECTS:
                install(site, name, value, packages)
            else:
                monkeypatch.setenv(name, value)
        fresh()

    yield make
    monkeypatch.undo()
    if "trueno_chaos.running" in sys.modules:
        sys.modules["trueno_chaos.running"].control.arm(0)
    fresh()


@pytest.fixture
def fake(plugins: Callable[..., None]) -> Iterator[SimpleNamespace]:
    """The fake device, installed in this process: `control`, `LEDGER`, `Array`; `renew(**settings)` starts it again."""
    plugins(fake=None)
    import trueno_fake
    from trueno.discovery import registry

    def renew(**given: str) -> None:
        plugins(**given)
        registry.load("fake")
        trueno_fake.control.reset()
        trueno_fake.LEDGER.serve_another()

    renew()
    yield SimpleNamespace(control=trueno_fake.control, LEDGER=trueno_fake.LEDGER, Array=trueno_fake.Array, renew=renew)
    trueno_fake.control.reset()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Any:
    """Random numbers, whose seed pytest shows when a test fails."""
    import numpy as np

    seed = sum(map(ord, request.node.name))
    print(f"seed {seed}")
    return np.random.default_rng(seed)
