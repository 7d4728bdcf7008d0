"""What a plan launches is what the emulated backend launches for the same calls, on a GPU of the same size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gguf")

from unit.qwen2.files import tiny

ROOT = Path(__file__).parents[4]
PROGRAM = """
import json, sys
from types import SimpleNamespace
from hashlib import sha256
from trueno_cuda.device import emulated
from trueno_cuda.mapping import engine, mapped
from trueno_cuda.mapping.backend import planned
from trueno_cuda.mapping.model import opened
from examples.qwen2_map import step

path, tokens, prefill = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "prefill"
ran = []

class Module:  # of the emulator, which notes launches and computes nothing
    def __init__(self, text):
        self.key = sha256(text.encode()).hexdigest()
    def launch(self, name, grid, threads, arguments, shared=0):
        numbers = [x for x in arguments if isinstance(x, int)]
        ran.append([self.key, *grid, *threads, shared, *numbers])
        return SimpleNamespace(findings=())

emulated.load = Module
backend = planned("sm_90")
backend.planner.sms, backend.planner.shared = emulated.SMS, emulated.Emulator("sm_90").shared
steps = engine.steps("examples.qwen2_map", backend, path, tokens, prefill)
plan = [[one.kernel.key, *one.grid, *one.block, one.kernel.dynamic_shared, *one.numbers]
        for step_ in steps for one in step_.launches]
step(path, "cuda_emulated", tokens, prefill)
json.dump([plan, ran], sys.stdout)
"""


@pytest.mark.parametrize(("mixture", "phase"), [("q4_k_m", "decode"), ("f32", "decode"), ("q4_k_m", "prefill")])
def test_launches_are_the_backends(tmp_path, rng, mixture, phase):
    path, tokens = tiny(tmp_path, mixture), int(rng.integers(70, 300))
    environment = os.environ | {"TRUENO_CUDA_EMULATED_ARCH": "sm_90a"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path), str(tokens), phase], cwd=ROOT, env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    plan, ran = json.loads(done.stdout)
    assert len(plan) > 15
    assert plan == ran
