"""The command that installs an extra fits the way in which Trueno was installed: one literal command for each way."""

import json
import os
from importlib import metadata

import pytest
from trueno import remedies
from trueno.remedies import Origin, command, fitting


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretend that a distribution `trueno` has this direct_url.json and installer, and is not imported from a clone."""

    def pretend(direct_url, installer="pip"):
        text = direct_url if direct_url is None or isinstance(direct_url, str) else json.dumps(direct_url)
        files = {"direct_url.json": text, "INSTALLER": f"{installer}\n"}

        class Distribution:
            def read_text(self, name):
                return files[name]

        monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
        monkeypatch.setattr(remedies, "__file__", str(tmp_path / "site-packages" / "trueno" / "remedies.py"))
        remedies.origin.cache_clear()
        return remedies.origin()

    yield pretend
    remedies.origin.cache_clear()


def clone(tmp_path):
    root = tmp_path / "my clone"
    (root / "core").mkdir(parents=True)
    (root / "local.txt").write_text("")
    return root


def test_from_an_index(installed):
    assert installed(None) == Origin("index")
    assert remedies.install("cli") == "pip install 'trueno[cli]'"
    assert installed(None, "uv") == Origin("index", tool="uv pip")
    assert remedies.install("cli,gguf") == "uv pip install 'trueno[cli,gguf]'"


def test_from_a_clone(installed, tmp_path, monkeypatch):
    root = clone(tmp_path)
    url = (root / "core").as_uri()
    assert installed({"url": url, "dir_info": {}}) == Origin("clone", str(root))
    monkeypatch.chdir(root)
    assert remedies.install("cli") == 'pip install -c local.txt "core/[cli]"'
    monkeypatch.chdir(tmp_path)
    assert remedies.install("cli") == f"cd '{root}' && pip install -c local.txt \"core/[cli]\""
    assert installed({"url": url, "dir_info": {"editable": True}}).editable
    assert remedies.install("cli") == f"cd '{root}' && pip install -c local.txt -e \"core/[cli]\""
    monkeypatch.chdir(root)
    installed({"url": url, "dir_info": {}}, "uv")
    assert remedies.install("simd") == 'uv pip install "./core[simd]"'
    monkeypatch.setattr(os, "getcwd", lambda: 1 / 0 if root is None else (_ for _ in ()).throw(FileNotFoundError()))
    assert remedies.install("cli").startswith("cd ")


def test_the_sources_of_a_clone_on_the_path(installed, tmp_path, monkeypatch):
    root = clone(tmp_path)
    installed(None)
    monkeypatch.setattr(remedies, "__file__", str(root / "core" / "src" / "trueno" / "remedies.py"))
    remedies.origin.cache_clear()
    assert remedies.origin() == Origin("clone", str(root), True)


def test_from_elsewhere(installed, tmp_path):
    wheel = (tmp_path / "dist" / "trueno-0.1.0-py3-none-any.whl").as_uri()
    installed({"url": wheel, "archive_info": {}})
    assert remedies.install("cli") == f"pip install --find-links {tmp_path / 'dist'} 'trueno[cli]'"
    installed({"url": (tmp_path / "sources").as_uri(), "dir_info": {}})
    assert remedies.install("cli") == f'pip install "{tmp_path / "sources"}[cli]"'
    vcs = {"vcs": "git", "commit_id": "0" * 40, "requested_revision": "main"}
    installed({"url": "https://example.org/trueno.git", "vcs_info": vcs, "subdirectory": "core"})
    said = "pip install 'trueno[cli] @ git+https://example.org/trueno.git@main#subdirectory=core'"
    assert remedies.install("cli") == said
    installed({"url": "https://example.org/trueno.whl", "archive_info": {}})
    assert remedies.install("cli") == "pip install 'trueno[cli] @ https://example.org/trueno.whl'"


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"url": 3, "vcs_info": []}', '{"url": "file:///x", "dir_info": 3}'])
def test_a_damaged_file_is_no_error(installed, text):
    assert installed(text).kind == "index"


def test_sentences_of_plugins_fit(monkeypatch):
    monkeypatch.setattr(remedies, "origin", lambda: Origin("clone", os.getcwd()))
    said = "CuPy is not installed; pip install 'trueno[cuda]', or another"
    assert fitting(said) == 'CuPy is not installed; pip install -c local.txt "core/[cuda]", or another'
    assert fitting("pip install foo") == "pip install foo"
    assert command("x", Origin("index")) == "pip install 'trueno[x]'"


def test_a_backend_that_is_installed_is_not_recommended(monkeypatch):
    """Where a device is absent, installing its plugin again does not help."""
    from trueno.discovery.manifest import parse

    data = {"name": "board", "api": [1, 1], "kind": "gpu", "tier": 1, "factory": "x.y:Z", "install": "get it"}
    data["require"] = {__import__("sys").platform: {"any_path": ["/no/such/device"]}}
    code, reason = parse(data, "here").unmet()
    assert code == "no_device" and "get it" not in reason and "Install" not in reason
