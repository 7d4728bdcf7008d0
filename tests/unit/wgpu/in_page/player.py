"""Runs in Pyodide, without NumPy: what an exported batch says, by the device layer, with bytes for arrays."""

import base64
import json
from pathlib import Path

from trueno_wgpu.device import door
from trueno_wgpu.device.gpu import Gpu, View
from trueno_wgpu.device.shader import Shader


async def opened() -> Gpu:
    """The device, opened without waiting inside of a call."""
    await door.prepare("software")
    return Gpu("software")


class Player:
    """An export on a device."""

    def __init__(self, gpu: Gpu, folder: str) -> None:
        self.gpu, self.folder = gpu, Path(folder)
        self.plan = json.loads((self.folder / "plan.json").read_text())
        self.buffers = [gpu.alloc(one["bytes"]) for one in self.plan["buffers"]]
        for buffer, one in zip(self.buffers, self.plan["buffers"], strict=True):
            data = b"".join(self._data(piece) for piece in one.get("data", ()))
            gpu.write(buffer, data.ljust(buffer.nbytes, b"\0"))
        self.uniforms = self._data(self.plan["uniforms"])
        self.shaders = [
            Shader(one["name"], (self.folder / "kernels" / f"{one['name']}.wgsl").read_text(), tuple(one["writes"]))
            for one in self.plan["kernels"]
        ]

    def _data(self, piece: dict) -> bytes:
        return (self.folder / "data" / f"{piece['file']}.bin").read_bytes()

    def write(self, values: dict[str, bytes]) -> None:
        """Set inputs."""
        for name, data in values.items():
            self.gpu.write(self.buffers[self.plan["inputs"][name]["buffer"]], data)

    def launch(self) -> None:
        """Run every step."""
        for step in self.plan["steps"]:
            if "copy" in step:
                source, at, target, to, nbytes = step["copy"]
                assert at == to == 0
                self.gpu.copy(self.buffers[source], self.buffers[target], nbytes)
                continue
            at, size = step["uniforms"]
            bound = [View(self.buffers[n], offset, nbytes) for n, offset, nbytes in step["bind"]]
            self.gpu.run(self.shaders[step["run"]], bound, self.uniforms[at : at + size], tuple(step["grid"]))

    def output(self, name: str) -> tuple:
        """The buffer of an output, and its bytes."""
        port = self.plan["outputs"][name]
        size = {"float32": 4, "int64": 8, "uint8": 1}[port["dtype"]]
        for extent in port["shape"]:
            size *= extent
        return self.buffers[port["buffer"]], size


def spelled(data) -> str:
    return base64.b64encode(data).decode()
