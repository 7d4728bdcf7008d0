"""transpose of the CUDA backend, on the emulator: to the bit, without bank conflicts, whatever the size."""

import numpy as np
import pytest
from trueno_cuda.catalogue.registry import find, run
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import operands, transpose
from trueno_cuda.ptx.emulate import load
from unit.cuda.kernels.moves import FLOATS, call, compute, part, random, shifted, unwritten

SIZES = [
    (1, 1), (1, 70), (70, 1), (3, 5), (31, 33), (32, 32), (64, 96), (65, 63), (129, 132), (257, 3), (7, 600), (16, 520),
]  # fmt: skip
"""One element, edges of tiles on both sides, and thin matrices."""


def bits(rng, dtype, *shape):
    """Any bits, so NaNs with payloads, subnormals and infinities too."""
    return rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("m, n", SIZES)
def test_bits_are_copied(device, dtype, m, n):
    x = bits(random(), dtype, m, n)
    for shift in (0, 1):
        assert compute(device, transpose.transpose, "transpose", (n, m), x, shift=shift).tobytes() == x.T.tobytes()


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_every_architecture(arch):
    x = bits(random(), FLOATS[0], 68, 72)
    got = compute(Emulator(arch), transpose.transpose, "transpose", (72, 68), x, guarded=True)
    assert got.tobytes() == x.T.tobytes()


@pytest.mark.parametrize("schedule", ["vectors", "elements"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_guarded_tells_what_it_moves(device, dtype, schedule):
    for value, told in ((1.0, 0), (np.nan, 1), (-np.inf, 2)):
        x = random().standard_normal((68, 36)).astype(dtype)
        x[67, 35] = value
        options = {"schedule": schedule}
        got = compute(device, transpose.transpose, "transpose", (36, 68), x, guarded=True, options=options)
        assert got.tobytes() == x.T.tobytes()
        assert device.take_status() == told


def test_a_guarded_kernel_tells_both_at_once(device):
    x = np.ones((40, 40), np.float32)
    x[0, 0], x[39, 39] = np.inf, np.nan
    compute(device, transpose.transpose, "transpose", (40, 40), x, guarded=True)
    assert device.take_status() == 3


@pytest.mark.parametrize("variant", find("transpose").variants, ids=str)
def test_no_bank_conflicts_and_whole_sectors(variant):
    done = run(find("transpose"), constants=variant)
    (report,) = done.reports
    assert done.good, report
    assert report.bank_conflicts and not {b.text: b.ways for b in report.bank_conflicts.values() if b.conflicts}


@pytest.mark.parametrize("schedule", ["vectors", "elements"])
@pytest.mark.parametrize("itemsize", [4, 8])
def test_whole_tiles_move_no_more_bytes_than_there_are(itemsize, schedule):
    device = Emulator()
    launched = []
    prepare = device.prepare

    def noting(kernel, grid, numbers=(), block=None, shared=-1):
        launched.append((kernel, grid, numbers))
        return prepare(kernel, grid, numbers, block, shared)

    device.prepare = noting
    transpose.launches(device, 128, 192, itemsize, wide=True, schedule=schedule)
    ((kernel, grid, numbers),) = launched
    x = random().integers(0, 99, (128, 192)).astype(f"u{itemsize}")
    y = np.zeros((192, 128), x.dtype)
    report = load(kernel.text).launch(
        kernel.name, grid, kernel.threads, [x, y, *numbers], sample=None, global_races=True
    )
    assert not report.findings and (y == x.T).all()
    assert report.bytes["global read"] == report.bytes["global written"] == x.nbytes
    assert {c.efficiency for c in report.coalescing.values()} == {1.0}
    assert not any(b.conflicts for b in report.bank_conflicts.values())


def test_large_matrices_are_split(device, monkeypatch):
    """Parts of 64 rows and columns, as ones of 2^30 would be."""
    monkeypatch.setattr(operands, "REACH", 64)
    for m, n in ((200, 132), (65, 7), (3, 130)):
        x = bits(random(), FLOATS[0], m, n)
        assert compute(device, transpose.transpose, "transpose", (n, m), x).tobytes() == x.T.tobytes()


class Counting(Emulator):
    """Notes what would be launched."""

    def __init__(self):
        super().__init__()
        self.prepared = []

    def prepare(self, kernel, grid, numbers=(), block=None, shared=-1):
        self.prepared.append((kernel, grid, numbers))
        return lambda *_: None


@pytest.mark.parametrize("m, n", [(2**31 + 5, 3), (3, 2**32 + 8), (2**16, 2**16 + 4), (2**31, 1), (2**20 + 1, 2**20)])
def test_indices_of_huge_matrices_stay_in_range(m, n):
    device = Counting()
    launches = transpose.launches(device, m, n, 4, wide=True)
    covered = 0
    for planned, (kernel, grid, numbers) in zip(launches, device.prepared, strict=True):
        x_pitch, y_pitch, height, width, across = numbers
        assert (x_pitch, y_pitch) == (n, m)
        rows, columns = (64, 64) if "vectors" in kernel.name else (kernel.constants["R"], kernel.constants["C"])
        assert height + rows < 2**32 and width + columns < 2**32 and grid[0] < 2**31
        assert across * columns >= width and grid[0] // across * rows >= height
        top, left = divmod((planned.offsets or (0, 0))[0] // 4, n)
        assert (planned.offsets or (0, 0))[1] == (left * m + top) * 4
        covered += height * width
    assert covered == m * n


@pytest.mark.parametrize("x, out", [((3, 4), (3, 4)), ((2, 3, 4), (4, 3, 2)), ((4,), (4,)), ((0, 3), (0, 3))])
def test_shapes_that_do_not_agree_are_refused(device, x, out):
    kernel = transpose.transpose(device, call("transpose", "f4", np.zeros(x, "f4")))
    result = unwritten(device, out, "f4")
    assert kernel(device.to_device(np.zeros(x, "f4")), result) == -1
    assert np.isnan(result.elements).all()


def test_a_result_over_an_operand_is_refused(device):
    x = random().standard_normal(60).astype("f4")
    whole = device.to_device(x)
    kernel = transpose.transpose(device, call("transpose", "f4", np.zeros((5, 6))))
    one = part(whole, (5, 6), 0)
    for first in (0, 1, 29):
        assert kernel(one, part(whole, (6, 5), first)) == -1
        assert kernel(part(whole, (5, 6), first), part(whole, (6, 5), 0)) == -1
    assert whole.elements.tobytes() == x.tobytes()
    assert kernel(one, part(whole, (6, 5), 30)) == 0
    assert whole.elements[30:].tobytes() == x[:30].reshape(5, 6).T.tobytes()


def test_nothing_is_moved_for_an_empty_matrix(device):
    assert compute(device, transpose.transpose, "transpose", (3, 0), np.empty((0, 3), "f4")).size == 0


def test_an_operand_that_is_not_contiguous_is_copied_first():
    """As on hardware, whose arrays may be strided: the device gives a copy of an operand, and a strided result is
    refused.
    """
    device = Emulator()
    x, out = device.to_device(np.arange(12, dtype="f4").reshape(3, 4)), unwritten(device, (4, 3), "f4")
    device.contiguous = lambda array: shifted(device, array.elements, 0) if array is x else array
    kernel = transpose.transpose(device, call("transpose", "f4", x.elements))
    assert kernel(x, out) == 0
    assert out.elements.tobytes() == x.elements.T.tobytes()
    device.contiguous = lambda array: shifted(device, array.elements, 0) if array is out else array
    assert transpose.transpose(device, call("transpose", "f4", x.elements))(x, out) == -1
