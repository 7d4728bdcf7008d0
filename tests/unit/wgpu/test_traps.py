"""What ends the process in wgpu-native, or is wrong silently: each is an error here, or cannot happen.

Whatever could abort runs in a child process.
"""

import struct
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import trueno

pytest.importorskip("wgpu")
from trueno.errors import KernelError, OutOfMemory
from trueno_wgpu.device import staging
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import View
from trueno_wgpu.device.shader import Shader
from unit.wgpu.conftest import SCALE

# ---- what aborts --------------------------------------------------------------------------------------


def test_bindings_of_size_zero(child):
    """A bind group with one panics."""
    child("""
for view in (View(x.buffer, 0, 0), View(x.buffer, 256, -4), View(x.buffer, -256, 4)):
    raises(errors.KernelError, lambda: gpu.run(SCALE, (view, y.buffer), bytes(8), (1, 1, 1)), "binding 1", "above 0")
empty = Array.of(gpu, np.empty((0, 7), np.float32))
assert empty.numpy().shape == (0, 7)
scale(3.0)
assert (y.numpy() == 3 * x.numpy()).all()
""")


def test_no_buffer_is_destroyed_while_it_may_be_used(child):
    """Submitting a command that names a destroyed buffer aborts; so do cached bind groups, when `id`s come again."""
    child("""
gpu._heap.pool.most = 0  # every block is let go at once
with gpu.batch():
    for i in range(300):
        z = Array.empty(gpu, (1000 + i,), np.float32)
        scale(float(i), y=z)
        del z
scale(2.0)
for i in range(300):
    a, b = Array.of(gpu, np.full(1000, i, np.float32)), Array.empty(gpu, (1000,), np.float32)
    scale(2.0, a, b)
    assert (b.numpy() == 2 * i).all()
gc.collect()
assert (y.numpy() == 2 * x.numpy()).all()
assert len(gpu._bindings._groups) < 10, "bind groups outlive their buffers"
""")


def test_no_staging_buffer_is_mapped_when_it_is_used(child):
    """Submitting a copy into a mapped buffer aborts; a read that fails half-way unmaps, or lets its buffer go."""
    child("""
from trueno_wgpu.device import staging, transfers
def broken(staged, nbytes, into):
    try:
        staged.read_mapped(0, 8, copy=False)
        raise ZeroDivisionError
    finally:
        staged.unmap() if unmap else None
real, transfers.deliver = transfers.deliver, broken
for unmap in (True, False):
    for _ in range(3):
        raises(ZeroDivisionError, lambda: gpu.read(x.buffer, 4000))
transfers.deliver = real
for _ in range(6):
    assert (x.numpy() == np.arange(1000)).all()
staging.SLICE = 100
for _ in range(3):
    raises(errors.KernelError, lambda: gpu.read(x.buffer, 4000, into=bytearray(3999)))
assert (x.numpy() == np.arange(1000)).all()
""")


def test_commands_are_submitted_once(child):
    """The same command buffer twice aborts."""
    child("""
gpu.wait(); gpu.wait()
batch = gpu.batch()
with batch:
    scale(2.0)
    gpu.wait()
    gpu.wait()
raises(Exception, lambda: batch.__enter__())
assert (y.numpy() == 2 * x.numpy()).all()
encoder = gpu._queue.held
scale(3.0)
gpu.wait()
assert gpu._queue.held is not encoder and not encoder
gpu._queue._submit(encoder)
assert (y.numpy() == 3 * x.numpy()).all()
""")


@pytest.mark.parametrize(
    "call",
    [
        "scale(2.0); gpu.wait()",
        "scale(2.0); gpu.read(y.buffer, 4)",
        "gpu.read(x.buffer, 4)",
        "gpu.write(x.buffer, bytes(4))",
        "gpu.alloc(1 << 20)",
        "gpu.copy(x.buffer, y.buffer, 400); gpu.wait()",
        "exec('with gpu.batch():\\n scale(2.0)')",
        "import asyncio; asyncio.run(gpu.read_async(x.buffer, 4))",
        "[gpu.write(x.buffer, bytes(4000)) for _ in range(100_000)]",
        "[scale(2.0) for _ in range(100)]",
    ],
)
def test_a_lost_device_is_an_error(child, call):
    """Any submission after it was lost aborts, with held work and an open encoder or without."""
    child(f"""
def call():
    {call}
before = x.numpy()
gpu.device.destroy()
raises(errors.DeviceLost, call, "lost")
assert gpu.lost and gpu.closed
raises(errors.DeviceLost, call, "lost")
raises(errors.DeviceLost, lambda: scale(2.0), "lost")
gpu.close()
del x, y
gc.collect()
""")


def test_lost_in_the_middle(child):
    """With work held back, in a batch, and in a thread that waits."""
    child("""
scale(2.0)
def spoilt():
    with gpu.batch():
        scale(3.0)
        gpu.device.destroy()
raises(errors.DeviceLost, spoilt, "lost")
raises(errors.DeviceLost, gpu.wait, "lost")
""")
    child("""
import threading, time
y = Array.empty(gpu, (64 * 2048,), np.float32)
found = []
def wait():
    try:
        for _ in range(20):
            gpu.run(SLOW, (y.buffer,), struct.pack("I", 2000), (2048, 1, 1))
            gpu.read(y.buffer, 4)
    except errors.DeviceLost as error:
        found.append(error)
threads = [threading.Thread(target=wait, daemon=True) for _ in range(1)]
for thread in threads: thread.start()
while not gpu.counts.downloads: time.sleep(0.001)
with gpu._queue.lock:  # else it may be lost between the last look and the submission, which nobody can prevent
    gpu.device.destroy()
for thread in threads: thread.join(60)
assert not any(thread.is_alive() for thread in threads) and len(found) == 1
""")


def test_after_close(child):
    child("""
scale(2.0)
gpu.close()
gpu.close()
assert gpu.closed and not gpu.lost and "closed" in repr(gpu)
for call in (lambda: scale(2.0), lambda: x.numpy(), lambda: gpu.alloc(4), gpu.wait, lambda: gpu.batch().__enter__(),
             lambda: gpu.write(x.buffer, bytes(4)), lambda: gpu.copy(x.buffer, y.buffer, 4)):
    raises(errors.KernelError, call, "was closed")
old = x
other = Gpu(gpu.adapter.name)
x = Array.of(other, np.ones(1000, np.float32))
raises(errors.KernelError, lambda: other.run(SCALE, (old.buffer, x.buffer), bytes(8), (1, 1, 1)), "another device")
raises(errors.KernelError, lambda: other.read(old.buffer, 4), "another device")
raises(errors.KernelError, lambda: other.copy(x.buffer, old.buffer, 4), "another device")
assert (x.numpy() == 1).all()
""")


def test_ending_with_work_in_flight(child):
    child("""
big = Array.empty(gpu, (64 * 2048,), np.float32)
for _ in range(5):
    gpu.run(SLOW, (big.buffer,), struct.pack("I", 500), (2048, 1, 1))
scale(2.0)
sys.exit(0)
""")


# ---- what is wrong in silence -------------------------------------------------------------------------


def test_llvmpipe_ends_loops(gpu):
    """After 65 535 trips in all, without a message; what `limits.trips` allows is right."""
    if not gpu.limits.trips:
        pytest.skip("hardware has no such budget")
    source = """struct P { outer: u32, inner: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1) fn main() {
    var s = 0u;
    for (var i = 0u; i < p.outer; i++) { for (var k = 0u; k < p.inner; k++) { s += 1u; } }
    y[0] = s;
}
"""

    def trips(outer, inner):
        y = gpu.alloc(4)
        gpu.run(Shader("loops", source, (True,)), (y,), struct.pack("II", outer, inner), (1, 1, 1))
        return int.from_bytes(gpu.read(y, 4), "little")

    assert trips(1, gpu.limits.trips) == gpu.limits.trips
    assert trips(99, gpu.limits.trips // 100) == 99 * (gpu.limits.trips // 100)
    if "llvmpipe" in gpu.name.lower():
        assert trips(1, 100_000) < 100_000, "a Mesa without that budget: the guard could go"


def test_workgroup_memory_beyond_the_limit(gpu):
    """Not validated by wgpu: llvmpipe runs it, and hardware would not."""
    source = f"""struct P {{ n: u32 }}
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> s: array<f32, {gpu.limits.workgroup // 4 + 1}>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {{ s[i] = 1.0; y[i] = s[i]; }}
"""
    y = gpu.alloc(256)
    with pytest.raises(KernelError, match=rf"greedy: its workgroups share {gpu.limits.workgroup + 4} bytes"):
        gpu.run(Shader("greedy", source, (True,)), (y,), bytes(16), (1, 1, 1))
    declared = Shader("told", source.replace("array<f32, ", "array<f32, 1 * "), (True,), 1 << 20)
    with pytest.raises(KernelError, match="told: its workgroups share 1048576"):
        gpu.run(declared, (y,), bytes(16), (1, 1, 1))


def test_blocks_from_the_pool_are_stale(gpu, rng):
    """Known to those who take `empty`: nothing here counts on zeros, and the status word is cleared."""
    for _ in range(4):
        gpu.write(gpu.alloc(4), b"\xff" * 4)
    assert gpu.take_status() == 0


# ---- what WebGPU refuses, in our words ----------------------------------------------------------------


def test_a_binding_beyond_the_limit(gpu, scale, monkeypatch):
    """Creating the buffer succeeds, and binding it does not; a part of it is fine."""
    most = min(gpu.limits.binding, 1 << 28)  # as if: some bind gigabytes
    monkeypatch.setattr(gpu._bindings, "_limits", replace(gpu.limits, binding=most))
    big = Array((most // 4 + 1,), np.float32, gpu.alloc(most + 4))
    y = Array.empty(gpu, (64,), np.float32)
    with pytest.raises(KernelError, match=rf"scale: binding 1 is {most + 4} bytes from 0 on.* {most} at most; split"):
        scale(gpu, big, y, 2.0)
    gpu.write(big.buffer, np.full(64, 7, np.float32), 512)
    scale(gpu, SimpleNamespace(buffer=View(big.buffer, 512, 256), size=64), y, 2.0)
    assert (y.numpy() == 14).all()


def test_an_array_of_three_gib_or_more(gpu):
    with pytest.raises(OutOfMemory, match=r"requested, and one array on .* has \d+ at most"):
        Array.empty(gpu, ((gpu.limits.buffer >> 2) + 1,), np.float32)
    if gpu.limits.buffer < 3 << 30:
        with pytest.raises(OutOfMemory, match="3221225472 bytes"):
            Array.empty(gpu, (3 << 28,), np.float32)


def test_memory_that_software_promises(gpu):
    """llvmpipe gives 40 times 2 GiB, of which the kernel of the host then has none."""
    if gpu.memory is None:
        pytest.skip("hardware says when it has no more")
    each = gpu.limits.buffer // 2
    with pytest.raises(OutOfMemory, match="are free"):
        [gpu.alloc(each) for _ in range(2 + gpu.memory // each)]
    gpu.alloc(1 << 20)


def test_wgpus_own_word_of_no_memory(gpu, monkeypatch):
    """What is kept for later goes, and then it is OutOfMemory, with nothing broken."""
    import wgpu

    real, calls = gpu.device.create_buffer, []

    def fails(**given):
        calls.append(given)
        raise wgpu.GPUOutOfMemoryError("Not enough memory left.")

    gpu._heap.pool.trim(0)
    monkeypatch.setattr(gpu.device, "create_buffer", fails)
    with pytest.raises(OutOfMemory, match=r"has no room \(Not enough memory left"):
        gpu.alloc(123_456)
    assert len(calls) == 2
    monkeypatch.setattr(
        gpu.device, "create_buffer", lambda **given: fails(**given) if len(calls) < 3 else real(**given)
    )
    assert gpu.alloc(123_456).nbytes == 123_456


def test_one_buffer_twice(gpu, scale):
    """Read twice is fine; read and written is for another shader."""
    a = Array.of(gpu, np.ones(100, np.float32))
    with pytest.raises(KernelError, match="scale: binding 2 is bound twice, and written"):
        scale(gpu, a, a, 2.0)
    wide = Array.of(gpu, np.ones(128, np.float32))
    with pytest.raises(KernelError, match="bound twice"):  # in two parts, too
        scale(gpu, SimpleNamespace(buffer=View(wide.buffer, 0, 256), size=64),
              SimpleNamespace(buffer=View(wide.buffer, 256, 256)), 2.0)  # fmt: skip
    source = """struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(128) fn main(@builtin(local_invocation_index) i: u32) { y[i] = a[i] + b[i]; }
"""
    y = Array.empty(gpu, (100,), np.float32)
    gpu.run(Shader("add", source, (False, False, True)), (a.buffer, a.buffer, y.buffer), b"", (1, 1, 1))
    assert (y.numpy() == 2).all()


def test_a_binding_that_the_shader_does_not_use(gpu):
    """It would be missing from a layout that WebGPU finds out by itself."""
    source = """@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn main() { y[0] = 3.0; }
"""
    a, y = gpu.alloc(4), gpu.alloc(4)
    gpu.run(Shader("sparing", source, (False, True)), (a, y), b"", (1, 1, 1))
    assert np.frombuffer(gpu.read(y, 4), np.float32)[0] == 3


def test_a_shader_that_does_not_compile(gpu, scale):
    """The compiler's words, and a device that goes on, inside of a batch too."""
    y = Array.of(gpu, np.ones(64, np.float32))
    bad = Shader("typo", "@compute @workgroup_size(1) fn main() { let x = ; }", (True,))
    with pytest.raises(KernelError, match=r"typo does not compile \(.*expected expression"):
        gpu.run(bad, (y.buffer,), b"", (1, 1, 1))
    with pytest.raises(KernelError, match="typo does not compile"), gpu.batch():
        gpu.run(bad, (y.buffer,), b"", (1, 1, 1))
    many = Shader("many", "@compute @workgroup_size(4096) fn main() { }", (True,))
    with pytest.raises(KernelError, match="many does not compile"):
        gpu.run(many, (y.buffer,), b"", (1, 1, 1))
    z = Array.empty(gpu, (64,), np.float32)
    scale(gpu, y, z, 2.0)
    assert (z.numpy() == 2).all()
    with pytest.raises(KernelError, match="1 buffers for 2 bindings"):
        gpu.run(Shader("few", SCALE, (False, True)), (y.buffer,), b"", (1, 1, 1))


# ---- what grows ---------------------------------------------------------------------------------------


def test_uploads_that_nobody_uses_are_not_kept(gpu, rng):
    """The queue keeps a copy of each write until the next submission."""
    buffer, data = gpu.alloc(1 << 20), bytes(1 << 20)
    for _ in range(300):
        gpu.write(buffer, data)
    assert 3 <= gpu.counts.submits <= 10


def test_bind_groups_are_bounded_and_go_with_their_blocks(gpu, scale):
    from trueno_wgpu.device.bindings import GROUPS

    a = Array.of(gpu, np.ones(64, np.float32))
    held = [Array.empty(gpu, (64,), np.float32) for _ in range(GROUPS + 500)]
    for y in held:
        scale(gpu, a, y, 2.0)
    assert len(gpu._bindings._groups) <= GROUPS
    assert len(a.buffer.memory.groups) <= GROUPS, "keys of what is gone"
    del held, y
    gpu.wait()
    with gpu._queue.lock:
        gpu._bindings.forget([*gpu._heap.pool.collect(), *gpu._heap.pool.trim(0)])
    assert len(a.buffer.memory.groups) == 0
    assert gpu.counts.bind_groups == GROUPS + 500


def test_staging_is_used_again(gpu, monkeypatch):
    made = []
    real = gpu._transfers._staging._make
    monkeypatch.setattr(gpu._transfers._staging, "_make", lambda size: made.append(size) or real(size))
    monkeypatch.setattr(gpu._transfers._staging, "_idle", [])
    buffer = gpu.alloc(1 << 20)
    for nbytes in (4, 4096, 5000, 1 << 20, 100, 4096, 5000, 1 << 20):
        gpu.read(buffer, nbytes)
    assert made == [4096, 8192, 1 << 20]
    assert staging.Staging(lambda size: size).take(1 << 25) == (1 << 25, 1 << 25)


# ---- what compilers of shaders make of numbers that they think they know ---------------------------------


@pytest.mark.parametrize("first", ["softmax", "sigmoid", "exp", "abs", "relu"])
@pytest.mark.parametrize("then", ["tanh", "asinh", "atan", "sin", "mish", "round", "signum", "expm1"])
def test_functions_of_a_number_that_is_surely_positive(first: str, then: str, chosen: None) -> None:
    """Mesa 22 forgot the exponent of tanh(x) where x came from an exp: a sign that it knew was copied."""
    x = np.random.default_rng(len(first + then)).uniform(-1, 3, (2, 7)).astype(np.float32)
    with trueno.Batch("wgpu") as b:
        fused = getattr(b, then)(getattr(b, first)(b.upload(x)))
        b.execute()
        got = b.read(fused)
    with trueno.use("reference"):
        wanted = getattr(trueno, then)(getattr(trueno, first)(x.astype(np.float64)))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_number_less_itself(chosen: None) -> None:
    """One array twice is one buffer: x − x is 0 for numbers alone, and compilers know of nothing else."""
    x = np.array([np.nan, np.inf, -np.inf, 1.0, 0.0], np.float32)
    with trueno.use("wgpu"), trueno.Batch("wgpu") as b:
        h = b.upload(x)
        made = [b.sub(h, h), b.add(h, b.neg(h))]
        b.execute()
        for got in (trueno.sub(x, x), *map(b.read, made)):
            np.testing.assert_array_equal(got, [np.nan, np.nan, np.nan, 0, 0])
