# mypy: disable-error-code="valid-type"
"""Kernels of the tests: what counts is their parameters, for the stub runs none."""

from trueno_cuda.ptx import f16, f32, f64, kernel, ptr, s32, s64, tensor_map, u16, u32, u64


@kernel(threads=256)
def add(k, a: ptr(f32), b: ptr(f32), out: ptr(f32), n: u32):
    """out = a + b."""
    i = k.ctaid * 256 + k.tid
    out.store(i, a.load(i, where=i < n) + b.load(i, where=i < n), where=i < n)


@kernel(max_threads=512)
def mixed(k, a: ptr(f32), m: u16, n: s64, o: s32, p: u64, x: f32, y: f64, z: f16):
    """A parameter of each size, with holes between them."""
    a.store(0, x)


@kernel(threads=128)
def mapped(k, t: tensor_map, a: ptr(f32)):
    """A map, then a pointer."""
    a.store(0, 1.0)


@kernel(threads=128)
def backwards(k, n: u32, a: ptr(f32)):
    """Parameters in an order that no launch passes."""
    a.store(n, 1.0)


@kernel(threads=128, cluster=2)
def paired(k, a: ptr(f32)):
    """In clusters of two."""
    a.store(0, 1.0)


@kernel(threads=128, cluster=16)
def wide(k, a: ptr(f32)):
    """In clusters of sixteen, which not every GPU has room for."""
    a.store(0, 1.0)


@kernel(threads=128, overlap=True)
def early(k, a: ptr(f32)):
    """Waits for what it follows by itself."""
    a.store(0, 1.0)


@kernel(threads=128)
def half_early(k, a: ptr(f32), n: u32):
    """Waits, though not always."""
    with k.when(n > 5):
        k.wait_for_previous_grid()
    a.store(0, 1.0)


@kernel(threads=128)
def large(k, a: ptr(f32)):
    """64 KiB of shared memory."""
    s = k.shared(f32, 16384)
    s.store(k.tid, 1.0)
    k.sync()
    a.store(k.tid, s.load(k.tid))
