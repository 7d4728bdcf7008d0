"""What a step reads behind and sends ahead, on the stub: slots of pinned memory, and the bytes of a mirror."""

from threading import Thread

import numpy as np
import pytest
from trueno.errors import DeviceLost, KernelError


def test_slots_are_few_and_used_again(machine):
    gpu, stub = machine.gpu(), machine.stub
    x = gpu.to_device(np.arange(4, dtype=np.int64))
    before = stub.pinned_now
    first, second = gpu.fetch(x), gpu.fetch(x)
    assert stub.pinned_now == before + 2
    first()
    with pytest.raises(KernelError, match="fetched already"):
        first()
    del second  # it was not waited for
    for _ in range(5):
        assert gpu.fetch(x)().shape == (4,)
    assert stub.pinned_now == before + 2
    gpu.close()
    assert stub.pinned_now == 0


def test_one_of_two_threads_gets_the_array(machine, monkeypatch):
    """The other one is refused while the first waits, and the slot is given back once."""
    gpu, stub = machine.gpu(), machine.stub
    x = gpu.to_device(np.arange(4, dtype=np.int64))
    before, ended, threads, refused = stub.pinned_now, gpu._transfers.ended, [], []
    later = gpu.fetch(x)

    def other():
        with pytest.raises(KernelError, match="fetched already") as error:
            later()
        refused.append(error)

    def waits(slot):
        if not threads:
            threads.append(Thread(target=other))
            threads[0].start()
            threads[0].join()
        ended(slot)

    monkeypatch.setattr(gpu._transfers, "ended", waits)
    assert later().shape == (4,) and len(refused) == 1
    both = gpu.fetch(x), gpu.fetch(x)
    assert stub.pinned_now == before + 2, "two copies that are under way have a slot each"
    assert all(wait().shape == (4,) for wait in both)


@pytest.mark.parametrize("function", ["cuLaunchKernelEx", "cuEventRecord", "cuEventSynchronize"])
def test_an_error_loses_no_slot(machine, function):
    """Where the copy cannot begin, the next one has its slot; where the wait fails, it may be repeated."""
    gpu, stub = machine.gpu(), machine.stub
    x = gpu.to_device(np.arange(4, dtype=np.int64))
    before = stub.pinned_now
    gpu.fetch(x)()
    for _ in range(3):
        later = None if function != "cuEventSynchronize" else gpu.fetch(x)
        stub.fail(function, 1)
        with pytest.raises(KernelError):
            gpu.fetch(x) if later is None else later()
        assert later is None or later().shape == (4,)
    gpu.fetch(x)()
    assert stub.pinned_now == before + 1


def test_what_is_large_is_read_at_once(machine):
    gpu = machine.gpu()
    x = np.arange(1 << 14, dtype=np.float64)
    np.testing.assert_array_equal(gpu.fetch(gpu.to_device(x))(), x)
    assert gpu.fetch(gpu.to_device(x[:0]))().shape == (0,)


def test_a_lost_device_is_said_when_a_result_is_waited_for(machine):
    gpu, stub = machine.gpu(), machine.stub
    later = gpu.fetch(gpu.to_device(np.zeros(2)))
    stub.fail("cuEventSynchronize", 700, times=9)
    with pytest.raises(DeviceLost):
        later()


def test_a_mirror_gets_the_bytes_that_are_sent(machine):
    gpu = machine.gpu()
    host = np.zeros(512, np.uint8)
    mirror = gpu.mirror(host)
    host[:] = 3
    mirror.send(256)
    held = gpu.to_host(mirror._there)
    assert held[:256].tolist() == [3] * 256 and not held[256:].any()
    with pytest.raises(KernelError, match="is not in 512"):
        mirror.part(256, (33,), np.dtype(np.float64))
