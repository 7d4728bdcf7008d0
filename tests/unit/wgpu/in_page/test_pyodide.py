"""Python in a page: the device layer without NumPy, and all of Trueno where a full distribution of Pyodide is named."""

import ast
import base64
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from browser import Page
from seeds import fresh_seed

from . import pyodide_page
from .pyodide_page import ROOT, run

SOURCES = ROOT / "core/src/trueno", ROOT / "plugins/wgpu/src/trueno_wgpu"
UNPACK = """
import sys, js
from pyodide.http import pyfetch
for name in ("trueno.zip", "exports.zip"):
    await (await pyfetch("/" + name)).unpack_archive(extract_dir="/site")
sys.path.insert(0, "/site")
import player
gpu = await player.opened()
'[]'
"""
RECORDED = """
with gpu.recording() as tape:
    p.launch()
for _ in range(2):
    tape.replay()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pyodide") / "site"
    folder.mkdir()
    return folder


def exports(folder: Path) -> dict[str, tuple[dict[str, np.ndarray], np.ndarray]]:
    """Some batches, exported; their inputs, and what they give in float64."""
    print(f"seed {(seed := fresh_seed())}")
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 64), (64, 33)))
    q = trueno.quantize(rng.standard_normal((48, 256)).astype(np.float32), "q4_k")
    v = rng.standard_normal(256).astype(np.float32)
    with trueno.Batch("wgpu") as b:
        h = b.upload(np.zeros_like(x))
        y = b.softmax(b.matmul(h, b.upload(w)))
        trueno.web.export(b, folder / "rows", inputs={"x": h}, outputs={"y": y})
    with trueno.Batch("wgpu") as b:
        h = b.upload(np.zeros_like(v))
        trueno.web.export(b, folder / "blocks", inputs={"x": h},
                          outputs={"y": b.quant_matvec(b.upload(q), h, activations="f32")})  # fmt: skip
    with trueno.Batch("wgpu") as b:
        total = b.upload(np.zeros(5, np.float32))
        more = b.add(total, b.upload(np.arange(5, dtype=np.float32)))
        b.feed(total, more)
        trueno.web.export(b, folder / "steps", inputs={"x": total}, outputs={"y": more})
    z = x.astype(float) @ w
    e = np.exp(z - z.max(1, keepdims=True))
    return {
        "rows": ({"x": x}, e / e.sum(1, keepdims=True)),
        "blocks": ({"x": v}, trueno.dequantize(q).astype(float) @ v),
        "steps": ({"x": x[0, :5]}, x[0, :5] + 3.0 * np.arange(5)),
    }


@pytest.fixture(scope="module")
def page(site, word, tmp_path_factory) -> Iterator[tuple[Page, dict]]:
    """Pyodide without NumPy, in which a device is open and the exports lie; what these give."""
    package = pyodide_page.package()
    trueno.backends()  # the setting is the plugin's
    trueno.settings.override("TRUENO_WGPU_ADAPTER", word or None)
    try:
        folder = tmp_path_factory.mktemp("exports")
        wanted = exports(folder)
    finally:
        trueno.settings.override("TRUENO_WGPU_ADAPTER", None)
    with zipfile.ZipFile(site / "exports.zip", "w") as file:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            file.write(path, path.relative_to(folder))
        file.write(Path(__file__).with_name("player.py"), "player.py")
    pyodide_page.archive(site / "trueno.zip", *SOURCES)
    with pyodide_page.running(package, site) as opened:
        run(opened, UNPACK)
        yield opened, wanted


def played(name: str, inputs: dict[str, np.ndarray], times: int, read: str) -> str:
    given = {key: base64.b64encode(x.tobytes()).decode() for key, x in inputs.items()}
    return f"""
import base64, json
p = player.Player(gpu, "/site/{name}")
p.write({{key: base64.b64decode(text) for key, text in {given!r}.items()}})
gpu.counts.reset()
for _ in range({times}):
    p.launch()
buffer, size = p.output("y")
json.dumps([player.spelled({read}), gpu.counts.submits, gpu.counts.kernels, gpu.counts.bytes_down])
"""


@pytest.mark.parametrize("waiting", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("name", ["rows", "blocks", "steps"])
def test_printed_wgsl_by_the_device_layer(page, name, waiting):
    """The kernels' own texts on the browser's GPU, with bytes for arrays; NumPy is not there."""
    there, wanted = page
    inputs, exact = wanted[name]
    read = "gpu.read(buffer, size)" if waiting else "await gpu.read_async(buffer, size)"
    text, submits, kernels, down = run(there, played(name, inputs, 3, read))
    got = np.frombuffer(base64.b64decode(text), np.float32).reshape(exact.shape)
    assert np.abs(got - exact).max() <= 2e-5 * np.abs(exact).max()
    assert submits == 1, "small work waits for the read"
    assert kernels >= 3 and down == got.nbytes and there.errors == []


def test_a_recording_is_replayed(page):
    there, wanted = page
    inputs, exact = wanted["rows"]
    code = played("rows", inputs, 0, "gpu.read(buffer, size)")
    code = code.replace("buffer, size =", f"{RECORDED}buffer, size =")
    text, submits, _, _ = run(there, code)
    got = np.frombuffer(base64.b64decode(text), np.float32).reshape(exact.shape)
    assert np.abs(got - exact).max() <= 2e-5 * np.abs(exact).max() and submits == 3


def test_errors_are_sentences(page):
    there, _ = page
    said = run(there, """
import json
from trueno.errors import TruenoError
from trueno_wgpu.device.shader import Shader
def problem(call):
    try:
        call()
    except TruenoError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
b = gpu.alloc(4)
json.dumps([
    problem(lambda: gpu.run(Shader("wrong", "this is not WGSL", (True,)), (b,), b"", (1, 1, 1))),
    problem(lambda: gpu.alloc(1 << 45)),
    problem(lambda: gpu.read(b, 8)),
])""")  # fmt: skip
    assert said[0].startswith("KernelError: wrong does not compile")
    assert said[1].startswith("OutOfMemory: ") and said[2].startswith("KernelError: read: 8 bytes")


def test_where_it_may_not_wait_it_says_so(page):
    """Code that a page runs synchronously cannot wait, whatever the browser can do."""
    there, _ = page
    said = run(there, """
import json
from trueno.errors import TruenoError
b = gpu.alloc(4)
try:
    gpu.read(b, 4)
    said = "no error"
except TruenoError as error:
    said = f"{type(error).__name__}: {error}"
json.dumps(said)""", waiting=False)  # fmt: skip
    assert said.startswith("DeviceError: wgpu: a page cannot wait for a GPU") and "await trueno.aio.numpy(x)" in said


def test_everything_that_is_imported_is_there(page):
    """Of the standard library, what trueno, trueno-scalar and trueno-wgpu import as they are imported."""
    needed: set[str] = set()
    for folder in (*SOURCES, ROOT / "plugins/scalar/src/trueno_scalar"):
        for path in folder.rglob("*.py"):
            if not {"cli", "_stubs", "qa"} & set(path.parts) and path.name != "runtime.py":
                needed |= imported(ast.parse(path.read_text("utf-8")))
    needed &= sys.stdlib_module_names
    assert {"threading", "ctypes", "asyncio"} <= needed
    there, _ = page
    missing = run(there, f"""
import json
from importlib import import_module
missing = []
for name in {sorted(needed)}:
    try:
        import_module(name)
    except ImportError as error:
        missing.append(f"{{name}}: {{error}}")
json.dumps(missing)""")  # fmt: skip
    assert missing == []


def imported(tree: ast.Module) -> set[str]:
    """Packages that a module imports at its top."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
