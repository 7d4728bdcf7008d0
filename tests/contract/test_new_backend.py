"""`trueno new-backend`: what it makes conforms as soon as it is installed, and what it refuses."""

import json

import pytest
from fresh_environment import FreshEnvironment

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from trueno.cli.app import app
from trueno.cli.new_backend import create, templates
from trueno.errors import ParameterError
from typer.testing import CliRunner


@pytest.mark.slow
@pytest.mark.parametrize("name", ["acme", "acme_two"])
def test_what_it_makes_conforms_at_once(name, tmp_path):
    folder = create(name, tmp_path)
    assert folder == tmp_path / f"trueno-{name.replace('_', '-')}"
    environment = FreshEnvironment(tmp_path / "venv")
    environment.pip("-e", str(folder))
    done = environment.python("-m", "trueno.cli", "conformance", name, "--json", "report.json", folder=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (backend,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["backends"]
    assert [row["op"] for row in backend["ops"] if row["verdict"] == "pass"] == [
        "relu",
        "relu",
        "sub",
        "sub",
        "max",
        "max",
    ]
    assert not any("called" in remark for remark in backend["remarks"])
    own = environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "relu or manifest", folder=folder)
    assert own.returncode == 0, own.stdout[-6000:]


def test_every_word_of_the_templates_is_filled_in(tmp_path):
    folder = create("acme_two", tmp_path)
    texts = {str(p.relative_to(folder)): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}
    assert texts.keys() == {path.replace("PACKAGE", "trueno_acme_two") for path, _ in templates()}
    assert {"pyproject.toml", "src/trueno_acme_two/backend.toml", "src/trueno_acme_two/__init__.py"} <= texts.keys()
    assert not [path for path, text in texts.items() if {"«", "»"} & set(text) or "PACKAGE" in path]
    assert "class AcmeTwoBackend:" in texts["src/trueno_acme_two/backend.py"]


def test_the_probe_needs_none_of_the_first_ops(tmp_path):
    """The author of a backend replaces them."""
    path = create("acme", tmp_path) / "src" / "trueno_acme" / "backend.py"
    made = {"__name__": "trueno_acme.backend"}
    exec(compile(path.read_text("utf-8"), path, "exec"), made)
    for kernel in made["KERNELS"].values():
        del made[kernel.__name__]
    assert made["AcmeBackend"]().probe(2).ok


def test_the_command_says_what_comes_next(tmp_path):
    done = CliRunner().invoke(app, ["new-backend", "acme", "--dir", str(tmp_path)], prog_name="trueno")
    assert done.exit_code == 0, done.output
    output = done.output
    assert (
        "trueno conformance acme" in output and "pip install -e" in output and str(tmp_path / "trueno-acme") in output
    )
    assert (tmp_path / "trueno-acme" / "src" / "trueno_acme" / "backend.toml").exists()


@pytest.mark.parametrize("name", ["", "Acme", "2nd", "a-b", "a b", "../x", "class", "a.b", "é"])
def test_a_name_that_cannot_be_one_is_refused(name, tmp_path):
    with pytest.raises(ParameterError, match="cannot name a backend"):
        create(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_name_of_an_installed_backend_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="installed already"):
        create("reference", tmp_path)


def test_a_folder_that_exists_is_left_alone(tmp_path):
    mine = tmp_path / "trueno-acme"
    mine.mkdir()
    (mine / "notes").write_text("mine")
    with pytest.raises(ParameterError, match="exists already"):
        create("acme", tmp_path)
    assert [p.name for p in mine.iterdir()] == ["notes"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="cannot be written"):
        create("acme", tmp_path / "file")
