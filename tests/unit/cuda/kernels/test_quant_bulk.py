"""Rows of blocks by bulk copies, which a warp of their own asks for: the same bits as by the ring of each warp."""

from math import gcd
from typing import Any

import numpy as np
import pytest
from trueno.batch.epilogue import with_epilogue
from trueno.batch.merged import Part as Op
from trueno.batch.merged import Recipe, merged
from trueno.formats.activations import rounded_activations
from trueno.formats.decode import decode
from trueno.formats.samples import random_rows
from trueno.formats.table import FORMATS, WEIGHTS
from trueno.ops import TABLE
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.epilogue import spliced
from trueno_cuda.kernels.quant.rows import Part
from trueno_cuda.kernels.quant.task import Task
from trueno_cuda.kernels.quant.tile_ring import CHUNK
from trueno_cuda.kernels.quant.tiles import Form, tiles
from trueno_cuda.kernels.quant.tiling import KEPT, TURNS, Tiled, Tuning, choose
from unit.cuda.kernels.moves import random
from unit.cuda.ptx.assembler import assembled

NONE = slice(0, 0)


class Few(Emulator):
    """A device of two multiprocessors, so that a block has many tiles.  names: of the kernels that were prepared."""

    sms = 2

    def __init__(self, arch: str) -> None:
        super().__init__(arch)
        self.names: list[str] = []

    def prepare(self, kernel: Any, *given: Any) -> Any:
        self.names.append(kernel.name)
        return super().prepare(kernel, *given)


@pytest.fixture(scope="module")
def device() -> Few:
    return Few("sm_90a")


def run(device: Few, tasks: list[Task], ws: list[Any], x: Any, tuning: Tuning, guarded: bool = False) -> Any:
    """The kept results, and what the guards say.  Whether bulk copies are used is as the tuning says."""
    device.names.clear()
    tiled = Tiled(device, list(enumerate(tasks)), *x.shape, True, guarded=guarded, tuning=tuning)
    assert device.names and all(("_bulk" in name) == tuning.bulk for name in device.names if "_tiles_" in name)
    made = [device.to_device(np.full((len(x), task.n), np.nan, np.float32)) for task in tasks]
    held, there, scratch = [device.to_device(w) for w in ws], device.to_device(x), device.scratch(tiled.nbytes)
    status = (device.status(),) if guarded else ()
    pointers = [[v.data.ptr for v in arrays] for arrays in (held, made)]
    tiled.run(scratch.data.ptr, there.data.ptr, *pointers, status=status)
    results = [device.to_host(out) for out, task in zip(made, tasks, strict=True) if task.result >= 0]
    return results, device.take_status() if guarded else 0


def same(
    device: Few, tasks: list[Task], ws: list[Any], x: Any, *sizes: int, kept: bool = False, guarded: bool = False
) -> int:
    """Assert that both ways give the same bits.  sizes: high, turns, resident, stages.  kept: x in registers."""
    got, status = run(device, tasks, ws, x, Tuning(*sizes, True, kept), guarded)
    want, expected = run(device, tasks, ws, x, Tuning(*sizes[:3], 2), guarded)
    assert all(np.array_equal(a.view(np.uint32), b.view(np.uint32)) for a, b in zip(got, want, strict=True))
    assert status == expected and all(np.abs(np.nan_to_num(v)).max() > 0 for v in want)
    return status


def rows(rng: np.random.Generator, name: str, n: int, k: int) -> Any:
    f = FORMATS[name]
    return random_rows(f, (n, f.row_bytes(k)), rng)


def alone(name: str, n: int) -> list[Task]:
    return [Task(name, None, 0, (), 0, n, NONE, 0)]


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_format(device: Few, name: str) -> None:
    """One span; several slots, the last of them not full; and where blocks are small, a last span that is short."""
    rng = random()
    some = (16, 1, 0, (1, 2, 1, 2), True), (72, 7, 0, (1, 3, 1, 2), False), (112, 5, 96, (2, 3, 1, 3), True)
    for n, spans, more, sizes, kept in some:
        k = 256 * spans + (more if FORMATS[name].elements < 256 else 0)
        w, x = rows(rng, name, n, k), rng.standard_normal((5, k)).astype(np.float32)
        if w.nbytes % CHUNK:  # the last copy would end behind the matrix
            assert form(device, name, w.shape).bulk is False
            continue
        same(device, alone(name, n), [w], x, *sizes, kept=kept)


def form(device: Any, name: str, shape: tuple[int, int], tuning: Tuning | None = None) -> Form:
    """What is planned for a matrix of that shape."""
    n, nbytes = shape
    access = CHUNK if n * nbytes % CHUNK == 0 else 4
    section = (Part(name, access, gcd(nbytes, CHUNK)),)
    return choose((section,), 1, -(-n // 16), 4, device, access == CHUNK, False, tuning or Tuning(1, 2, 1, 2, True))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 8, 17, 32])
@pytest.mark.parametrize("name, kept", [("q4_k", False), ("q4_k", True), ("q6_k", False)])
def test_rows_of_x(device: Few, name: str, m: int, kept: bool) -> None:
    """Tiles of which the last is not whole, and slots that a warp has no span of."""
    rng, n, k = random(), 40, 5 * 256
    w, x = rows(rng, name, n, k), rng.standard_normal((m, k)).astype(np.float32)
    same(device, alone(name, n), [w], x, 1, 4, 1, 2, kept=kept)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 2), (3, 2, 1, 2), (1, 7, 2, 4), (4, 1, 1, 3)])
@pytest.mark.parametrize("name", ["q4_k", "q6_k", "q5_0"])
def test_other_rings(device: Few, name: str, sizes: tuple[int, int, int, int]) -> None:
    """More tiles at once than lanes have rows of, one warp alone, and many warps of a tile."""
    rng, n, k = random(), 152, 7 * 256
    w, x = rows(rng, name, n, k), rng.standard_normal((4, k)).astype(np.float32)
    same(device, alone(name, n), [w], x, *sizes)


def gate_and_up(names: tuple[str, str], n: int) -> list[Task]:
    """As an engine's step has them: the second's epilogue reads the first one's result, which is not kept."""
    recipe = Recipe("ee", 0, (Op("swiglu", (("x", 1, 0), ("x", 0, 0)), (), ()),), ((0, 0, "e"),), rows=False)
    op = with_epilogue(TABLE["quant_matmul"], merged(recipe), recipe.kinds, [p.op for p in recipe.parts])
    return [
        Task(names[0], None, 0, (), -1, n, NONE, 0),
        Task(names[1], spliced(op), 1, (("result", 0),), 0, n, NONE, 0),
    ]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("names", [("q4_k", "q4_k"), ("q4_k", "q6_k")])
@pytest.mark.parametrize("sizes, kept", [((1, 3, 2, 2), False), ((2, 2, 1, 3), True), ((1, 4, 1, 2), True)])
def test_two_matrices_with_an_epilogue(
    device: Few, names: tuple[str, str], sizes: tuple[int, int, int, int], kept: bool, guarded: bool
) -> None:
    rng, n, k = random(), 104, 4 * 256
    ws, x = [rows(rng, name, n, k) for name in names], rng.standard_normal((5, k)).astype(np.float32)
    if guarded:
        x[3, 7] = np.nan
    assert same(device, gate_and_up(names, n), ws, x, *sizes, kept=kept, guarded=guarded) & 1 == guarded


def test_sections_of_other_formats(device: Few) -> None:
    """Queries, keys and values: blocks of each have slots of other sizes in the same shared memory."""
    rng, k, names, heights = random(), 3 * 256, ("q4_k", "q5_k", "q6_k"), (72, 16, 40)
    ws = [rows(rng, name, n, k) for name, n in zip(names, heights, strict=True)]
    tasks = [Task(f, None, i, (), i, n, NONE, i) for i, (f, n) in enumerate(zip(names, heights, strict=True))]
    x = rng.standard_normal((6, k)).astype(np.float32)
    for kept in (False, True):
        same(device, tasks, ws, x, 1, 2, 2, 3, kept=kept)


def test_what_is_planned(device: Few) -> None:
    """Nothing without bulk copies, or where a copy would leave the matrix, or for fewer tiles than multiprocessors."""
    shape = 64, 4 * 144
    assert form(device, "q4_k", shape).bulk and form(device, "q4_k", shape, Tuning()).bulk
    assert not form(device, "q4_k", (16 * device.sms, 4 * 144), Tuning()).bulk
    assert not form(Few("sm_89"), "q4_k", shape).bulk
    assert not form(device, "q6_k", (3, 4 * 210)).bulk
    assert not form(device, "q4_k", shape, Tuning(1, 2, 1, 0, True)).bulk


@pytest.mark.parametrize("names", [("q4_k",), ("q4_k", "q4_k"), ("q6_k",)])
@pytest.mark.parametrize("sizes, kept", [
    ((1, 7, 2, 2), 0), ((1, 4, 3, 2), 0), ((1, 12, 1, 3), 0), ((1, 7, 2, 2), 2), ((1, 14, 1, 3), 1),
])  # fmt: skip
def test_ptxas_takes_it_without_a_spill(names: tuple[str, ...], sizes: tuple[int, int, int, int], kept: int) -> None:
    for columns in (1,) if kept else (1, 2):
        section = tuple(Part(name, CHUNK, 4 if name == "q6_k" else CHUNK) for name in names)
        made = Form((section,), columns, *sizes, bulk=True, kept=kept)
        kernel = tiles("sm_90a", made)
        assert assembled(kernel).spilled == 0
        assert kernel.shared_bytes <= made.shared + 128 and made.resident * (made.shared + 1024) <= 228 << 10


LITTLE = 99 << 10


class Small(Few):
    """A device whose blocks have less shared memory, as those of sm_120."""

    def __init__(self, arch: str) -> None:
        super().__init__(arch)
        self.shared = LITTLE


@pytest.mark.parametrize("device", [Few("sm_90a"), Small("sm_90a")], ids=["large", "small"])
@pytest.mark.parametrize("name", ["q4_k", "q6_k", "q8_0"])
def test_what_stays_in_registers_is_of_a_whole_row(device: Few, name: str) -> None:
    """Where shared memory has room for fewer warps, each has more spans of a row."""
    f, fewer = FORMATS[name], False
    for parts in range(1, 5):
        for spans in range(1, 20):
            section = (Part(name, CHUNK, gcd(f.row_bytes(256 * spans), CHUNK)),) * parts
            made = choose((section,), 1, 2 * device.sms, spans, device, True, False)
            assert made.kept in (0, -(-spans // made.turns)) and made.kept <= KEPT
            fewer |= made.turns < min(spans, TURNS)
    assert fewer or device.shared > LITTLE


def test_a_pair_with_little_shared_memory() -> None:
    """Gate and up of 14 spans, in blocks of three warps and not seven."""
    device, rng, k, n, names = Small("sm_90a"), random(), 14 * 256, 72, ("q8_0", "q8_0")
    ws, x = [rows(rng, name, n, k) for name in names], rng.standard_normal((3, k)).astype(np.float32)
    tiled = Tiled(device, list(enumerate(gate_and_up(names, n))), 3, k, True)
    held, out = [device.to_device(w) for w in ws], device.to_device(np.full((3, n), np.nan, np.float32))
    memory, given = device.scratch(tiled.nbytes), device.to_device(x)
    tiled.run(memory.data.ptr, given.data.ptr, [w.data.ptr for w in held], [0, out.data.ptr])
    assert any("x3_" in name and "bulk" in name for name in device.names)
    f = FORMATS[names[0]]
    seen = rounded_activations(x, f, "q8").astype(np.float64)
    gate, up = (seen @ decode(f, w).astype(np.float64).T for w in ws)
    with np.errstate(over="ignore"):
        want = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(device.to_host(out), want, rtol=0, atol=1e-5 * np.abs(want).max())
