"""Plugins for tests, as real packages: a folder with a manifest, a module, and a *.dist-info by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

BASE = '''
import os
import numpy as np
from trueno.backend import Accuracy, Device, Probe, Rates, Reject

class Adds:
    """Adds, with NumPy."""
    name, kind, accuracy = {name!r}, "cpu", Accuracy()
    def probe(self, level): return Probe(True, devices=(Device("fake", "isa"),))
    def supports(self, call): return None if call.op.name == "add" else Reject("unsupported_op")
    def kernel(self, call):
        def add(x, y, out):
            np.add(x, y, out=out)
            return 0
        return add
    def rates(self, call): return Rates(1e-6, 1e9, 1e9)
    def empty(self, shape, dtype): return np.empty(shape, dtype)
    def to_device(self, x): return x
    def to_host(self, x, out=None): return np.asarray(x)
    def synchronize(self): pass
    def close(self): pass

'''


def write(
    folder: Path,
    name: str,
    body: str = "",
    *,
    module: str = "",
    distribution: str = "",
    manifest: str = "",
    **keys: object,
) -> Path:
    """A plugin `name` whose backend adds, with `body` in its class and `module` before that; its package's folder.

    keys: of the manifest, over the usual ones.  manifest: the whole text instead.
    """
    distribution = distribution or f"fake-{name.replace('_', '-')}"
    package = f"{distribution}_package".replace("-", "_")
    home = folder / package
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    usual = {"name": name, "api": [1, 1], "kind": "cpu", "tier": 5, "factory": f"{package}.impl:Backend"} | keys
    text = manifest or "".join(f"{key} = {_toml(value)}\n" for key, value in usual.items())
    (home / "backend.toml").write_text(text)
    inner = indent(dedent(body), "    ") or "    pass\n"
    (home / "impl.py").write_text(dedent(module) + BASE.format(name=name) + f"class Backend(Adds):\n{inner}")
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[trueno.backends]\n{name} = {package}:backend.toml\n")
    return home


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def run(folder: Path, code: str, *, flags: tuple[str, ...] = (), **environ: str) -> "subprocess.CompletedProcess[str]":
    """Python code in a process that sees the plugins in `folder`, with a cache of its own and no other plugin."""
    names = [line.split("=")[0].strip() for file in folder.glob("*.dist-info/entry_points.txt")
             for line in file.read_text().splitlines() if "=" in line]  # fmt: skip
    kept = {n: v for n, v in os.environ.items() if not n.startswith("TRUENO_") and n != "FORCE_CPU"}
    env = {
        "PYTHONPATH": str(folder),
        "TRUENO_CACHE_DIR": str(folder / "cache"),
        "TRUENO_AUTOLOAD": ",".join(sorted(set(names))) or "0",
    }
    return subprocess.run(
        [sys.executable, *flags, "-c", dedent(code)],
        capture_output=True, text=True, timeout=120, env=kept | env | environ, cwd=folder,
    )  # fmt: skip


def tell(folder: Path, code: str, **environ: str) -> object:
    """What the code prints, as JSON; AssertionError with its stderr when it fails."""
    done = run(folder, code, **environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
