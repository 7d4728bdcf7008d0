"""One device for all these tests: the GPU's, or software's where there is none.

Where there is neither, they are skipped, unless REQUIRE_WGPU is set, as it is in CI: then they fail.
"""

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from trueno.errors import BackendUnavailable

SCALE = """struct P { n: u32, a: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) ngroups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = (wid.x + wid.y * ngroups.x) * 64u + lane;
    if (i < p.n) { y[i] = p.a * x[i]; }
}
"""
SLOW = """struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var s = f32(id.x);
    for (var i = 0u; i < p.n; i++) { s = s * 0.999 + 0.5; }
    y[id.x] = s;
}
"""
"""Some milliseconds on any device, for 2048 groups and 20 000 trips."""


@pytest.fixture(scope="session")
def word() -> str:
    """What TRUENO_WGPU_ADAPTER must be for the adapter of these tests."""
    wanted = os.environ.get("TRUENO_WGPU_ADAPTER", "")
    try:
        from trueno_wgpu.device import runtime

        try:
            runtime.adapter(wanted)
            return wanted
        except BackendUnavailable:
            if wanted:
                raise
        runtime.adapter("software")
        return "software"
    except (ImportError, BackendUnavailable) as error:
        if os.environ.get("REQUIRE_WGPU"):
            raise
        pytest.skip(f"no adapter for WebGPU: {error}")


@pytest.fixture(scope="session")
def shared(word: str) -> Any:
    from trueno_wgpu.device.gpu import Gpu

    return Gpu(word)


@pytest.fixture
def gpu(shared: Any) -> Any:
    """The device, whose counts begin at zero."""
    shared.wait()
    shared.counts.reset()
    return shared


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = sum(map(ord, request.node.name))
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture
def scale() -> Callable[..., None]:
    """`scale(gpu, x, y, a)`: y = a · x on device arrays."""
    from trueno_wgpu.device.grid import fold
    from trueno_wgpu.device.shader import Shader

    shader = Shader("scale", SCALE, (False, True))

    def run(gpu: Any, x: Any, y: Any, a: float) -> None:
        groups = fold(-(-x.size // 64), gpu.limits.groups)
        gpu.run(shader, (x.buffer, y.buffer), struct.pack("If", x.size, a), groups)

    return run


PRELUDE = """
import gc, os, struct, sys
import numpy as np
import trueno.errors as errors
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu, View
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.device.grid import fold
SCALE = Shader("scale", {scale!r}, (False, True))
SLOW = Shader("slow", {slow!r}, (True,))
gpu = Gpu({word!r})
x = Array.of(gpu, np.arange(1000, dtype=np.float32))
y = Array.empty(gpu, (1000,), np.float32)
def scale(a, x=x, y=y):
    gpu.run(SCALE, (x.buffer, y.buffer), struct.pack("If", x.size, a), (-(-x.size // 64), 1, 1))
def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"{{call}} raised nothing")
"""


@pytest.fixture
def child(word: str) -> Iterator[Callable[[str], str]]:
    """`child(code)`: run a program after PRELUDE that must end well; its stdout.  For what may end the process."""

    def run(code: str) -> str:
        prelude = PRELUDE.format(scale=SCALE, slow=SLOW, word=word)
        environment = os.environ | {"TRUENO_WGPU_ADAPTER": word}
        done = subprocess.run(
            [sys.executable, "-c", prelude + code],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    return run  # type: ignore[return-value]


@pytest.fixture
def chosen(word: str) -> Iterator[None]:
    """The adapter of these tests is the one that `trueno` takes, whatever the process did before."""
    import trueno
    from trueno.discovery import registry

    registry.entries()  # the setting is the plugin's
    trueno.settings.override("TRUENO_WGPU_ADAPTER", word or None)
    yield
    trueno.settings.override("TRUENO_WGPU_ADAPTER", None)
