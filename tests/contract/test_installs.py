"""Plugins of third parties, really built and installed: each build backend, as wheel and editable.

All go into one environment, which sees the packages of the running one and has its interpreter.  Their packages
raise when they are imported.
"""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SETUPTOOLS = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["{package}"]
package-dir = {where}

[tool.setuptools.package-data]
"*" = ["*.toml"]
"""
FLAT = SETUPTOOLS.replace("{where}", "{{}}")
SRC = SETUPTOOLS.replace("{where}", '{{"" = "src"}}')
HATCHLING = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["src/{package}"]
"""
PROJECT = """
[project]
name = "{distribution}"
version = "{version}"

[project.entry-points."trueno.backends"]
{name} = "{package}:backend.toml"
"""
MANIFEST = 'name = "{name}"\napi = [1, 1]\nkind = "cpu"\ntier = 1\nfactory = "{package}.backend:Backend"\n'

VARIANTS = {  # an editable install of setuptools is a line in a .pth file where there is `src`, else a finder
    "setuptools_wheel": (SRC, False),
    "setuptools_editable": (SRC, True),
    "setuptools_finder": (FLAT, True),
    "hatchling_wheel": (HATCHLING, False),
    "hatchling_editable": (HATCHLING, True),
}


def write(folder, name, build, distribution="", version="1.0"):
    """The sources of a plugin; its backend is called `name`."""
    package = folder.name
    source = folder / package if build is FLAT else folder / "src" / package
    source.mkdir(parents=True)
    words = {"name": name, "package": package, "version": version}
    words["distribution"] = distribution or f"trueno-{name.replace('_', '-')}"
    (folder / "pyproject.toml").write_text((build + PROJECT).format(**words), "utf-8")
    (source / "__init__.py").write_text("raise SystemExit('the package was imported')\n", "utf-8")
    (source / "backend.toml").write_text(MANIFEST.format(**words), "utf-8")
    return source


class Environment:
    """A virtual environment with its own cache of Trueno."""

    def __init__(self, folder):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
        bin = "Scripts" if os.name == "nt" else "bin"  # noqa: A001
        self.python = folder / bin / Path(sys.executable).name
        self.packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
        self.cache = folder / "cache"
        self.builders = folder / "builders"
        seen = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
        lines = [f"import site; site.addsitedir({path!r})" for path in seen]  # with the .pth files in there
        (self.packages / "running.pth").write_text("\n".join([*lines, str(self.builders)]), "utf-8")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("TRUENO_", "PYTHON"))}
        self.environment = environment | {"TRUENO_CACHE_DIR": str(self.cache)}

    def pip(self, *arguments, check=True):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    def install(self, *what):
        self.pip("--python", str(self.python), "install", "--quiet", "--no-index", "--no-deps",
                 "--no-build-isolation", "--force-reinstall", *what)  # fmt: skip

    def uninstall(self, *names):
        self.pip("--python", str(self.python), "uninstall", "--quiet", "--yes", *names)

    def run(self, code):
        """What `code` prints as JSON, in a child process."""
        command = [str(self.python), "-P", "-W", "error", "-c", code]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def points(self):
        """The test's entry points by distribution, as a new process sees them; and whether it scanned."""
        found, scanned = self.run(POINTS)
        return {point["distribution"]: point for point in found}, scanned

    def age(self):
        """As if all had been installed long ago, so that an index of it is kept."""
        then = time.time() - 1000
        for path in (self.packages, *self.packages.rglob("backend.toml")):
            os.utime(path, (then, then))


POINTS = """
import json, sys
from dataclasses import asdict
before = set(sys.modules)
from trueno.discovery import index
found = [asdict(point) for point in index.points() if point.value.startswith("installed_")]
for point in found:
    package = point["value"].partition(":")[0]
    assert package not in sys.modules, package
    try:
        __import__(package)
    except SystemExit as error:
        assert str(error) == "the package was imported"
    else:
        raise AssertionError(f"{package} does not raise")
print(json.dumps([found, "importlib.metadata" in set(sys.modules) - before]))
"""

REASONS = """
import json
from trueno.discovery import registry
print(json.dumps({entry.name: [entry.code, entry.reason] for entry in registry.entries().values()}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    try:  # asked so, because looking for its module makes setuptools warn of distutils
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pip is not installed here, and installs what is tested")
    return Environment(tmp_path_factory.mktemp("installs") / "environment")


@pytest.fixture(scope="module")
def sources(environment, tmp_path_factory):
    """The folders of the sources by variant; each is installed."""
    missing = {name for name in ("hatchling", "editables") if importlib.util.find_spec(name) is None}
    hatchling = not missing or environment.pip(
        "install", "--quiet", "--target", str(environment.builders), "hatchling", "editables", check=False
    ).returncode == 0  # fmt: skip
    found, what = {}, []
    for variant, (build, editable) in VARIANTS.items():
        if build is HATCHLING and not hatchling:
            continue
        folder = tmp_path_factory.mktemp("sources") / f"installed_{variant}"
        found[variant] = write(folder, variant, build)
        what += ["--editable", str(folder)] if editable else [str(folder)]
    environment.install(*what)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_manifest_is_found_and_nothing_imported(environment, sources, variant):
    if variant not in sources:
        pytest.skip("hatchling is not installed, and the package index did not give it")
    points, _ = environment.points()
    point = points[f"trueno-{variant.replace('_', '-')}"]
    assert (point["name"], point["version"], point["problem"]) == (variant, "1.0", "")
    assert point["manifest"] == tomllib.loads((sources[variant] / "backend.toml").read_text("utf-8"))
    path = Path(point["path"])
    editable = VARIANTS[variant][1]
    assert path.samefile(sources[variant] / "backend.toml") == editable
    assert path.is_relative_to(environment.packages) != editable


def test_the_index_answers_the_next_process_and_sees_every_change(environment, sources, tmp_path):
    environment.age()
    first, _ = environment.points()
    again, scanned = environment.points()
    assert again == first
    print("scanned again: an entry of sys.path has just changed" if scanned else "the index answered")

    # A manifest that is edited.
    edited = sources["setuptools_editable"] / "backend.toml"
    edited.write_text(edited.read_text("utf-8").replace("tier = 1", "tier = 2"), "utf-8")
    assert tiers(environment)["setuptools_editable"] == 2
    edited.write_text(edited.read_text("utf-8").replace("tier = 2", "tier = 1"), "utf-8")
    assert tiers(environment)["setuptools_editable"] == 1

    # One that is installed, upgraded and removed, each between two processes.
    folder = tmp_path / "installed_later"
    write(folder, "later", SRC)
    environment.install(str(folder))
    assert environment.points()[0]["trueno-later"]["version"] == "1.0"
    environment.age()
    assert environment.points()[0]["trueno-later"]["version"] == "1.0"
    shutil.rmtree(folder)
    write(folder, "later", SRC, version="1.1")
    environment.install(str(folder))
    assert environment.points()[0]["trueno-later"]["version"] == "1.1"
    environment.age()
    assert "trueno-later" in environment.points()[0]
    environment.uninstall("trueno-later")
    assert environment.points()[0].keys() == first.keys()


def tiers(environment):
    return {point["name"]: point["manifest"]["tier"] for point in environment.points()[0].values()}


def test_two_distributions_that_claim_one_name_are_both_reported(environment, sources, tmp_path):
    folders = [tmp_path / "installed_one", tmp_path / "installed_other"]
    write(folders[0], "twice", SRC, "trueno-twice")
    write(folders[1], "twice", SRC, "other-twice", "2.0")
    environment.install(*map(str, folders))
    points, _ = environment.points()
    assert [points[name]["name"] for name in ("trueno-twice", "other-twice")] == ["twice", "twice"]
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"  # one says so, too
    code, reason = environment.run(quiet + REASONS)["twice"]
    assert code == "duplicate" and "trueno-twice" in reason and "other-twice" in reason
    environment.uninstall("other-twice")
    assert environment.run(REASONS)["twice"][0] != "duplicate"
    environment.uninstall("trueno-twice")
    assert "twice" not in environment.run(REASONS)


def test_a_stale_folder_of_metadata_brings_nothing_twice(environment, sources):
    """An empty one, as an interrupted uninstallation leaves it, and one of an older version."""
    info = next(environment.packages.glob("trueno_setuptools_wheel-1.0.dist-info"))
    (environment.packages / "trueno_setuptools_editable-0.1.dist-info").mkdir()
    old = environment.packages / "trueno_setuptools_wheel-0.9.dist-info"
    shutil.copytree(info, old)
    (old / "METADATA").write_text(
        (info / "METADATA").read_text("utf-8").replace("Version: 1.0", "Version: 0.9"), "utf-8"
    )
    try:
        points = environment.run(POINTS)[0]
        assert sorted(point["name"] for point in points) == sorted(sources)
        assert {point["version"] for point in points} == {"1.0"}
    finally:
        shutil.rmtree(old)
        (environment.packages / "trueno_setuptools_editable-0.1.dist-info").rmdir()
