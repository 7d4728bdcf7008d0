"""Rows of blocks on their way through shared memory: the same bits as rows in registers."""

from math import gcd
from typing import Any

import numpy as np
import pytest
from trueno.formats.samples import random_rows
from trueno.formats.table import FORMATS, WEIGHTS
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.quant import products, staging
from trueno_cuda.kernels.quant.products import Tuning, form_of, prepared
from trueno_cuda.kernels.quant.rows import BAND, Part
from unit.cuda.kernels.moves import random

ANYWHERE = [name for name in WEIGHTS if FORMATS[name].nbytes % 8]
REGISTERS = Tuning(staged=-1)


class Few(Emulator):
    """A device of two multiprocessors, so that a block has many rows."""

    sms = 2


@pytest.fixture(scope="module")
def device() -> Emulator:
    return Few("sm_90")


def product(device: Emulator, ws: list[Any], x: Any, names: list[str], tuning: Tuning, pair: bool = False) -> Any:
    """The form, and the results [count, n] of the matrices: sections, or the two of one section."""
    count, k = x.shape
    parts = [Part(name, 16, gcd(FORMATS[name].row_bytes(k), 16)) for name in names]
    sections = (tuple(parts),) if pair else tuple((part,) for part in parts)
    form = form_of(sections, "q8", count, k, True, False, tuning)
    launch = prepared(device, form, k, [len(w) for w in ws[:1] if pair] or [len(w) for w in ws])
    given, outs = device.to_device(x), [device.empty((count, len(w)), x.dtype) for w in ws]
    held = [device.to_device(w) for w in ws]
    launch([given.data.ptr, *(p for w, out in zip(held, outs, strict=True) for p in (w.data.ptr, out.data.ptr))], ())
    return form, [device.to_host(out) for out in outs]


def rows(rng: np.random.Generator, name: str, n: int, k: int) -> Any:
    f = FORMATS[name]
    return random_rows(f, (n, f.row_bytes(k)), rng)


@pytest.mark.parametrize("name", ANYWHERE)
@pytest.mark.parametrize("count", [1, 2])
def test_every_format_that_begins_anywhere(device: Emulator, name: str, count: int) -> None:
    """Rows that turn the ring several times, and a last warp that is not full."""
    rng, k = random(), 9 * 256 if FORMATS[name].elements == 256 else 37 * 32
    ws, x = [rows(rng, name, 144, k)], rng.standard_normal((count, k)).astype(np.float32)
    form, staged = product(device, ws, x, [name], Tuning(resident=2))
    plain, want = product(device, ws, x, [name], REGISTERS)
    assert form.staged == staging.GROUPS and not plain.staged and form.threads >= 64
    assert np.array_equal(staged[0], want[0], equal_nan=True) and np.abs(want[0]).max() > 0


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("ahead", [1, 3])
def test_other_rings(device: Emulator, groups: int, ahead: int) -> None:
    rng, k = random(), 3 * 256
    for name in ("q6_k", "q4_k"):
        ws, x = [rows(rng, name, 40, k)], rng.standard_normal((1, k)).astype(np.float32)
        form, staged = product(device, ws, x, [name], Tuning(resident=1, ahead=ahead, staged=groups))
        assert form.staged == groups
        assert np.array_equal(staged[0], product(device, ws, x, [name], REGISTERS)[1][0], equal_nan=True)


@pytest.mark.parametrize("pair", [False, True])
def test_several_matrices(device: Emulator, pair: bool) -> None:
    rng, k = random(), 4 * 256
    names = ["q6_k", "q3_k"]
    ws, x = [rows(rng, name, 48, k) for name in names], rng.standard_normal((2, k)).astype(np.float32)
    form, staged = product(device, ws, x, names, Tuning(), pair)
    want = product(device, ws, x, names, REGISTERS, pair)[1]
    assert form.staged
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(staged, want, strict=True))


def test_what_stays_in_registers() -> None:
    def form(names: list[str], count: int = 1, k: int = 2048, access: int = 16, activations: str = "q8") -> Any:
        sections = tuple((Part(name, access, 2),) for name in names)
        return form_of(sections, activations, count, k, True, False)

    assert form(["q6_k"]).staged and form(["q5_0"], 2).staged
    assert not form(["q4_k"]).staged  # blocks of 144 bytes, which begin at multiples of 16
    assert not form(["q6_k", "q4_k"]).staged
    assert not form(["q6_k"], 3).staged
    assert not form(["q6_k"], access=4).staged  # a copy of 16 bytes might begin before the matrix, or end behind it
    assert not form(["q6_k"], activations="f32").staged
    assert not form(["q8_0", "q6_k"], k=256 * 5).staged  # a warp that has blocks of one matrix alone


def test_rings_fit_into_shared_memory() -> None:
    for name in ANYWHERE:
        for count in staging.THREADS:
            for threads in range(32, products.THREADS[count] + 1, 32):
                for parts in (1, 2, 3):
                    resident, ahead = staging.plan([name], parts, count, threads)
                    ring = threads // 32 * staging.GROUPS * ahead * parts * staging.slot_bytes(name)
                    assert resident == 1 or resident * ring <= staging.ROOM
                    sums = threads // 32 * parts * count * BAND * 4
                    assert ring + sums <= 227 << 10
