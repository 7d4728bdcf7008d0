"""`trueno.show_versions()`: the facts, as text and as data."""

import io
import json
import platform
from importlib import metadata

import numpy as np
import trueno
from trueno import versions


def test_the_facts():
    facts = trueno.show_versions(as_dict=True)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["distributions"]["numpy"] == np.__version__ == metadata.version("numpy")
    assert facts["distributions"]["trueno"] == trueno.__version__
    assert facts["distributions"]["trueno-simd"] == metadata.version("trueno-simd")
    assert facts["system"]["python"].endswith(platform.python_version())
    assert set(facts["backends"]) == set(trueno.backends())
    assert facts["backends"]["reference"].startswith("available")


def test_the_text(capsys):
    stream = io.StringIO()
    assert trueno.show_versions(stream) is None and capsys.readouterr().out == ""
    text = stream.getvalue()
    facts = trueno.show_versions(as_dict=True)
    for title, rows in facts.items():
        part = text[text.index(f"{title}\n") :].split("\n\n")[0].splitlines()[1:]
        assert [line.split()[0] for line in part] == [name.split()[0] for name in rows]  # one line each
    trueno.show_versions()
    assert capsys.readouterr().out == text


def test_the_driver(tmp_path, monkeypatch):
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC 12.1\n"
    )
    monkeypatch.setattr(versions, "DRIVER", str(file))
    assert versions._driver() == "550.54.14"
    monkeypatch.setattr(versions, "DRIVER", str(tmp_path / "none"))
    assert versions._driver() is None
