"""What tests of `benchmarks.ways` share: kernels, launches that are noted, and a folded kernel on the emulator."""

import numpy as np
import pytest
from trueno_cuda.catalogue import registry as catalogue
from trueno_cuda.ptx import f32, kernel, ptr, u32
from trueno_cuda.ptx.emulate import load
from trueno_cuda.ptx.emulate.memory import GLOBAL, GUARD

from benchmarks.ways import fold

HEAP = GLOBAL + GUARD
"""Where the emulator puts the first array of a launch."""
NARROW = [
    ("bring", 0), ("attention_decode_mma", 0), ("attention_join", 0), ("kv_cache_scatter", 2), ("attention_decode", 0),
    ("bring", 0), ("attention_join", 3),
]  # fmt: skip
PRODUCTS = [("quant_rows_q4_k", 3), ("quant_rows_q6_k", 2), ("quant_rows_q4_k", 2)]
"""Kernels of 128 threads, and of 64: entries of the catalogue, and variants."""
FOLDS = pytest.mark.parametrize("threads, names", [(128, NARROW), (64, PRODUCTS)], ids=["caches", "products"])


def built(name, variant=0, arch="sm_90"):
    entry = catalogue.find(name)
    return catalogue.build(entry, arch, entry.variants[variant])[0]


class Noting:
    """A device that writes down its launches, and keeps every array with what it held at first."""

    def __init__(self, device):
        self.device, self.steps, self.arrays = device, [], []

    def __getattr__(self, name):
        return getattr(self.device, name)

    def to_device(self, x):
        self.arrays.append((array := self.device.to_device(x), np.array(x)))
        return array

    def empty(self, shape, dtype):
        array = self.device.empty(shape, dtype)
        self.arrays.append((array, self.device.to_host(array)))
        return array

    def prepare(self, kernel, grid, numbers=(), block=None, shared=-1):
        launch = self.device.prepare(kernel, grid, numbers, block, shared)

        def noted(pointers, floats=()):
            self.steps.append(fold.Step(kernel, grid, tuple(numbers), tuple(pointers), tuple(floats)))
            launch(pointers, floats)

        return noted

    def run(self, name, variant):
        """Launch the sample of a kernel."""
        entry = catalogue.find(name)
        assert all(result.good for result in catalogue.on(self, entry, entry.variants[variant]))

    def held(self):
        return [self.device.to_host(array).tobytes() for array, _ in self.arrays]


def emulated(noted, threads, blocks, edit=lambda text: text):
    """What every array holds after the noted launches have run as one kernel on the emulator, and its report.

    Pointers in a table are the emulator's own, so all arrays are parts of the one that begins with the table.
    """
    kernels = fold.kinds(noted.steps)
    made = fold.folded(kernels, threads, 1)
    room = 1 << 16
    places, end = [], room
    for array, _ in noted.arrays:
        places.append(end)
        end += -(-array.nbytes // 256) * 256 + 256
    starts = [array.data.ptr for array, _ in noted.arrays]

    def moved(pointer):
        at = max((s, p) for s, p in zip(starts, places, strict=True) if s <= pointer)
        return HEAP + at[1] + pointer - at[0]

    steps = [step._replace(pointers=tuple(map(moved, step.pointers))) for step in noted.steps]
    rows, stride = fold.table(kernels, steps)
    heap = np.zeros(end, np.uint8)
    heap[: len(rows)] = np.frombuffer(rows, np.uint8)
    for at, (array, first) in zip(places, noted.arrays, strict=True):
        heap[at : at + array.nbytes] = np.frombuffer(first.tobytes(), np.uint8)
    count = heap[room - 4 : room].view(np.uint32)
    report = load(edit(made.text)).launch(
        made.name, blocks, threads, [heap, count, len(steps), stride], shared=made.dynamic_shared,
        global_races=blocks == 1,  # it does not follow counters, and takes no blocks for ordered
    )  # fmt: skip
    assert count[0] == 0 or not report.completed or report.findings
    sizes = [array.nbytes for array, _ in noted.arrays]
    return [heap[at : at + nbytes].tobytes() for at, nbytes in zip(places, sizes, strict=True)], report


def shifted(k, x: ptr(f32), out: ptr(f32), n: u32):
    """Each element is the one a block further on, and one more."""
    i = k.ctaid * 128 + k.tid
    out.store(i, x.load((i + 128) % n) + 1.0)


def weighted(k, x: ptr(f32), w: ptr(f32), out: ptr(f32), n: u32):
    """The same, times a weight, which is read before the wait."""
    i = k.ctaid * 128 + k.tid
    weight = w.load(i)
    k.wait_previous()
    out.store(i, x.load((i + 128) % n) * weight)


def chain(device, blocks, rng):
    """Launches of which each reads what other blocks of the one before wrote: a function that launches them."""
    n = blocks * 128
    plus = kernel(threads=128, overlap=True)(shifted).build("sm_90")
    late = kernel(threads=128, overlap="late")(weighted).build("sm_90")
    x, w = (rng.integers(1, 4, n).astype(np.float32) for _ in range(2))
    one, other, weights = device.to_device(x), device.to_device(np.zeros_like(x)), device.to_device(w)
    add, *times = (device.prepare(k, (blocks, 1, 1), (n,)) for k in (plus, late, late.behind()))

    def launch():
        a, b, c = (array.data.ptr for array in (one, other, weights))
        add((a, b))
        times[0]((b, c, a))
        times[1]((a, c, b))
        add((b, a))

    def wanted(x):
        y = np.roll(x, -128) + 1
        for _ in range(2):
            y = np.roll(y, -128) * w
        return np.roll(y, -128) + 1

    return launch, one, x, wanted
