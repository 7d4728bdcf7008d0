"""A release is named everywhere: versions, requirements, a section of the changelog, a README per distribution."""

import re
import tomllib
from pathlib import Path

import pytest
import trueno

ROOT = Path(__file__).parents[2]
PROJECTS = {path.parent.name: tomllib.loads(path.read_text("utf-8"))["project"]
            for path in [ROOT / "core/pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]}  # fmt: skip
VERSION = PROJECTS["core"]["version"]
ASKING = ["examples/plugin_torch/pyproject.toml", "tests/chaos/pyproject.toml", "tests/chaos/twin/pyproject.toml",
          "tests/fake_device/pyproject.toml", "core/src/trueno/cli/scaffold/pyproject.toml.template",
          "docs/how-to/write-a-backend.md"]  # fmt: skip
"""Files beside the distributions that require a version of `trueno`."""


def test_the_module_has_the_version_of_the_distributions():
    assert {project["version"] for project in PROJECTS.values()} == {trueno.__version__}


def test_the_changelog_has_a_dated_section():
    sections = re.findall(r"^## \[(.*?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert sections[0] == ("Unreleased", "")
    assert sections[1][0] == VERSION and sections[1][1]


@pytest.mark.parametrize("path", ASKING)
def test_others_require_this_minor_version(path):
    major, minor, _ = VERSION.split(".")
    required = re.findall(r"trueno(?:-\w+)?(>=[\d.]+,<[\d.]+)", (ROOT / path).read_text("utf-8"))
    assert required
    assert set(required) == {f">={major}.{minor},<{major}.{int(minor) + 1}"}


@pytest.mark.parametrize("folder", PROJECTS)
def test_an_index_can_show_the_distribution(folder):
    project = PROJECTS[folder]
    where = ROOT / ("core" if folder == "core" else f"plugins/{folder}")
    readme = (where / project["readme"]).read_text("utf-8")
    assert readme.startswith("# ") and f"# {project['name']}".lower() in readme.lower()
    assert "Licence: MIT" in readme
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(project["classifiers"]) <= known
    assert (
        "Programming Language :: Python :: " + project["requires-python"].removeprefix(">=") in project["classifiers"]
    )
    assert project["keywords"]
