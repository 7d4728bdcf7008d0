"""concatenate of the CUDA backend, on the emulator: to the bit."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import concatenate
from unit.cuda.kernels.moves import FLOATS, call, compute, part, random, unwritten

CASES = [
    ((5,), (8,), 0),
    ((3, 5, 7), (2, 5, 7), 0),
    ((3, 5, 7), (3, 1, 7), 1),
    ((3, 5, 8), (3, 5, 4), -1),
    ((130, 33), (130, 1), 1),
    ((40, 0), (40, 3), 1),
    ((2, 900), (2, 1300), 1),
]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def joined(device, a, b, axis, **options):
    shape = np.concatenate((a, b), axis).shape
    return compute(device, concatenate.concatenate, "concatenate", shape, a, b, axis=axis, **options)


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(np.float16), np.dtype(bfloat16)], ids=str)
def test_bits_are_copied(device, dtype):
    rng = random()
    for a, b, axis in CASES:
        a, b = (rng.integers(0, 256, (*s, dtype.itemsize), np.uint8).view(dtype)[..., 0] for s in (a, b))
        for shift in (0, 1):
            assert joined(device, a, b, axis, shift=shift).tobytes() == np.concatenate((a, b), axis).tobytes()


def test_large_arrays_are_split(device, monkeypatch):
    rng = random()
    for reach in (16 * 7, 16 * 50):
        monkeypatch.setattr(concatenate, "REACH", reach)
        for a, b, axis in CASES[:5]:
            a, b = (rng.standard_normal(s).astype("f4") for s in (a, b))
            assert joined(device, a, b, axis).tobytes() == np.concatenate((a, b), axis).tobytes()


def test_a_guard_hears(device):
    a, b = np.zeros((4, 6), "f4"), np.zeros((4, 5), "f4")
    joined(device, a, b, 1, guarded=True)
    assert device.take_status() == 0
    a[3, 5], b[0, 0] = np.inf, np.nan
    joined(device, a, b, 1, guarded=True)
    assert device.take_status() == 3


def test_what_is_refused(device):
    for a, b, out, axis in (((4, 3), (4, 2), (4, 6), 1), ((4, 3), (3, 3), (7, 3), 1), ((4, 3), (4,), (7, 3), 0)):
        kernel = concatenate.concatenate(device, call("concatenate", "f4", np.zeros(a), np.zeros(b), axis=axis))
        arrays = device.to_device(np.zeros(a, "f4")), device.to_device(np.zeros(b, "f4")), unwritten(device, out, "f4")
        assert kernel(*arrays) == -1 and np.isnan(arrays[2].elements).all()
    kernel = concatenate.concatenate(device, call("concatenate", "f4", np.zeros((2, 3)), np.zeros((2, 3)), axis=0))
    whole = device.to_device(np.zeros(40, "f4"))
    a = part(whole, (2, 3), 0)
    assert kernel(a, a, part(whole, (4, 3), 5)) == -1 and kernel(a, a, part(whole, (4, 3), 6)) == 0
