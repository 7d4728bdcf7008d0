"""quant_embedding_lookup: `dequantize`, whose units read the blocks of the row that an index names.

An index that is outside reads nothing and gives a row of NaN, as embedding_lookup does; the op checks indices on the
host where it can.
"""

import struct
from functools import cache
from math import prod
from string import Template
from typing import Any

from trueno.backend import FORMATS, Call, Kernel, unit_shape
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.memory import clashes, whole
from trueno_wgpu.kernels.quant.declared import declared
from trueno_wgpu.kernels.quant.dequantize import MODULE, SIZE, source

READ = """\
let row = indices[block / sizes.across];
    let outside = row.y != 0u || row.x >= sizes.rows;
    let a = select(row.x * sizes.across + block % sizes.across, 0u, outside) * """
BINDINGS = """\
@group(0) @binding(2) var<storage, read> indices: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;"""
CHANGES = {
    "{ units: u32, }": "{ units: u32, across: u32, rows: u32, nan: u32, }",
    BINDINGS.splitlines()[1].replace("binding(3)", "binding(2)"): BINDINGS,
    "let a = block * ": READ,
    "y[to + j] = $value;": "y[to + j] = select($value, vec4<f32>(bitcast<f32>(sizes.nan)), outside);",
}


def _gathering(text: str) -> str:
    """The text of `dequantize` with a row looked up before its block is read."""
    for old, new in CHANGES.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


GATHERING = Template(_gathering(MODULE.template))


@cache
def shader(name: str) -> Shader:
    return Shader(f"quant_embedding_lookup {name}", source(name, GATHERING), (False, False, True))


@declared("quant_embedding_lookup")
def quant_embedding_lookup(gpu: Gpu, call: Call) -> Kernel:
    """w[v,b] bytes, i[...] -> out[...,d] float32, static["format"] blocks."""
    f = FORMATS[dict(call.static)["format"]]
    units, code, limits = unit_shape(f.name).units, shader(f.name), gpu.limits

    def kernel(w: Any, i: Any, out: Any) -> int:
        if len(w.shape) != 2 or w.shape[1] % f.nbytes:
            return -1
        across = w.shape[1] // f.nbytes
        if out.shape != (*i.shape, across * f.elements) or clashes(out, w, i) or not w.shape[0]:
            return -1
        largest = max(w.nbytes, out.nbytes)
        if largest > limits.binding:
            raise KernelError(
                f"quant_embedding_lookup: an array has {largest} bytes, and this adapter binds {limits.binding}; "
                "look rows up on the host, or in parts"
            )
        count = prod(i.shape) * across * units
        if count:
            buffers = [whole(x.buffer, -(-x.nbytes // 4) * 4, limits) for x in (w, i, out)]
            numbers = struct.pack("<4I", count, across, w.shape[0], 0x7FC00000)
            gpu.run(code, buffers, numbers, fold(-(-count // SIZE), limits.groups))
        return 0

    return kernel
