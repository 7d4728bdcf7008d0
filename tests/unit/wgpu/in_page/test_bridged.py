"""The device layer of a page, in a Python that is not in one: its WebGPU is Chromium's, through `bridge`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from seeds import fresh_seed

SINGLE = 1e-5
"""Of float32, relative to the largest value; what an op's bound allows is judged by `conformance`."""


def bridged(task: str, folder: Path, seed: int = 0) -> dict[str, Any]:
    """What a task of `bridged` gives."""
    chromium()
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("bridged.py")), task, str(seed), str(folder)],
        env=os.environ | {"TRUENO_PROBE": "on"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def test_where_a_page_may_wait(tmp_path):
    """Through Promise Integration everything is as elsewhere."""
    got = bridged("sync", tmp_path)
    assert got["sync"] is True and "swiftshader" in got["adapter"].lower()
    for name in ("softmax", "relu", "exp", "again"):
        assert got[name] <= SINGLE, name
    assert "wrong does not compile" in got["wrong"] and "not WGSL" not in got["wrong"].split("(")[0]
    assert got["unnamed"] != "wgpu", "software is used only where it is named"
    assert got["console"] == []


def test_where_a_page_may_not_wait(tmp_path):
    """The asynchronous API does all of it, and what would have to wait says what to write."""
    got = bridged("asynchronous", tmp_path)
    assert got["sync"] is False and "swiftshader" in got["adapter"].lower() and got["same"] and got["places"]
    for name in ("relu", "matmul", "softmax", "exp", "sum", "topk", "batch", "host"):
        assert got[name] <= SINGLE, name
    assert len(got["said"]) == 5
    assert 'await trueno.aio.device("wgpu")' in got["said"][0]
    assert all("await trueno.aio.numpy(x)" in said for said in got["said"][1:]), got["said"]
    assert "reading failed" in got["wrong"] and got["unnamed"] != "wgpu" and got["console"] == []


def test_a_lost_device(tmp_path):
    got = bridged("lost", tmp_path)
    assert got["error"] == "DeviceLost" and "was lost; its arrays are gone" in got["said"]


def test_a_browser_without_webgpu(tmp_path):
    got = bridged("absent", tmp_path)
    assert got["available"] is False and "finds no GPU for WebGPU" in got["reason"]
    assert "finds no GPU for WebGPU" in got["error"] and "finds no GPU for WebGPU" in got["prepare"]
    assert "has no WebGPU" in got["old"] and got["host"] == 0


@pytest.mark.slow
def test_the_kit_s_cases(tmp_path):
    """Some cases of ops of each kind, other ones each time, inside each op's own bound."""
    print(f"seed {(seed := fresh_seed())}")
    got = bridged("conformance", tmp_path, seed)
    assert len(got["cases"]) == 6 and min(got["cases"].values()) >= 1 and got["console"] == [], got
