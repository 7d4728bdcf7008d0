"""Pages that run in the reader's browser: a hook of mkdocs that makes what `docs/live` loads.

Batches are recorded and exported in a child process, which needs an adapter of WebGPU; software is enough.  Without one
the pages say that they were built without.  `python docs/live.py FOLDER` writes the same files.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from trueno.replacing import replacing

ROOT = Path(__file__).parents[1]
PAGES = {"Three functions": "functions", "A language model": "model", "WGSL beside PTX": "kernels"}
SOURCES = "core/src", "plugins/simd/src", "plugins/wgpu/src", "plugins/cuda/src", "examples/qwen2", "docs"
SUFFIXES = (".py", ".js", ".toml")
LIMIT = 600
"""Seconds for the child; most of its time compiles kernels."""
PROMPT, NEW, CONTEXT = (300, 5, 77), 24, 256
"""Tokens that the page begins with, how many come after them, and the most of both that the module takes."""
ROWS, WIDTH, SIDE = 256, 1024, 256
"""Shapes of the page of functions."""


def functions(folder: Path) -> None:
    """Modules of softmax, gelu and matmul, for WebGPU and as WebAssembly."""
    import numpy as np
    import trueno

    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.float32)

    with trueno.Batch("wgpu") as b:
        x = b.upload(zeros(ROWS, WIDTH))
        trueno.web.export(b, folder / "softmax", inputs={"x": x}, outputs={"y": b.softmax(x)}, wasm=True)
    with trueno.Batch("wgpu") as b:
        x = b.upload(zeros(ROWS, WIDTH))
        trueno.web.export(b, folder / "gelu", inputs={"x": x}, outputs={"y": b.gelu(x)}, wasm=True)
    with trueno.Batch("wgpu") as b:
        x, w = b.upload(zeros(SIDE, SIDE)), b.upload(zeros(SIDE, SIDE))
        y = b.matmul(x, w)
        trueno.web.export(b, folder / "matmul", inputs={"x": x, "w": w}, outputs={"y": y}, wasm=True)


def model(folder: Path) -> None:
    """The example engine's step as a module, and the tokens that the engine gives on the CPU."""
    import trueno

    from examples.qwen2.checkpoint import Checkpoint
    from examples.qwen2.model import Model, Sampling, Step
    from examples.qwen2.synthesize import synthesize

    with tempfile.TemporaryDirectory() as beside:
        path = str(Path(beside, "tiny.gguf"))
        synthesize(path, "tiny")
        host = Model(Checkpoint(path))
        cache = host.cache(CONTEXT)
        tokens = [int(host.prefill(list(PROMPT), cache)[0].argmax())]
        while len(tokens) < NEW:
            tokens.append(int(host.decode(tokens[-1:], [cache])[0].argmax()))
        there = Model(Checkpoint(path), "wgpu")
        step = Step(there, there.cache(CONTEXT).pages, 1, Sampling())
        slots, positions, lengths, table = step.places.handles
        inputs = {"token": step.tokens, "slots": slots, "positions": positions, "lengths": lengths, "table": table}
        trueno.web.export(step.batch, folder / "tiny", inputs=inputs, outputs={"next": step.drawn}, wasm=True)
    told = {"prompt": PROMPT, "tokens": tokens, "context": CONTEXT, "vocabulary": there.config.vocabulary}
    (folder / "tiny" / "engine.json").write_text(json.dumps(told), "utf-8")


def kernels(folder: Path) -> None:
    """WGSL and PTX of each op, and the list of ops by family."""
    from trueno.ops import TABLE

    from docs.writing import twins

    (folder / "kernels").mkdir()
    families: dict[str, list[str]] = {}
    for name in twins.names():
        if shaders := twins.wgsl(name):
            pair = {"wgsl": shaders, "ptx": twins.ptx(name)}
            (folder / "kernels" / f"{name}.json").write_text(json.dumps(pair), "utf-8")
            families.setdefault(TABLE[name].family, []).append(name)
    (folder / "kernels" / "index.json").write_text(json.dumps(families), "utf-8")


def write(folder: Path) -> None:
    """Write everything, in this process.  Modules are left out, with the reason, where there is no adapter."""
    sys.path.insert(0, str(ROOT))
    import trueno
    from trueno.errors import BackendUnavailable

    kernels(folder)
    why = ""
    try:
        if not trueno.backends()["wgpu"].available:
            trueno.settings.override("TRUENO_WGPU_ADAPTER", "software")
        functions(folder)
        model(folder)
    except BackendUnavailable as error:
        why = str(error)
    (folder / "built.json").write_text(json.dumps({"built": why}), "utf-8")


@cache
def files() -> dict[str, bytes]:
    """What a child process writes, by path; it is kept in the user's cache until one of the sources changes."""
    from trueno import cachedir

    folder = cachedir.folder("docs", writing=True)
    kept = None if folder is None else folder / f"live-{fingerprint()}.zip"
    if kept is not None and kept.exists():
        with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(kept) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    found = written()
    if kept is not None and not json.loads(found["built.json"])["built"]:
        for old in kept.parent.glob("live-*.zip"):
            old.unlink(missing_ok=True)
        with (
            suppress(OSError),
            replacing(kept) as beside,
            zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, content in found.items():
                archive.writestr(name, content)
    return found


def fingerprint() -> str:
    """Of all sources on which the files depend, and of the adapter that is asked for."""
    facts = [sys.version, sys.platform, os.environ.get("TRUENO_WGPU_ADAPTER", "")]
    sources = sorted(p for name in SOURCES for p in (ROOT / name).rglob("*") if p.suffix in SUFFIXES)
    facts += [f"{path.relative_to(ROOT)} {sha256(path.read_bytes()).hexdigest()}" for path in sources]
    return sha256("\n".join(facts).encode()).hexdigest()[:16]


def written() -> dict[str, bytes]:
    """The files of a child process."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, folder], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT,
            env=os.environ | {"PYTHONIOENCODING": "utf-8"}, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"docs/live.py ended with {done.returncode}:\n{done.stderr[-3000:]}")
        found = sorted(p for p in Path(folder).rglob("*") if p.is_file() and p.suffix != ".ts")
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def on_config(config: Any) -> Any:
    config["nav"].insert(2, {"Live": [{title: f"live/{name}.md"} for title, name in PAGES.items()]})
    return config


def on_files(files_: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, content in files().items():
        files_.append(File.generated(config, f"live/{name}", content=content))
    return files_


if __name__ == "__main__":
    write(Path(sys.argv[1]))
