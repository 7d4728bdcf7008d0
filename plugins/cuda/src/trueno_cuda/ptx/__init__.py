"""A PTX builder: run a Python function once, and it emits the kernel.

    from trueno_cuda.ptx import f32, kernel, ptr, u32

    @kernel(threads=256)
    def add(k, a: ptr(f32), b: ptr(f32), out: ptr(f32), n: u32):
        i = k.ctaid * k.threads + k.tid
        live = i < n
        out.store(i, a.load(i, where=live) + b.load(i, where=live), where=live)

    print(add.build(arch="sm_80"))

Python runs now, operations on `k` run later on the GPU.  Needs only the standard library: no GPU, no compiler.
"""

from trueno_cuda.ptx.builder import Builder, Param
from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.kernel import Kernel, Source, kernel
from trueno_cuda.ptx.pointers import Array, Pointer
from trueno_cuda.ptx.targets import TARGETS
from trueno_cuda.ptx.types import (
    Type,
    bf16,
    bf16x2,
    e4m3,
    e4m3x2,
    e4m3x4,
    e5m2,
    e5m2x2,
    e5m2x4,
    f16,
    f16x2,
    f32,
    f64,
    pred,
    ptr,
    s8,
    s8x4,
    s16,
    s16x2,
    s32,
    s64,
    tensor_map,
    tf32,
    u8,
    u8x4,
    u16,
    u16x2,
    u32,
    u64,
)
from trueno_cuda.ptx.values import Value, Var

__all__ = [
    "TARGETS", "Array", "BuildError", "Builder", "Kernel", "Param", "Pointer", "Source", "Type", "Value", "Var",
    "bf16", "bf16x2", "e4m3", "e4m3x2", "e4m3x4", "e5m2", "e5m2x2", "e5m2x4", "f16", "f16x2", "f32", "f64", "kernel",
    "pred", "ptr", "s8", "s8x4", "s16", "s16x2", "s32", "s64", "tensor_map", "tf32", "u8", "u8x4", "u16", "u16x2",
    "u32", "u64",
]  # fmt: skip
