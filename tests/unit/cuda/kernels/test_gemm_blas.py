"""Which way a product goes where cuBLAS is there, on a device that emulates one."""

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.discovery.protocol import Call
from trueno.errors import OutOfMemory
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import KERNELS
from trueno_cuda.kernels.gemm import blas

F = np.dtype(np.float32)


class Clock:
    """Seconds that have passed."""

    now = 0.0


class WithBlas(Emulator):
    """An emulator whose cuBLAS is NumPy, and takes so much longer than our kernels, by a clock of its own."""

    def __init__(self, seconds):
        super().__init__("sm_80")
        self.seconds, self.called, self.full = seconds, 0, False

    def empty(self, shape, dtype):
        if self.full and len(shape) == 2:
            raise OutOfMemory("no room to try")
        return super().empty(shape, dtype)

    def blas(self, dtype, m, n, depth, instead):
        def launch(pointers, floats=()):
            if self._here.recorded is not None:
                return instead(pointers, floats)
            self.called += 1
            Clock.now += self.seconds
            a, b, out = (self._at(p).view(dtype)[: r * c].reshape(r, c)
                         for p, (r, c) in zip(pointers, ((m, depth), (depth, n), (m, n)), strict=True))  # fmt: skip
            out[...] = a @ b
            return None

        return launch


def product(device, guarded=False):
    rng = np.random.default_rng(fresh_seed())
    x, y = (rng.standard_normal((48, 48)).astype(F) for _ in range(2))
    a, b = device.to_device(x), device.to_device(y)
    call = Call(TABLE["matmul"], F, "", 2, (12, 12), residency="cuda_emulated", guarded=guarded)
    run, out = KERNELS.kernel(call, device), device.to_device(np.zeros((48, 48), F))
    device.full = device.full or False
    assert run(a, b, out) == 0
    np.testing.assert_allclose(device.to_host(out), x.astype("f8") @ y, rtol=1e-4, atol=1e-4)
    return run, a, b, out


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(blas, "LEAST", 1)
    monkeypatch.setattr(blas, "perf_counter", lambda: Clock.now)


def test_the_quicker_way_is_kept():
    quick = WithBlas(-0.5)
    run, *arrays = product(quick)
    before = quick.called
    run(*arrays)
    assert quick.called == before + 1


def test_a_slower_one_is_not():
    slow = WithBlas(0.5)
    run, *arrays = product(slow)
    assert slow.called == blas.ROUNDS
    run(*arrays)
    assert slow.called == blas.ROUNDS


def test_without_room_to_try_it_is_the_guess(monkeypatch):
    device = WithBlas(-0.5)
    monkeypatch.setattr(blas, "_seconds", lambda *_: (_ for _ in ()).throw(OutOfMemory("none")))
    product(device)
    assert device.called == 1


def test_guarded_products_are_ours():
    device = WithBlas(-0.5)
    product(device, guarded=True)
    assert device.called == 0


def test_recordings_have_ours():
    device = WithBlas(-0.5)
    run, a, b, out = product(device)
    before = device.called
    with device.recording() as made:
        run(a, b, out)
    device.write(np.zeros((48, 48), F), out)
    made.replay()
    assert device.called == before
    np.testing.assert_allclose(
        device.to_host(out), device.to_host(a).astype("f8") @ device.to_host(b), rtol=1e-4, atol=1e-4
    )


def test_small_products_and_other_devices_do_not_try(monkeypatch):
    monkeypatch.setattr(blas, "LEAST", 1 << 24)
    device = WithBlas(-0.5)
    product(device)
    assert device.called == 0
    assert not blas.worth_trying(Emulator(), 4096, 4096, 4096)
