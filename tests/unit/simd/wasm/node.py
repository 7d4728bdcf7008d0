"""Modules of WebAssembly in Node, whose compiler is Chromium's; what the runtime of pages does is done plainly."""

import base64
import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import trueno
from trueno.web.wasm import module as module_of

RUN = """
const { code, contents, runs, outputs, feeds } = JSON.parse(require("fs").readFileSync(0));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes(code)), {});
const memory = new Uint8Array(exports.memory.buffer);
for (const [at, data] of contents) memory.set(bytes(data), at);
console.log(JSON.stringify(runs.map((values) => {
  for (const [at, data] of values) memory.set(bytes(data), at);
  const status = exports.run();
  for (const [source, target, size] of feeds) if (!status) memory.copyWithin(target, source, source + size);
  return [status, outputs.map(([at, size]) => Buffer.from(memory.slice(at, at + size)).toString("base64"))];
})));
"""


@dataclass
class Compiled:
    """A batch as a module.  inputs, outputs: the handles, by name."""

    module: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    def run(self, *values: dict[str, Any]) -> list[dict[str, Any]]:
        """The outputs of runs in one memory, one after the other; `status` is what `run()` gave."""
        node = shutil.which("node")
        if node is None:
            pytest.skip("no node: apt-get install nodejs")
        module, sizes = self.module, {n: h.dtype.itemsize * int(np.prod(h.shape)) for n, h in self.outputs.items()}
        request = {
            "code": _text(module.code), "feeds": module.feeds,
            "contents": [(at, _text(data)) for at, data in module.contents.items()],
            "runs": [[(module.inputs[n], _text(np.asarray(x, self.inputs[n].dtype).tobytes())) for n, x in one.items()]
                     for one in values],
            "outputs": [(module.outputs[n], size) for n, size in sizes.items()],
        }  # fmt: skip
        done = subprocess.run([node, "-e", RUN], input=json.dumps(request), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        results = []
        for status, read in json.loads(done.stdout):
            arrays = {
                n: np.frombuffer(base64.b64decode(text), h.dtype).reshape(h.shape)
                for (n, h), text in zip(self.outputs.items(), read, strict=True)
            }
            results.append(arrays | {"status": status})
        return results


def compiled(batch: trueno.Batch, inputs: dict[str, Any], outputs: dict[str, Any]) -> Compiled:
    """A batch that nothing has executed, as a module."""
    for handle in outputs.values():
        batch.keep(handle)
    values = [{name: handle.value for name, handle in named.items()} for named in (inputs, outputs)]
    return Compiled(module_of(batch, *values), inputs, outputs)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


__all__ = ["Compiled", "compiled"]
