"""The example engine on a backend whose arrays are on a device: a decoded token moves indices there, logits back."""

import os
import subprocess
import sys
from pathlib import Path

from unit.qwen2.files import tiny

TESTS = Path(__file__).parents[2]
PROGRAM = """
from pathlib import Path
import numpy as np, trueno, trueno_fake
trueno.register(Path(trueno_fake.__file__).with_name("backend.toml"))
from unit.qwen2.files import all_logits, loaded
from unit.qwen2.oracle import logits, nmse
tokens = np.random.default_rng(1).integers(1024, size=12).tolist()
for path in map(Path, PATHS):
    exact = logits(path, tokens)
    with trueno.use("fake"):
        model = loaded(path, backend="fake", activations="f32", cache="float32")
        assert not model.on_host
        for chunk in (512, 1):
            assert nmse(all_logits(model, tokens, chunk), exact) < 1e-9
        first = model.cache(16, 3)
        assert first.pages.device == "fake"
        model.prefill(tokens[:3], first)
        caches = [first, first.fork(), first.fork()]
        for i, cache in enumerate(caches):
            cache.length = 1 + i
        for turn in range(4):
            trueno_fake.LEDGER.reset()
            rows = model.decode([tokens[cache.length] for cache in caches], caches)
            assert nmse(rows, exact[[turn + 1, turn + 2, turn + 3]]) < 1e-9
            counts = trueno_fake.LEDGER.counts()
            assert turn < 1 or (counts["downloads"], counts["replays"], counts["allocs"]) == (1, 1, 0)
"""


def test_weights_and_activations_stay_on_the_device(tmp_path):
    paths = [str(tiny(tmp_path, mixture)) for mixture in ("f32", "q4_k_m")]
    path = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "fake_device" / "src")))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.replace("PATHS", repr(paths))],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
