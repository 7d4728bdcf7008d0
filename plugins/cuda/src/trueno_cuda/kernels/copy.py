# mypy: disable-error-code="valid-type"
"""Copies of strided arrays into C order, for `Device.contiguous`.

NVRTC, which need not be installed, would have to compile CuPy's own copy.  Any element of 1, 2, 4 or 8 bytes, or
several of these; strides may be 0 or negative.  Axes that lie one behind the other are merged, and runs are copied in
words of up to 16 bytes.  Where columns are to become rows, transpose's tiles do it; other orders are gathered.

Floor: each byte is read once and written once.
"""

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from math import gcd, prod
from typing import Any

import numpy as np

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels import transpose
from trueno_cuda.kernels.operands import REACH, SHAPES, ArrayLaunch, Shape, prepared, typed
from trueno_cuda.ptx import Builder, Pointer, Source, Value, ptr, u8, u16, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
UNROLL = 4
"""Words of a thread, which are on their way at once."""
AXES = 8
"""Axes of one launch."""
FEW = 16
"""Matrices that are transposed one by one; more of them are gathered in one launch."""
WORDS = {1: u8, 2: u16, 4: u32, 8: u64, 16: u64}

Axis = tuple[int, int]
"""Length, and stride in bytes."""


def _gather(k: Builder, x: Pointer, out: Pointer, start: Value, count: Value, *numbers: Value, R: int, W: int) -> None:
    """out[e] = x[start + Σ index · stride] for `count` words; numbers: lengths but the first, then strides in words."""
    vec = W // x.element.bytes
    lengths, strides = numbers[: R - 1], [s.to(u64) for s in numbers[R - 1 :]]
    first = k.ctaid * (THREADS * UNROLL) + k.tid
    loaded = []
    for turn in range(UNROLL):
        e = first + turn * THREADS
        rest, offset = e, start
        for length, stride in zip(lengths[::-1], strides[:0:-1], strict=True):
            offset = offset + (rest % length).to(u64) * stride
            rest = rest // length
        offset = offset + rest.to(u64) * strides[0]
        loaded.append((e, x.load(offset * vec, vec=vec, where=e < count, cache="nc")))
    for e, values in loaded:
        out.store(e * vec, values, where=e < count)


@cache
def source(rank: int, word: int) -> Source:
    kind = ptr(WORDS[word])
    lengths = {f"n{i}": u32 for i in range(1, rank)}
    strides = {f"s{i}": u64 for i in range(rank)}
    names = [*lengths, *strides]

    def gather(k: Builder, *, R: int, W: int, **operands: Any) -> None:
        numbers = [operands[n] for n in names]
        _gather(k, operands["x"], operands["out"], operands["start"], operands["count"], *numbers, R=R, W=W)

    return typed(
        gather, "copy_strided", THREADS, {"x": kind, "out": kind, "start": u64, "count": u32, **lengths, **strides}
    )


# ------------------------------------------------------------------------------------- axes


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """The same elements in the same order, with as few axes as may be."""
    result: list[Axis] = []
    for length, stride in axes:
        if length == 1:
            continue
        if result and result[-1][1] == length * stride:
            result[-1] = (result[-1][0] * length, stride)
        else:
            result.append((length, stride))
    return result or [(1, 0)]


def widest(axes: Sequence[Axis], itemsize: int, *places: int) -> tuple[list[Axis], int]:
    """The axes, of words as wide as the runs, strides and places (in bytes) allow; and the word's bytes."""
    axes = merged([*axes, (1, itemsize)])
    common = gcd(itemsize, *places, *(stride for _, stride in axes))
    word = min(common & -common, 8)
    if word < itemsize:
        axes = merged([*axes, (itemsize // word, word)])
    *outer, (length, stride) = axes
    while (
        stride == word < 16 and length % 2 == 0 and all(v % (2 * word) == 0 for v in (*places, *(s for _, s in outer)))
    ):
        word, length = 2 * word, length // 2
        stride = word
    return merged([*outer, (length, stride)]), word


def parts(axes: list[Axis], start: int, target: int, word: int) -> Iterator[tuple[list[Axis], int, int]]:
    """Axes few and short enough for one launch, with the bytes where each part begins in source and target."""
    inner = prod(n for n, _ in axes[1:])
    if len(axes) <= AXES and axes[0][0] * inner <= REACH:
        yield axes, start, target
        return
    each = REACH // inner if len(axes) <= AXES else 1
    length, stride = axes[0]
    for first in range(0, length, max(each, 1)):
        places = start + first * stride, target + first * inner * word
        if each > 1 or len(axes) == 1:
            yield [(min(each, length - first), stride), *axes[1:]], *places
        else:
            yield from parts(axes[1:], *places, word)


# ------------------------------------------------------------------------------------- launches


def _columns(device: Device, axes: list[Axis], word: int, wide: bool, offset: int) -> list[ArrayLaunch] | None:
    """By transposing, where the last axis but one runs along the source's rows."""
    if len(axes) < 2 or word not in (4, 8) or axes[-2][1] != word or axes[-1][1] < word or axes[-1][1] % word:
        return None
    *outer, (n, _), (m, stride) = axes
    if min(m, n) < 8 or prod(length for length, _ in outer) > FEW:
        return None
    planned = []
    for index in np.ndindex(*(length for length, _ in outer)):
        at = offset + sum(i * s for i, (_, s) in zip(index, outer, strict=True))
        to = int(np.ravel_multi_index(index, [length for length, _ in outer]) if outer else 0) * m * n * word
        aligned = wide and at % 16 == to % 16 == 0
        for launch, places in transpose.launches(device, m, n, word, x_pitch=stride // word, wide=aligned):
            x, y = places or (0, 0)
            planned.append(ArrayLaunch(launch, (at + x, to + y)))
    return planned


def launches(
    device: Device, axes: Sequence[Axis], itemsize: int, source_at: int, target_at: int
) -> tuple[int, list[ArrayLaunch]]:
    """How far before the first element the lowest lies, in bytes, and launches on pointers to the lowest.

    source_at, target_at: the addresses of the first elements, of which only the alignment counts.
    """
    low = -sum(min(0, (length - 1) * stride) for length, stride in axes)
    words, word = widest(axes, itemsize, low, source_at, target_at)
    planned = _columns(device, words, word, (source_at - low) % 16 == target_at % 16 == 0, low)
    if planned is not None:
        return low, planned
    planned = []
    for some, start, target in parts(words, low, 0, word):
        count = prod(n for n, _ in some)
        strides = [stride // word % (1 << 64) for _, stride in some]
        numbers = [start // word, count, *(n for n, _ in some[1:]), *strides]
        rank = len(some)
        grid = -(-count // (THREADS * UNROLL))
        launch = prepared(device, source(rank, word), {"R": rank, "W": word}, grid, numbers)
        planned.append(ArrayLaunch(launch, (0, target)))
    return low, planned


class StridedCopy:
    """Copies on one device: `copy(pointer, x.shape, x.strides, x.itemsize, out.data.ptr)`, asynchronous as launches.

    out: memory for the elements in C order, which overlaps the source nowhere.  strides: in bytes, as NumPy's.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._plan = lru_cache(SHAPES)(self._make)

    def _make(
        self, axes: tuple[Axis, ...], itemsize: int, source_at: int, target_at: int
    ) -> tuple[int, list[ArrayLaunch]]:
        return launches(self.device, axes, itemsize, source_at, target_at)

    def __call__(self, pointer: int, shape: Shape, strides: Shape, itemsize: int, out: int) -> None:
        if 0 in shape:
            return
        low, planned = self._plan(tuple(zip(shape, strides, strict=True)), itemsize, pointer % 16, out % 16)
        for launch, offsets in planned:
            x, y = offsets
            launch([pointer - low + x, out + y])


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, R: int, W: int) -> Built:
    return source(R, W).build(arch, R=R, W=W)


def _sample(rng: np.random.Generator, *, R: int, W: int) -> Sample:
    """Every second word of the last axis, the axes in opposite order."""
    word = np.dtype(f"u{min(W, 8)}")
    lengths = [int(n) for n in rng.integers(2, 5, R)]
    if R == 1:
        lengths = [2500]
    vec = W // word.itemsize
    whole = rng.integers(0, 200, (*lengths, 2, vec)).astype(word)
    view = whole[..., 1, :].transpose(*range(R)[::-1], R)
    count = prod(lengths)
    operands: dict[str, Any] = {"x": whole, "out": np.zeros(view.shape, word), "start": 1, "count": count}
    operands |= {f"n{i}": n for i, n in enumerate(view.shape[1:R], 1)}
    operands |= {f"s{i}": stride // W for i, stride in enumerate(view.strides[:R])}
    return Sample((-(-count // (THREADS * UNROLL)), 1, 1), operands, {"out": Want(np.ascontiguousarray(view))})


CATALOGUE = [
    CatalogueEntry(
        "copy_strided",
        "moves",
        "elements of a strided array in C order",
        _build,
        _sample,
        (
            Constant("R", 3, "axes", tuple(range(1, AXES + 1))),
            Constant("W", 4, "bytes of a word", tuple(WORDS)),
        ),
        variants=({}, {"R": 1, "W": 1}, {"R": 2, "W": 2}, {"R": 8, "W": 8}, {"R": 4, "W": 16}),
    )
]
