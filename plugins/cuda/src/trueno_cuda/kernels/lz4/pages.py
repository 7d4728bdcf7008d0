"""What the kernels of LZ4 pages share: a warp's page in shared memory, words at any byte, wide copies, and calls.

A warp has a page, and a block four of them.  Warps of a block share nothing, so k.sync_warp() orders all that lanes
exchange.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from trueno.backend import Kernel

from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.calls import checked, wide
from trueno_cuda.kernels.operands import SHAPES
from trueno_cuda.ptx import Pointer, Value, u8, u32

WARPS = 4
THREADS = 32 * WARPS
MOST = 65536
"""Bytes of the largest page: places in it have 16 bits, and so do the offsets of the format."""
SMALL, STAGED = 1024, 4096
"""Bytes of pages that are kept in shared memory: four of the larger with their tables are 48 KiB."""
ENDS = 5
"""Bytes at the end of a page that are literals."""
MARGIN = 12
"""No match starts in so many bytes at the end."""
AHEAD = 4
"""Accesses of a lane that are on their way at once."""


def room(page: int) -> int:
    """Bytes of shared memory for a page, or 0."""
    return next((size for size in (SMALL, STAGED) if page <= size), 0)


def called(
    device: Device, plan: Callable[..., Sequence[Launch] | None], inputs: int, scratch: Callable[..., Any] | None = None
) -> Kernel:
    """The kernel object whose launches are `plan(*shapes, aligned)`, made once for each set of shapes.

    It refuses shapes for which that is None, and results that overlap another array or are not in C order.  aligned:
    whether arrays of bytes begin at multiples of 16.  scratch: of the shapes, an array that launches get last.
    """
    plans = lru_cache(SHAPES)(plan)

    def kernel(*arrays: Any) -> int:
        pointers = checked(device, arrays[:inputs], arrays[inputs:])
        if pointers is None:
            return -1
        shapes = [x.shape for x in arrays]
        aligned = wide(*(p for p, x in zip(pointers, arrays, strict=True) if x.dtype.itemsize == 1))
        launches = plans(*shapes, aligned)
        if launches is None:
            return -1
        more = [] if scratch is None or not launches else [scratch(*shapes)]
        for launch in launches:
            launch([*pointers, *(x.data.ptr for x in more)])
        return 0

    return kernel


def vector(page: int, aligned: bool) -> int:
    """Bytes of an access to rows of `page` bytes: 16, 4 or 1.  aligned: whether the rows' array begins at 16 bytes."""
    return next(v for v in (16, 4, 1) if v == 1 or (aligned and page % v == 0))


class Bytes:
    """Bytes that a warp reads: single ones, and four from any place on as a little-endian number.

    single: byte 0 is the first one.  words: the memory as 32-bit words, in which that byte has the number `skip`; None
    where the bytes are at no known distance from an aligned address, and four loads make a word.
    """

    def __init__(self, k: Any, single: Pointer, words: Pointer | None, skip: Value | int = 0) -> None:
        self.k, self.single, self.words, self.skip = k, single, words, skip

    def load(self, at: Any, **options: Any) -> Any:
        return self.single.load(at, **options)

    def word(self, at: Any, where: Any) -> Any:
        """Bytes `at` to `at + 3`, all of which must exist; 0 in lanes where `where` is false."""
        k = self.k
        if self.words is None:
            a, b, c, d = (self.single.load(at + i, where=where) for i in range(4))
            return a | (b << 8) | (c << 16) | (d << 24)
        place = at + self.skip
        low = self.words.load(place >> 2, where=where)
        high = self.words.load((place >> 2) + 1, where=where & ((place & 3) != 0))  # it holds a byte of the four
        return k.shf_r(low, high, place << 3)


def own(k: Any, element: Any, count: int) -> Pointer:
    """A warp's own array of so many elements in shared memory."""
    return k.shared(element, WARPS * count, per="warp") + k.warp * count


def unwatched(pointer: Pointer) -> Pointer:
    """The same memory for reads that other lanes' writes of this round do not touch.

    The builder compares whole arrays, and would want a barrier more; the emulator compares bytes.
    """
    return replace(pointer + 0, region=None)


def copied(k: Any, source: Pointer, target: Pointer, count: Value, V: int) -> None:
    """A warp copies `count` bytes, a multiple of V, from one aligned address to another.

    With V = 1 the target gets zeros behind them up to a multiple of 4, where words that are read may end.
    """
    if V > 1:
        source, target, count, each = source.cast(u32), target.cast(u32), count >> 2, V // 4
        stop = count
    else:
        each, stop = 1, (count + 3) & 0xFFFFFFFC
    for begin in k.range(0, stop, AHEAD * 32 * each):
        places = [begin + (k.lane * each + turn * 32 * each) for turn in range(AHEAD)]
        loaded = [source.load(at, vec=each, where=at < count) for at in places]
        for at, values in zip(places, loaded, strict=True):
            target.store(at, values, where=at < stop)


def written(k: Any, source: Pointer, target: Pointer, count: Value, V: int) -> None:
    """As `copied`, into memory that ends behind the last byte."""
    each, kind = max(V // 4, 1), u32 if V > 1 else u8
    source, target, count = source.cast(kind), target.cast(kind), count >> 2 if V > 1 else count
    for begin in k.range(0, count, AHEAD * 32 * each):
        places = [begin + (k.lane * each + turn * 32 * each) for turn in range(AHEAD)]
        loaded = [source.load(at, vec=each, where=at < count) for at in places]
        for at, values in zip(places, loaded, strict=True):
            target.store(at, values, where=at < count)


def cleared(k: Any, target: Pointer, begin: Any, end: Any, V: int) -> None:
    """A warp writes zeros from byte `begin` to `end`, a multiple of V; target is aligned to V bytes."""
    if V == 1:
        for at in k.range(begin + k.lane, end, 32):
            target.store(at, 0)
        return
    edge = k.min((begin + (V - 1)) & (0xFFFFFFFF ^ (V - 1)), end)
    target.store(begin + k.lane, 0, where=begin + k.lane < edge)
    words, each = target.cast(u32), V // 4
    for at in k.range((edge >> 2) + k.lane * each, end >> 2, 32 * each):
        words.store(k.multiple_of(at, each), [0] * each)


def moved(k: Any, source: Bytes, at: Any, target: Pointer, skip: Any, count: Any) -> None:
    """A warp copies `count` bytes from byte `at` of the source to byte `skip` of an aligned target, which lie apart.

    Words of the target, each from two of the source, and single bytes before and behind them.
    """
    head = k.min(k.sub(0, skip) & 3, count)
    body = (count - head) >> 2
    single = target + skip
    single.store(k.lane, source.load(at + k.lane, where=k.lane < head), where=k.lane < head)
    words = target.cast(u32) + ((skip + head) >> 2)
    first = at + head
    for begin in k.range(0, body, AHEAD * 32):
        places = [begin + (k.lane + turn * 32) for turn in range(AHEAD)]
        loaded = [source.word(first + (to << 2), to < body) for to in places]
        for to, value in zip(places, loaded, strict=True):
            words.store(to, value, where=to < body)
    done = head + (body << 2) + k.lane
    single.store(done, source.load(at + done, where=done < count), where=done < count)
