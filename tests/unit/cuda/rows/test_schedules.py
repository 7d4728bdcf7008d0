"""Every schedule at its seams: rows that fill it and that do not, aligned and odd, in both types."""

import numpy as np
import pytest
from trueno.errors import KernelError
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.rows.flat import division
from trueno_cuda.rows.schedule import Schedule, choose, chunked, fitted, parse
from unit.cuda.rows.calls import judged

FOLDING = {
    "held1": (1, 3, 4),
    "held2": (1, 5, 8, 9),
    "held8": (1, 7, 32, 33, 64),
    "held32": (1, 31, 128, 132, 500),
    "held64": (255, 256, 260, 1000),
    "held128x8": (5, 513, 2048),
    "held2048": (5, 2049, 9000),
    "swept32x2": (1, 256, 257, 260, 1111),
    "swept64x1": (255, 256, 512, 1028),
    "long32x1": (1, 128, 129, 1000),
    "long64x2c2": (512, 1023, 2052),
}
OPS = ("softmax", "argmax", "sum")
FLOATS = (np.float32, np.float64)


@pytest.fixture(scope="module")
def device() -> Emulator:
    return Emulator("sm_90")


def operands(rng: np.random.Generator, layout: str, rows: int, n: int, dtype: type) -> list[np.ndarray]:
    shapes = {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}
    return [np.asarray(rng.uniform(-2, 2, shapes[kind]), dtype) for kind in layout]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("schedule", FOLDING)
@pytest.mark.parametrize("op", OPS)
def test_rows_that_fold(device: Emulator, op: str, schedule: str, dtype: type) -> None:
    rng = np.random.default_rng(7)
    for n in FOLDING[schedule]:
        rows = int(rng.integers(1, 5))
        judged(device, op, operands(rng, "e", rows, n, dtype), schedule=schedule)


@pytest.mark.parametrize("schedule", ["held8", "held32", "held64x2", "held32e", "held64x2e", "swept32x1", "long32x1"])
def test_shared_rows_and_two_operands(device: Emulator, schedule: str) -> None:
    rng = np.random.default_rng(8)
    n = 60 if schedule == "held8" else 300
    for width in (n, n + 1):
        judged(device, "layer_norm", operands(rng, "eww", 3, width, np.float32), (1e-5,), schedule)
        judged(device, "residual_rms_norm", operands(rng, "eew", 3, width, np.float32), (1e-6,), schedule)
        judged(device, "correlation", operands(rng, "ee", 3, width, np.float32), (), schedule)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["ee", "ew", "er", "eu", "re", "we"])
def test_elements_with_what_rows_share(device: Emulator, layout: str, dtype: type) -> None:
    rng = np.random.default_rng(9)
    for rows, n in ((3, 40), (5, 13), (1, 6), (7, 1), (2, 1100)):
        judged(device, "sub", operands(rng, layout, rows, n, dtype), layout=layout)
        judged(device, "sub", operands(rng, layout, rows, n, dtype), schedule="flat32x1", layout=layout)


def test_a_division_by_multiplying() -> None:
    rng = np.random.default_rng(10)
    for n in (1, 2, 3, 7, 10, 641, 4096, 65537, 2**30 - 1, 2**30, *map(int, rng.integers(1, 2**30, 200))):
        magic, shift = division(n)
        assert 0 <= magic < 2**32
        for x in (0, 1, n - 1, n, n + 1, 2**31 - 1, 2**31 - n, *map(int, rng.integers(0, 2**31, 50))):
            high = (x * magic >> 32) + x
            assert high < 2**32
            assert high >> shift == x // n


def test_which_schedule_a_shape_gets() -> None:
    chosen = {
        (4096, 3): "held1x1",
        (4096, 8): "held2x1",
        (4096, 16): "held4x1",
        (4096, 17): "held8x1",
        (4096, 48): "held8x2",
        (4096, 512): "held32x4",
        (4096, 1024): "held128x2",
        (4096, 2048): "held128x4",
        (4096, 4096): "held256x4",
        (32768, 8192): "held512x4",
        (4096, 16384): "held512x8",
        (4096, 32768): "held1024x8",
        (4096, 40000): "swept1024x4",
        (1000, 40000): "long256x4c32",
        (1, 30000): "held1024x8",
        (1, 3584): "held256x4e",
        (132, 1536): "held128x3e",
        (133, 1536): "held128x3",
        (1, 512): "held32x4",
        (1, 1 << 30): "long256x4c32",
    }
    assert {shape: str(choose(*shape, 4, 132)) for shape in chosen} == chosen
    assert str(choose(4096, 8192, 4, 132, live_values=2)) == "held512x4"
    assert str(choose(1, 2048, 4, 4)) == "long256x4c32"
    clusters = {(4096, 40000): "held2048x5", (1000, 50257): "held2048x7", (8192, 151936): "held4096x10"}
    clusters |= {(4096, 1 << 19): "swept1024x4", (1, 1 << 18): "long256x4c32", (32768, 8192): "held512x4"}
    assert {shape: str(choose(*shape, 4, 132, clusters=True)) for shape in clusters} == clusters


def test_of_held_groups_the_last_alone_is_masked() -> None:
    assert fitted(parse("held256"), 4096, 4) == Schedule("held", 256, 4, tails=1)
    assert fitted(parse("held256x6"), 4096, 4) == Schedule("held", 256, 6, tails=3)
    with pytest.raises(KernelError, match="does not hold rows of 4097"):
        fitted(parse("held256x4"), 4097, 4)


@pytest.mark.parametrize("text", ["", "held", "warp32", "held33", "swept16x4", "flat256x3", "held256x4c2", "long2048"])
def test_a_schedule_that_is_none(text: str) -> None:
    if text == "held":
        assert parse(text).lanes == 256
    else:
        with pytest.raises(KernelError, match="schedule"):
            parse(text)


def test_a_schedule_for_other_programs(device: Emulator) -> None:
    x = np.ones((2, 4), np.float32)
    with pytest.raises(KernelError, match="sum on cuda: schedule flat is for programs that do not fold"):
        judged(device, "sum", [x], schedule="flat")
    with pytest.raises(KernelError, match="neg on cuda: schedule held32 is for programs that fold"):
        judged(device, "neg", [x], schedule="held32")


def test_chunks_of_long_rows() -> None:
    long, tile = parse("long"), 4096
    schedule, chunk = chunked(long, 1, 1 << 30, 4, 132)
    assert -(-(1 << 30) // chunk) <= 132 * 32
    assert (chunk % tile, schedule.joiners) == (0, 1024)
    assert chunked(long, 1, 1 << 20, 4, 132)[1] == tile  # fewer chunks than SMs could take: as many as there are
    assert chunked(long, 1, 1 << 24, 4, 132)[1] == 4 * tile
    schedule, chunk = chunked(long, 1000, 1 << 18, 4, 132)
    assert (chunk, schedule.joiners) == (16 * tile, 256)
