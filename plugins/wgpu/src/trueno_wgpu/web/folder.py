"""The files of an exported batch: kernels as WGSL, bytes in pieces, the plan as JSON, and the runtime beside them.

module.js, module.d.ts    the runtime and its types
plan.json                 what runs, and what it needs
kernels/NAME.wgsl         each kernel once
kernels/module.wasm       all kernels for pages without a GPU, if the export has them
data/HASH.bin             pieces of constants and weights, named by their contents, so a browser may keep them
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from trueno_wgpu.device.array import Array
from trueno_wgpu.device.shader import shared_bytes
from trueno_wgpu.device.uniforms import STRIDE
from trueno_wgpu.web.script import Copy, Launch, Script

FORMAT, VERSION = "trueno-web", 1
PIECE = 16 << 20
"""Bytes of a file of data: one that fails is fetched again, and none is held in memory longer than it takes."""
RUNTIME = ("module.js", "module.d.ts")
FEATURE = re.compile(r"^\s*enable\s+([\w\s,]+);", re.MULTILINE)
FEATURES = {"f16": "shader-f16"}
"""WebGPU's names of the features for which WGSL has shorter ones."""


def write(script: Script, folder: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Array],
          kept: Sequence[Array], wasm: Any = None) -> int:  # fmt: skip
    """Write the files of a script into an empty folder; the bytes of data.

    inputs and outputs: arrays that a page gives and gets; kept: those whose contents count at the start.  wasm: what
    pages without a GPU run (`trueno.web`), or None.
    """
    (folder / "kernels").mkdir()
    (folder / "data").mkdir()
    given = {name: _port(script, x, False) for name, x in inputs.items()}
    taken = {name: _port(script, x, True) for name, x in outputs.items()}
    numbers = {port["buffer"] for port in given.values()}
    contents = {n: data for n, data in script.contents(script.used(x.buffer for x in kept)).items() if n not in numbers}
    buffers: list[dict[str, Any]] = [{"bytes": -(-place.bytes // 4) * 4} for place in script.commands.places]
    for number, data in contents.items():
        buffers[number]["data"] = _pieces(folder, data)
    launches = [step for step in script.commands.steps if isinstance(step, Launch)]
    slots, uniforms = _uniforms(launches)
    shaders = list(dict.fromkeys(launch.shader for launch in launches))
    names = _names([shader.name for shader in shaders])
    for shader, name in zip(shaders, names, strict=True):
        (folder / "kernels" / f"{name}.wgsl").write_text(shader.source, "utf-8")
    steps: list[Any] = []
    for step in script.commands.steps:
        if isinstance(step, Launch):
            steps.append({"run": shaders.index(step.shader), "bind": step.bound, "uniforms": slots[step.uniforms],
                          "grid": step.groups})  # fmt: skip
        elif isinstance(step, Copy):
            steps.append({"copy": [step.source, step.at, step.target, step.to, step.bytes]})
        else:
            steps.append({"clear": [step.target, step.bytes]})
    plan = {
        "format": FORMAT, "version": VERSION, "inputs": given, "outputs": taken,
        "needs": {"features": sorted({_feature(word) for shader in shaders for word in _enabled(shader.source)}),
                  "limits": _limits(buffers, launches)},
        "kernels": [{"name": name, "writes": shader.writes} for name, shader in zip(names, shaders, strict=True)],
        "buffers": buffers, "uniforms": _piece(folder, memoryview(uniforms)) if uniforms else None, "steps": steps,
    }  # fmt: skip
    if wasm is not None:
        plan["wasm"] = _wasm(folder, wasm)
    for name in RUNTIME:
        shutil.copyfile(str(files(__package__).joinpath(name)), folder / name)
    (folder / "plan.json").write_text(json.dumps(plan, separators=(",", ":")), "utf-8")
    return sum(map(len, contents.values()))


def _port(script: Script, x: Array, read: bool) -> dict[str, Any]:
    """How a page finds an array that it gives or gets."""
    return {"buffer": script.port(x.buffer, read), "dtype": x.dtype.name, "shape": x.shape}


def _wasm(folder: Path, module: Any) -> dict[str, Any]:
    """Write the module of pages without a GPU; its part of the plan."""
    (folder / "kernels" / "module.wasm").write_bytes(module.code)
    data = [{"at": at, "data": _pieces(folder, memoryview(held))} for at, held in module.contents.items()]
    return {"bytes": len(module.code), "inputs": module.inputs, "outputs": module.outputs, "data": data,
            "feeds": module.feeds, "steps": module.names}  # fmt: skip


def _pieces(folder: Path, data: memoryview) -> list[dict[str, Any]]:
    return [_piece(folder, data[at : at + PIECE]) for at in range(0, len(data), PIECE)]


def _piece(folder: Path, data: memoryview) -> dict[str, Any]:
    """Write bytes to a file that is named by them."""
    name = hashlib.sha256(data).hexdigest()[:20]
    (folder / "data" / f"{name}.bin").write_bytes(data)
    return {"file": name, "bytes": len(data)}


def _uniforms(launches: Sequence[Launch]) -> tuple[dict[bytes, tuple[int, int]], bytes]:
    """The place (offset, bytes) of each content in one buffer, and that buffer."""
    slots: dict[bytes, tuple[int, int]] = {}
    packed = bytearray()
    for launch in launches:
        if launch.uniforms not in slots:
            content = launch.uniforms + bytes(-len(launch.uniforms) % 16 or (0 if launch.uniforms else 16))
            slots[launch.uniforms] = len(packed), len(content)
            packed += content + bytes(-len(content) % STRIDE)
    return slots, bytes(packed)


def _names(wanted: Sequence[str]) -> list[str]:
    """File names, each once."""
    names: list[str] = []
    for text in wanted:
        stem = re.sub(r"\W+", "_", text).strip("_").lower()[:60] or "kernel"
        again = sum(1 for name in names if name == stem or re.fullmatch(rf"{re.escape(stem)}_\d+", name))
        names.append(f"{stem}_{again}" if again else stem)
    return names


def _enabled(source: str) -> list[str]:
    """What a text enables, as `f16` or `subgroups`."""
    return [word.strip() for match in FEATURE.finditer(source) for word in match[1].split(",")]


def _feature(word: str) -> str:
    return FEATURES.get(word, word)


def _limits(buffers: Sequence[Mapping[str, Any]], launches: Sequence[Launch]) -> dict[str, int]:
    """WebGPU's limits that the plan needs; the runtime requests those above WebGPU's defaults."""
    bound = [nbytes for launch in launches for _, _, nbytes in launch.bound]
    return {
        "maxBufferSize": max((one["bytes"] for one in buffers), default=4),
        "maxStorageBufferBindingSize": max(bound, default=4),
        "maxStorageBuffersPerShaderStage": max((len(launch.bound) for launch in launches), default=1),
        "maxComputeWorkgroupStorageSize": max((shared_bytes(launch.shader) for launch in launches), default=0),
        "maxComputeWorkgroupsPerDimension": max((max(launch.groups) for launch in launches), default=1),
    }
