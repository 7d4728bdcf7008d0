"""The device layer: bytes there and back, order, batches, and what is counted."""

import gc
import struct
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import KernelError, OutOfMemory
from trueno_wgpu.device import staging
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import UNIFORM, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader, shared_bytes

NUMBER = """@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn main() { y[0] = NUMBER; }
"""


def floats(rng, n=1000):
    return rng.standard_normal(n).astype(np.float32)


# ---- bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [*range(1, 10), 255, 256, 257, 4095, 4097, 70_001])
def test_bytes_there_and_back(gpu, rng, nbytes):
    """Of any length: WebGPU itself moves whole words."""
    sent = rng.bytes(nbytes)
    buffer = gpu.alloc(nbytes)
    assert buffer.nbytes == max(-(-nbytes // 4) * 4, 4)
    gpu.write(buffer, sent)
    assert bytes(gpu.read(buffer, nbytes)) == sent
    into = bytearray(nbytes)
    assert gpu.read(buffer, nbytes, into=into).obj is into and into == sent


def test_parts_of_a_buffer(gpu, rng):
    sent = bytearray(rng.bytes(1000))
    buffer = gpu.alloc(1000)
    gpu.write(buffer, sent)
    gpu.write(buffer, b"12345", 100)
    sent[100:108] = b"12345\0\0\0"
    assert bytes(gpu.read(buffer, 1000)) == sent
    assert bytes(gpu.read(buffer, 17, 96)) == sent[96:113]
    for call in (
        lambda: gpu.write(buffer, bytes(1001)),
        lambda: gpu.write(buffer, b"1234", 2),
        lambda: gpu.write(buffer, b"1234", 1000),
        lambda: gpu.read(buffer, 8, 996),
        lambda: gpu.read(buffer, 8, -4),
        lambda: gpu.read(buffer, 8, into=bytearray(9)),
        lambda: gpu.read(buffer, 8, into=bytes(8)),
        lambda: gpu.copy(buffer, gpu.alloc(4), 8),
    ):
        with pytest.raises(KernelError):
            call()
    assert bytes(gpu.read(buffer, 0)) == b""
    gpu.write(buffer, b"")


def test_large_transfers_go_in_pieces(gpu, rng, monkeypatch):
    sent = rng.bytes(1_000_003)
    buffer = gpu.alloc(len(sent))
    monkeypatch.setattr(staging, "CHUNK", 65536)
    monkeypatch.setattr(staging, "SLICE", 10_000)
    gpu.write(buffer, sent)
    assert bytes(gpu.read(buffer, len(sent))) == sent
    assert (gpu.counts.uploads, gpu.counts.downloads) == (1, 1)
    assert gpu.counts.bytes_up == gpu.counts.bytes_down == len(sent)


def test_more_than_a_chunk(gpu, rng):
    x = np.arange(10_000_000, dtype=np.float32)
    assert 4 * x.size > staging.CHUNK
    np.testing.assert_array_equal(Array.of(gpu, x).numpy(), x)


# ---- running, and order -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_run(gpu, rng, scale, n):
    x = floats(rng, n)
    a, b = Array.of(gpu, x), Array.empty(gpu, (n,), np.float32)
    scale(gpu, a, b, 2.5)
    np.testing.assert_array_equal(b.numpy(), np.float32(2.5) * x)


def test_a_small_op_and_its_result_are_one_submission(gpu, rng, scale):
    a, b = Array.of(gpu, floats(rng)), Array.empty(gpu, (1000,), np.float32)
    scale(gpu, a, b, 2.0)
    assert gpu.counts.submits == 0
    b.numpy()
    assert (gpu.counts.submits, gpu.counts.kernels) == (1, 1)


def test_much_work_is_submitted_at_once(gpu, rng, scale):
    n = 64 * 2100
    a, b = Array.of(gpu, floats(rng, n)), Array.empty(gpu, (n,), np.float32)
    scale(gpu, a, b, 2.0)
    assert gpu.counts.submits == 1
    small = Array.empty(gpu, (10,), np.float32)
    for _ in range(40):
        scale(gpu, small, Array.empty(gpu, (10,), np.float32), 2.0)
    assert gpu.counts.submits == 3


def test_what_is_held_back_runs_before_what_is_written_later(gpu, rng, scale):
    """WebGPU would write first: the queue's own writes go before every command that is submitted after them."""
    x, z = floats(rng), floats(rng)
    a, b, c = Array.of(gpu, x), Array.empty(gpu, (1000,), np.float32), Array.empty(gpu, (1000,), np.float32)
    scale(gpu, a, b, 2.0)
    a.write(z)
    scale(gpu, a, c, 2.0)
    np.testing.assert_array_equal(b.numpy(), 2 * x)
    np.testing.assert_array_equal(c.numpy(), 2 * z)


def test_memory_that_waiting_work_needs_is_given_to_nobody(gpu, rng, scale):
    """`a` dies while its kernel is held back, and the next array would get its block and be written first."""
    x, z = floats(rng), floats(rng)
    results = [Array.empty(gpu, (1000,), np.float32) for _ in range(3)]
    for value, result in zip((x, z, x), results, strict=True):
        scale(gpu, Array.of(gpu, value), result, 2.0)
    for value, result in zip((x, z, x), results, strict=True):
        np.testing.assert_array_equal(result.numpy(), 2 * value)


def test_the_same_in_a_batch(gpu, rng, scale):
    x, z = floats(rng), floats(rng)
    b, c = Array.empty(gpu, (1000,), np.float32), Array.empty(gpu, (1000,), np.float32)
    with gpu.batch():
        scale(gpu, Array.of(gpu, x), b, 2.0)
        scale(gpu, Array.of(gpu, z), c, 2.0)
    np.testing.assert_array_equal(b.numpy(), 2 * x)
    np.testing.assert_array_equal(c.numpy(), 2 * z)


def test_copies_are_in_order(gpu, rng, scale):
    x = floats(rng)
    a, b, c = Array.of(gpu, x), Array.empty(gpu, (1000,), np.float32), Array.empty(gpu, (1000,), np.float32)
    scale(gpu, a, b, 2.0)
    gpu.copy(b.buffer, c.buffer, b.nbytes)
    scale(gpu, c, b, 2.0)
    np.testing.assert_array_equal(c.numpy(), 2 * x)
    np.testing.assert_array_equal(b.numpy(), 4 * x)
    gpu.copy(b.buffer, b.buffer, b.nbytes)
    assert gpu.counts.copies == 1


# ---- batches ------------------------------------------------------------------------------------------


def test_a_batch_is_one_submission(gpu, rng, scale):
    """Two uploads, one download, one submission, as a chain of three."""
    x, w = floats(rng), floats(rng)
    a, b, y = Array.of(gpu, x), Array.of(gpu, w), Array.empty(gpu, (1000,), np.float32)
    with gpu.batch():
        for source, factor in ((a, 2.0), (b, 3.0), (a, 4.0)):
            scale(gpu, source, y, factor)
        assert gpu.counts.submits == 0
        result = y.numpy()
    np.testing.assert_array_equal(result, 4 * x)
    found = gpu.counts
    assert (found.uploads, found.downloads, found.submits, found.kernels) == (2, 1, 1, 3)


def test_what_goes_wrong_in_a_batch_drops_it(gpu, rng, scale):
    x = floats(rng)
    a, b = Array.of(gpu, x), Array.of(gpu, np.zeros(1000, np.float32))

    def spoilt():
        with gpu.batch():
            scale(gpu, a, b, 2.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoilt()
    assert gpu.counts.submits == 0
    assert not b.numpy().any()

    def spoilt_at_once():
        with gpu.batch():
            gpu.copy(a.buffer, b.buffer, a.nbytes)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoilt_at_once()
    assert not b.numpy().any()
    scale(gpu, a, b, 3.0)
    np.testing.assert_array_equal(b.numpy(), 3 * x)


def test_a_batch_in_a_batch_is_part_of_it(gpu, rng, scale):
    x = floats(rng)
    a, b = Array.of(gpu, x), Array.empty(gpu, (1000,), np.float32)
    with gpu.batch():
        with gpu.batch():
            scale(gpu, a, b, 2.0)
        assert gpu.counts.submits == 0
    assert gpu.counts.submits == 1
    np.testing.assert_array_equal(b.numpy(), 2 * x)


def test_transfers_inside_of_a_batch(gpu, rng, scale):
    """A read submits what there is, and a write what used its target before."""
    x, z = floats(rng), floats(rng)
    a, b, c = Array.of(gpu, x), Array.empty(gpu, (1000,), np.float32), Array.empty(gpu, (1000,), np.float32)
    with gpu.batch():
        scale(gpu, a, b, 2.0)
        a.write(z)
        assert gpu.counts.submits == 1
        scale(gpu, a, c, 2.0)
        np.testing.assert_array_equal(b.numpy(), 2 * x)
        gpu.wait()
    np.testing.assert_array_equal(c.numpy(), 2 * z)


def test_held_work_comes_before_a_batch(gpu, rng, scale):
    x = floats(rng)
    a, b, c = Array.of(gpu, x), Array.empty(gpu, (1000,), np.float32), Array.empty(gpu, (1000,), np.float32)
    scale(gpu, a, b, 2.0)
    with gpu.batch():
        scale(gpu, b, c, 2.0)
    np.testing.assert_array_equal(c.numpy(), 4 * x)
    assert gpu.counts.submits == 2  # the reading is one, too


# ---- uniforms, shaders, grids -------------------------------------------------------------------------


def test_uniforms_are_never_written_over(gpu, rng, scale):
    """5000 contents in 1024 places that are remembered, all in one submission; and the first again."""
    x = floats(rng, 64)
    a = Array.of(gpu, x)
    results = [Array.empty(gpu, (64,), np.float32) for _ in range(5000)]
    with gpu.batch():
        for i, result in enumerate(results):
            scale(gpu, a, result, float(i))
        scale(gpu, a, results[7], 0.5)
        scale(gpu, a, results[0], 4999.0)
    for i in (1, 2, 3, 1023, 1024, 1025, 4096, 4999):
        np.testing.assert_array_equal(results[i].numpy(), np.float32(i) * x)
    np.testing.assert_array_equal(results[7].numpy(), np.float32(0.5) * x)
    np.testing.assert_array_equal(results[0].numpy(), np.float32(4999) * x)


def test_another_number_needs_no_other_bind_group(gpu, rng, scale):
    a, b = Array.of(gpu, floats(rng)), Array.empty(gpu, (1000,), np.float32)
    scale(gpu, a, b, 1.5)
    gpu.counts.reset()
    for i in range(50):
        scale(gpu, a, b, float(i))
    assert (gpu.counts.bind_groups, gpu.counts.pipelines) == (0, 0)


def test_wide_uniforms(gpu):
    source = """struct P { v: array<vec4<f32>, 40> }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(40) fn main(@builtin(local_invocation_index) i: u32) { y[i] = p.v[i]; }
"""
    y = gpu.alloc(640)
    for k in range(3):
        content = np.arange(160, dtype=np.float32) + k
        gpu.run(Shader("wide", source, (True,)), (y,), content.tobytes(), (1, 1, 1))
        assert bytes(gpu.read(y, 640)) == content.tobytes()


def test_a_view_binds_a_part(gpu, rng):
    source = """struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = -y[id.x]; }
}
"""
    x = floats(rng, 300)
    a = Array.of(gpu, x)
    gpu.run(Shader("negate", source, (True,)), (View(a.buffer, 256, 400),), b"", (2, 1, 1))
    x[64:164] *= -1
    np.testing.assert_array_equal(a.numpy(), x)


def test_fold():
    for groups in (0, 1, 5, 65535, 65536, 65537, 200_000, 65535 * 3 + 1, 65535**2):
        x, y, z = fold(groups, 65535)
        assert max(x, y) <= 65535 and z == 1 and max(groups, 1) <= x * y < max(groups, 1) + x
    assert fold(7, 65535) == (7, 1, 1)


def test_beyond_65535_workgroups(gpu, scale):
    """Folded in two, as every kernel's grid is; not folded, it is an error that says so."""
    n = 64 * 70_000 - 3
    x = np.arange(n, dtype=np.float32)
    a, b = Array.of(gpu, x), Array.empty(gpu, (n,), np.float32)
    scale(gpu, a, b, 2.0)
    np.testing.assert_array_equal(b.numpy(), 2 * x)
    with pytest.raises(KernelError, match=r"70000.*65535.*fold"):
        gpu.run(Shader("far", "", (False, True)), (a.buffer, b.buffer), b"", (70_000, 1, 1))


def test_a_grid_of_nothing_runs_nothing(gpu):
    gpu.run(Shader("none", "", ()), (), b"", (0, 1, 1))
    assert gpu.counts.kernels == 0


def test_workgroup_memory_by_the_text():
    def of(declared):
        return shared_bytes(Shader("s", f"{declared}\n@compute ...", ()))

    assert of("") == 0
    assert of("var<workgroup> s: array<f32, 64>;") == 256
    assert of("var<workgroup> s: array<vec4<f32>, 64>; var< workgroup > t : vec3f;var<workgroup> u: u32;") == 1044
    assert of("var<workgroup> s: array<array<f32, 17>, 16>;") == 1088
    assert shared_bytes(Shader("s", "var<workgroup> s: array<f32, N>;", (), 4096)) == 4096


def test_pipelines_are_bounded(gpu, monkeypatch):
    """The one that was not used for longest goes first, and is made again; none that waits for its submission dies."""
    from trueno_wgpu.device import bindings

    kept = gpu._bindings._pipelines
    assert kept.most == (bindings.SOFTWARE_PIPELINES if gpu.software else bindings.PIPELINES)
    monkeypatch.setattr(gpu._bindings, "_pipelines", type(kept)(4))
    y = [gpu.alloc(4) for _ in range(8)]
    shaders = [
        Shader(f"bounded {i}", NUMBER.replace("NUMBER", f"{i}.25"), (True,)) for i in range(8)
    ]  # fmt: skip
    with gpu.batch():
        for i in range(8):
            gpu.run(shaders[0], (y[0],), b"", (1, 1, 1))
            gpu.run(shaders[i], (y[i],), b"", (1, 1, 1))
    assert [np.frombuffer(gpu.read(b, 4), np.float32)[0] for b in y] == [i + 0.25 for i in range(8)]
    assert len(gpu._bindings._pipelines) == 4 and gpu.counts.pipelines == 8
    gpu.run(shaders[0], (y[1],), b"", (1, 1, 1))
    assert gpu.counts.pipelines == 8
    gpu.run(shaders[1], (y[1],), b"", (1, 1, 1))
    assert gpu.counts.pipelines == 9
    assert np.frombuffer(gpu.read(y[1], 4), np.float32)[0] == 1.25


# ---- memory -------------------------------------------------------------------------------------------


def test_blocks_are_used_again(gpu, rng):
    for _ in range(3):
        Array.of(gpu, floats(rng, 12_345))
    gpu.counts.reset()
    for _ in range(20):
        Array.of(gpu, floats(rng, 12_345))
    assert gpu.counts.allocations == 0


def test_buffers_that_die_in_circles(gpu, rng):
    """The collector finalizes a circle's objects in one go: a block must outlive the buffer that gives it back."""
    gc.collect()
    for _ in range(20):
        circle = [gpu.alloc(54_321)]
        circle.append(circle)
    del circle
    gc.collect()
    gpu.counts.reset()
    for _ in range(20):
        x = floats(rng, 13_580)
        np.testing.assert_array_equal(Array.of(gpu, x).numpy(), x)
    assert gpu.counts.allocations == 0, "the blocks were not given back"


def test_uniforms_that_die_in_circles(gpu):
    """All slots of a page, and nothing else that knows it."""
    from trueno_wgpu.device.uniforms import PAGE, Uniforms

    uniforms = Uniforms(lambda n: gpu._heap.create(n, UNIFORM), gpu.device.queue.write_buffer)
    circle = [uniforms.slot(struct.pack("I", i)) for i in range(PAGE)]
    circle.append(circle)
    uniforms._known.clear()
    del circle
    gc.collect()
    made = [uniforms.slot(struct.pack("I", i)) for i in range(PAGE)]
    assert len({(slot.page.uid, *slot.offsets) for slot in made}) == PAGE
    assert len({slot.page.uid for slot in made}) == 1


def test_size_classes():
    from trueno_wgpu.device.memory import block

    most = 2147483644
    for n in [*range(1, 5000, 7), *(2**k + d for k in range(12, 31) for d in (-4, 0, 4))]:
        size = block(n, most)
        assert n <= size <= most and size % 4 == 0 and (size == n or size <= 256 or size < 1.126 * n or size < 4096)
    assert block(most, most) == most


def test_the_pool_keeps_what_it_may():
    from trueno_wgpu.device.memory import Memory, Pool

    pool = Pool(1000)
    blocks = [pool.add(Memory(SimpleNamespace(), 400)) for _ in range(4)]
    assert pool.lent == 1600
    pool.dropped.extend(blocks)
    assert pool.collect() == blocks[:2] and (pool.lent, pool.idle) == (0, 800)
    assert pool.lend(300) is None and pool.lend(400) is blocks[3] and (pool.lent, pool.idle) == (400, 400)
    assert pool.trim(0) == [blocks[2]] and pool.idle == 0


def test_limits(gpu):
    found = gpu.limits
    assert found.binding <= found.buffer and found.binding % 4 == found.buffer % 4 == 0
    assert found.alignment == 256 and found.invocations == 256 and found.groups == 65535 and found.workgroup >= 16384
    assert found.trips == (60_000 if gpu.software else 0)


def test_a_budget(gpu, monkeypatch):
    """Software promises any memory, so the layer counts; unused buffers go first."""
    gpu.wait()
    monkeypatch.setattr(gpu._heap, "budget", gpu._heap.pool.lent + (64 << 20))
    kept = gpu.alloc(40 << 20)
    with pytest.raises(OutOfMemory, match=r"TRUENO_WGPU_MEMORY"):
        gpu.alloc(40 << 20)
    del kept
    for size in (40, 50, 60):
        gpu.alloc(size << 20)


def test_the_status_word_is_each_threads_own(gpu):
    from threading import Thread

    source = """struct P { bits: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> status: atomic<u32>;
@compute @workgroup_size(1) fn main() { atomicOr(&status, p.bits); }
"""
    shader = Shader("guarded", source, (True,))
    assert gpu.take_status() == 0 and gpu.counts.submits == 0
    gpu.run(shader, (gpu.status,), struct.pack("I", 1), (1, 1, 1))
    other = []

    def elsewhere():
        other.append(gpu.take_status())
        gpu.run(shader, (gpu.status,), struct.pack("I", 2), (1, 1, 1))
        other.append(gpu.take_status())

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert other == [0, 2]
    gpu.run(shader, (gpu.status,), struct.pack("I", 2), (1, 1, 1))
    assert gpu.take_status() == 3 and gpu.take_status() == 0
    gpu.run(shader, (gpu.status,), struct.pack("I", 0), (1, 1, 1))
    assert gpu.take_status() == 0
