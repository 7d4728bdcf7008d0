"""`trueno web`: a script's batch becomes a folder, which is served."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
pytest.importorskip("wgpu")

from trueno.cli.app import app
from typer.testing import CliRunner

SCRIPT = """
import numpy as np
import trueno

batch = trueno.Batch("wgpu")
x = batch.upload(np.zeros(5, np.float32))
inputs, outputs = {"x": x}, {"y": batch.exp(x)}
"""


def run(*args):
    return CliRunner().invoke(app, ["web", *map(str, args)], prog_name="trueno")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def software():
    import trueno
    from trueno.discovery import registry
    from trueno.errors import BackendUnavailable

    registry.entries()
    trueno.settings.override("TRUENO_WGPU_ADAPTER", "software")
    try:
        trueno.Batch("wgpu").close()
    except BackendUnavailable as error:
        if os.environ.get("REQUIRE_WGPU"):
            raise
        pytest.skip(str(error))
    yield
    trueno.settings.override("TRUENO_WGPU_ADAPTER", None)


@pytest.mark.usefixtures("software")
def test_a_script_is_exported(script, tmp_path):
    done = run("export", script, "--out", tmp_path / "page")
    assert done.exit_code == 0 and "trueno web serve" in done.stdout, done.output
    assert json.loads((tmp_path / "page" / "plan.json").read_text())["inputs"]["x"]["shape"] == [5]
    again = run("export", script, "--out", tmp_path / "page")
    assert again.exit_code == 2 and "--force" in again.stderr
    assert run("export", script, "--out", tmp_path / "page", "--force").exit_code == 0


def test_scripts_that_fail(script, tmp_path, monkeypatch):
    for source, problem in (
        ("batch = 3", "no inputs, no outputs"),
        ("1 / 0", "ZeroDivisionError"),
        ("(", "SyntaxError"),
        ("open('no weights')", "No such file or directory: 'no weights'"),
    ):
        script.write_text(source)
        done = run("export", script, "--out", tmp_path / "page")
        assert done.exit_code == 2 and problem in done.stderr, done.output
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "none.py", "none.py", tmp_path):
        done = run("export", name)
        assert done.exit_code == 2 and f"{name} cannot be read" in done.stderr.replace("\n", " "), done.output
    assert not (tmp_path / "page").exists()


def test_a_folder_is_served(tmp_path):
    (tmp_path / "index.html").write_text("a page")
    command = [sys.executable, "-m", "trueno.cli", "web", "serve", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            address = re.search(r"http://\S+/", child.stdout.readline())[0]
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert answer.read() == b"a page"
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0
        finally:
            child.kill()
    assert "is not a folder" in run("serve", tmp_path / "none").stderr
