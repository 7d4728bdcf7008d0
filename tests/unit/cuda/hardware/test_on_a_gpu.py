"""The device on a real GPU: run where there is one with `pytest -m gpu`."""

import os
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.errors import KernelError, OutOfMemory
from trueno_cuda.device import hardware
from trueno_cuda.device.hardware import staging, transfers
from unit.cuda.hardware import kernels

pytestmark = pytest.mark.gpu

LOST = """
import numpy as np
from trueno.errors import DeviceLost
from trueno_cuda.device.hardware import device
from unit.cuda.hardware import kernels
gpu = device()
x = gpu.to_device(np.zeros(256, np.float32))
gpu.prepare(kernels.add.build(arch=gpu.arch), (1, 1, 1), (256,))((x.data.ptr, 0x10, x.data.ptr))
for act in (gpu.wait, gpu.wait, lambda: gpu.to_host(x), lambda: gpu.to_device(np.zeros(4))):
    try:
        act()
        print("no error")
    except DeviceLost as error:
        print("lost" if "restart" in str(error) else error)
gpu.close()
"""
FORK = """
import os
import numpy as np
from trueno.errors import BackendUnavailable, DeviceLost
from trueno_cuda.device.hardware import device, probe
gpu = device()
x = gpu.to_device(np.arange(4))
child = os.fork()
if child == 0:
    for act in (lambda: gpu.to_host(x), device):
        try:
            act()
            print("no error", flush=True)
        except (BackendUnavailable, DeviceLost) as error:
            print("spawn" if "spawn" in str(error) else error, flush=True)
    print("spawn" if "spawn" in probe(2).reason else probe(2), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(gpu.to_host(x).sum())
"""


@pytest.fixture(scope="module")
def gpu():
    """The process's GPU, with an NVRTC that must not be called."""
    found = hardware.probe(2)
    if not found.ok:
        pytest.skip(found.reason)
    import cupy.cuda.compiler as compiler

    class Blocked:
        def __getattr__(self, name):
            raise AssertionError(f"NVRTC was asked for {name}")

    before, compiler.nvrtc = compiler.nvrtc, Blocked()
    yield hardware.device()
    compiler.nvrtc = before


def run(code, **more):
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | more | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def rng(request):
    seed = fresh_seed()
    print("seed", seed)
    return np.random.default_rng(seed)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1_000_003])
def test_sums(gpu, rng, n):
    a, b = rng.standard_normal((2, n)).astype(np.float32)
    x, y, out = gpu.to_device(a), gpu.to_device(b), gpu.empty((n,), np.dtype("f4"))
    launch = gpu.prepare(kernels.add.build(arch=gpu.arch), (-(-n // 256), 1, 1), (n,))
    launch((x.data.ptr, y.data.ptr, out.data.ptr))
    assert np.array_equal(gpu.to_host(out), a + b)
    assert out.data.ptr % 256 == 0


def test_shared_memory_and_an_early_start(gpu):
    out = gpu.to_device(np.zeros(256, np.float32))
    large = kernels.large.build(arch=gpu.arch)
    gpu.prepare(large, (1, 1, 1))((out.data.ptr,))
    assert gpu.to_host(out).sum() == 128
    if gpu.capability >= (9, 0):
        gpu.prepare(kernels.early.build(arch=gpu.arch), (1, 1, 1))((out.data.ptr,))
        gpu.prepare(kernels.paired.build(arch=gpu.arch), (2, 1, 1))((out.data.ptr,))
        gpu.wait()
    with pytest.raises(KernelError, match="needs 10000000 bytes of shared memory"):
        gpu.prepare(large, (1, 1, 1), shared=10_000_000)


@pytest.mark.parametrize("nbytes", [0, 1, 4096, (1 << 20) + 1, (9 << 20) + 12345])
@pytest.mark.parametrize("least", [1, 1 << 40])
def test_transfers(gpu, rng, nbytes, least):
    before, gpu._transfers = gpu._transfers, transfers.Transfers(gpu._context, least)
    gpu._transfers._staging = staging.Staging(gpu._context, workers=3)
    try:
        x = rng.integers(0, 256, nbytes, np.uint8)
        there = gpu.to_device(x)
        y = x.copy()
        x[:] = 0  # it was taken
        assert np.array_equal(gpu.to_host(there), y)
        gpu.write(x, there)
        out = np.ones(nbytes, np.uint8)
        assert gpu.to_host(there, out) is out and not out.any()
    finally:
        gpu._transfers.close()
        gpu._transfers = before


def test_strided_arrays(gpu, rng):
    a = rng.standard_normal((30, 40)).astype(np.float32)
    x = gpu.to_device(a)
    for of in (lambda v: v.T, lambda v: v[::3, 5::2], lambda v: v[::-1], lambda v: v[:, 7]):
        assert np.array_equal(gpu.to_host(of(x)), of(a))
        assert gpu.contiguous(of(x)).flags.c_contiguous


def test_a_recording(gpu):
    import cupy

    n = 1000
    a = np.arange(n, dtype=np.float32)
    add = gpu.prepare(kernels.add.build(arch=gpu.arch), (4, 1, 1), (n,))
    x, out = gpu.to_device(a), gpu.to_device(np.zeros(n, np.float32))
    with gpu.recording() as made:
        between = gpu.empty((n,), np.dtype("f4"))
        add((x.data.ptr, x.data.ptr, between.data.ptr))
        gpu.copy(between, out)
        add((out.data.ptr, x.data.ptr, out.data.ptr))
    assert not gpu.to_host(out).any()
    del between
    others = [gpu.to_device(np.full(n, 9, np.float32)) for _ in range(8)]
    made.replay()
    assert np.array_equal(gpu.to_host(out), 3 * a)
    gpu.write(2 * a, x)
    gpu.wait()
    with cupy.cuda.Stream(non_blocking=True):
        made.replay()
        assert np.array_equal(gpu.to_host(out), 6 * a)
    assert all((gpu.to_host(o) == 9).all() for o in others)


def test_threads(gpu):
    n, wrong = 1000, []
    add = gpu.prepare(kernels.add.build(arch=gpu.arch), (4, 1, 1), (n,))

    def work(seed):
        try:
            v = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
            x, out = gpu.to_device(v), gpu.empty((n,), np.dtype("f4"))
            with gpu.recording() as made:
                add((out.data.ptr, x.data.ptr, out.data.ptr))
            for _ in range(100):
                add((x.data.ptr, x.data.ptr, out.data.ptr))
                made.replay()
                if not np.array_equal(gpu.to_host(out), (v + v) + v):
                    wrong.append("a sum")
        except Exception as error:
            wrong.append(error)

    threads = [Thread(target=work, args=(seed,)) for seed in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_errors(gpu):
    with pytest.raises(OutOfMemory, match=r"no room for \d+ bytes .* are free on"):
        gpu.empty((1 << 40,), np.dtype("f8"))
    built = kernels.add.build(arch=gpu.arch)
    fields = {name: getattr(built, name) for name in built.__dataclass_fields__}
    text = built.text.replace("add.rn.f32", "add_rn.f32")
    assert text != built.text
    with pytest.raises(KernelError, match=r"(?s)add cannot be loaded: .*line \d+.*add_rn"):
        gpu.prepare(type(built)(**fields | {"text": text}), (1, 1, 1), (1,))
    x = gpu.empty((64, 64), np.dtype("f4"))
    with pytest.raises(KernelError, match="a tensor map of"):
        gpu.tensor_map(x.data.ptr, "f32", x.shape, (300, 32))
    assert len(gpu.tensor_map(x.data.ptr, "f32", x.shape, (32, 32), swizzle=128)) == 128


def test_a_bad_pointer_ends_the_gpu_and_not_the_process(gpu):
    assert run(LOST) == ["lost"] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_is_told_to_spawn(gpu):
    assert run(FORK) == ["spawn", "spawn", "spawn", "6"]


@pytest.mark.parametrize("value", ["", "77"])
def test_hidden(gpu, value):
    code = "from trueno_cuda.device.hardware import probe; print(probe(2).reason)"
    assert "hides every GPU" in run(code, CUDA_VISIBLE_DEVICES=value)[0]


def test_arrays_of_pytorch(gpu):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA here")
    import cupy

    a = torch.arange(1000, dtype=torch.float32, device="cuda")
    x, out = cupy.from_dlpack(a), gpu.empty((1000,), np.dtype("f4"))
    torch.cuda.synchronize()
    gpu.prepare(kernels.add.build(arch=gpu.arch), (4, 1, 1), (1000,))((x.data.ptr, x.data.ptr, out.data.ptr))
    assert torch.equal(torch.from_dlpack(out), a + a)
