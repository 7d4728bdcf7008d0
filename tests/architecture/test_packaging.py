"""Facts that stand in several packaging files agree, and name what exists."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
FOLDERS = {"trueno": "core"} | {f"trueno-{name}": f"plugins/{name}" for name in PLUGINS}


def read(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))


PROJECTS = {name: read(folder)["project"] for name, folder in FOLDERS.items()}
EXTRAS = PROJECTS["trueno"]["optional-dependencies"]


@pytest.mark.parametrize("fact", ["version", "license", "license-files", "requires-python"])
def test_every_distribution_states_the_same(fact):
    assert len({str(project[fact]) for project in PROJECTS.values()}) == 1


@pytest.mark.parametrize("name", FOLDERS)
def test_distribution(name):
    assert PROJECTS[name]["name"] == name
    assert (ROOT / FOLDERS[name] / "LICENSE").read_text("utf-8").startswith("MIT License")
    assert read(FOLDERS[name])["build-system"]["build-backend"] == "setuptools.build_meta"


def test_core_needs_no_plugin():
    names = {re.split(r"[<>=]", requirement)[0] for requirement in PROJECTS["trueno"]["dependencies"]}
    assert names == {"numpy", "pluggy", "platformdirs"}


def test_every_file_of_the_core_is_packaged():
    """By its name: what is no module is matched by a pattern of the package that it lies in."""
    patterns, source = read("core")["tool"]["setuptools"]["package-data"], ROOT / "core/src"
    files = {
        p for p in source.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc") and "egg-info" not in str(p)
    }
    packages = {p.parent for p in source.rglob("__init__.py")}
    packaged = set()
    for package in packages:
        names = patterns["*"] + patterns.get(".".join(package.relative_to(source).parts), [])
        packaged |= {p for name in names for p in package.glob(name)}
    assert any(p.suffix == ".template" for p in files) and files == packaged & files


def test_minors_are_in_lockstep():
    major, minor, _ = PROJECTS["trueno"]["version"].split(".")
    allowed = f">={major}.{minor},<{major}.{int(minor) + 1}"
    ours = [
        requirement
        for project in PROJECTS.values()
        for group in [project["dependencies"], *project.get("optional-dependencies", {}).values()]
        for requirement in group
        if requirement.startswith("trueno")
    ]
    assert len(ours) > len(PLUGINS)
    for requirement in ours:
        assert requirement in {f"{name}{allowed}" for name in FOLDERS}  # so no brackets either: docs/adr/0001


def test_extras():
    assert set(EXTRAS) == {
        "scalar",
        "simd",
        "wgpu",
        "cuda",
        "cuda12",
        "cuda13",
        "dask",
        "cli",
        "gguf",
        "lz4",
        "plot",
        "all",
    }
    assert EXTRAS["cuda"] == EXTRAS["cuda13"]
    assert EXTRAS["all"] == [r for extra in ("scalar", "simd", "wgpu", "cli", "gguf", "lz4") for r in EXTRAS[extra]]
    assert EXTRAS["dask"] == ["trueno-dask>=0.2,<0.3", *PROJECTS["trueno-dask"]["optional-dependencies"]["distributed"]]
    for extra in ("scalar", "simd", "wgpu"):
        assert [r.startswith(f"trueno-{extra}>") for r in EXTRAS[extra]] == [True]


def test_cuda_extras_are_the_plugin_and_its_own_extra():
    own = PROJECTS["trueno-cuda"]["optional-dependencies"]
    core, types = PROJECTS["trueno-cuda"]["dependencies"]
    assert core == EXTRAS["cuda13"][0].replace("trueno-cuda", "trueno")
    assert types.startswith("ml_dtypes")  # CuPy takes bfloat16 only then
    assert EXTRAS["cuda12"][1:] == own["cu12"]
    assert EXTRAS["cuda13"][1:] == own["cu13"]


def test_only_dask_is_no_backend():
    assert {p for p in PLUGINS if "trueno.backends" not in PROJECTS[f"trueno-{p}"]["entry-points"]} == {"dask"}
    ((module, value),) = PROJECTS["trueno-dask"]["entry-points"]["trueno.arrays"].items()
    assert (module, value) == ("dask", "trueno_dask.library")


@pytest.mark.parametrize("plugin", [p for p in PLUGINS if p != "dask"])
def test_entry_points_name_manifests(plugin):
    points = PROJECTS[f"trueno-{plugin}"]["entry-points"]["trueno.backends"]
    assert plugin in points
    for name, value in points.items():
        package, _, file = value.partition(":")
        manifest = tomllib.loads((ROOT / "plugins" / plugin / "src" / package / file).read_text("utf-8"))
        assert manifest["name"] == name
        assert ("factory" in manifest) != ("unavailable" in manifest)
        if module := manifest.get("factory", "").partition(":")[0]:
            path = ROOT / "plugins" / plugin / "src" / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_tiers_keep_their_order():
    tiers = [
        tomllib.loads((ROOT / f"plugins/{name}/src/trueno_{name}/backend.toml").read_text("utf-8"))["tier"]
        for name in ("scalar", "simd", "wgpu")
    ]
    assert all(low < high for low, high in pairwise(tiers))


def test_local_txt_has_a_line_for_each_distribution():
    lines = (ROOT / "local.txt").read_text("utf-8").splitlines()
    assert {line for line in lines if not line.startswith("#")} == {
        f"{name} @ file://${{PWD}}/{folder}" for name, folder in FOLDERS.items()
    }


def test_workspace_knows_every_member():
    tools = read(".")["tool"]
    assert set(tools["uv"]["sources"]) == set(FOLDERS)
    assert set(tools["importlinter"]["root_packages"]) == {name.replace("-", "_") for name in FOLDERS}
    parts = re.search(r"^PARTS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(parts[1].split()) == set(FOLDERS.values())


def test_readme_lists_the_ops_of_the_table():
    import runpy

    reference = runpy.run_path(str(ROOT / "docs" / "reference.py"))
    text = (ROOT / "README.md").read_text("utf-8")
    assert reference["fill"](text) == text, "stale: run `make generate`"
    assert (ROOT / "core" / "README.md").read_text("utf-8") == text, (
        "core/README.md is not README.md: run `make generate`"
    )
