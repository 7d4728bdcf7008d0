"""A search in a row in descending order without sorting it: for topk and sample.

A token is an element with its place, and tokens have an order: NaN first, then descending, equal ones by place.  An
element's code is an integer that ascends in this order.  The search looks for the first token at which a sum over all
tokens before it and itself passes a level: of ones, or of weights.

Each pass over the row adds up what is in T bins, finds the bin in which the level is passed, and the next pass divides
that one.  The first bins are 1/32 wide behind the largest element, since the exponents of floats that are sampled from
are nearly all the same; the next ones divide the codes that this bin can hold, and where codes are equal, places.  A
bin with one token ends the search, mostly after three passes.

The blocks of a cluster share a row, each with its codes in shared memory where they fit.  Each has bins of its own, and
all of them add up the bins of all through distributed shared memory, so that every block knows where to look next.
Bins hold integers: no order of additions changes a result.  Two sets of them take turns, so one barrier of the cluster
a pass is enough.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trueno_cuda.kernels.codes import code_of, halving, number, value_of, widened
from trueno_cuda.ptx import Pointer, Type, Value, f32, f64, u32, u64

UNROLL = 8
"""Vectors of a thread that are on their way at once."""
STEPS = 32.0
"""Bins of the first pass for each unit of a difference."""
LOOSE = 2.0**-16
"""By how much of it the edge of such a bin is put outwards, for what differences lose by rounding."""
NONE = (1 << 32) - 1
"""A place that no element has."""


@dataclass
class Row:
    """The part of a row that a block has, and what the search knows.

    x: the row.  begin, end: this block's elements; both, as n, are multiples of V.  threads: also the number of bins.
    blocks: of the cluster.  turns: vectors that a thread keeps; 0: it reads them again in every pass.
    weighted: whether there are sums of weights beside counts.
    """

    k: Any
    x: Pointer
    n: Value
    begin: Value
    end: Value
    V: int
    threads: int
    blocks: int
    turns: int
    weighted: bool
    most: Any = None
    most_code: Any = None

    def __post_init__(self) -> None:
        k: Any = self.k
        self.bits = self.threads.bit_length() - 1
        self.code: Type = u64 if self.x.element is f64 else u32
        self.top = (1 << self.code.bits) - 1
        self.bins = [k.shared(u32, 2 * self.threads) for _ in range(3 if self.weighted else 1)]
        self.held = k.shared(self.code, self.turns * self.threads * self.V) if self.turns else None
        self.best = [k.shared(self.code, 1), k.shared(u32, 1)]
        self.picked = [k.shared(f64, 1), k.shared(u32, 1), k.shared(u32, 1)]
        self.scratch = k.shared(f64, max(self.threads // 32, 1))
        self.turn = k.var(u32, 0)
        self.bound, self.bound_place = k.var(self.code, self.top - 1), k.var(u32, NONE)
        self.stage, self.bin, self.shift = k.var(u32, 0), k.var(u32, 0), k.var(u32, 0)
        self.low, self.high, self.low_place, self.high_place = (
            k.var(t, 0) for t in (self.code, self.code, u32, u32)
        )  # fmt: skip

    # ---- passes

    def sync(self) -> None:
        """A barrier of all blocks that share the row."""
        if self.blocks > 1:
            self.k.sync_cluster()
        else:
            self.k.sync()

    def _loaded(self, first: Any, count: int) -> list[tuple[Any, list[Any]]]:
        """Place and codes of `count` vectors of a thread: of no element, a code that none has."""
        k, step = self.k, self.threads * self.V
        loaded = []
        for u in range(count):
            at = first + u * step
            loaded.append((at, at < self.end, self.x.load(at, vec=self.V, where=at < self.end)))
        return [
            (at, [k.select(live, code_of(k, number(k, v)), k.const(self.code, self.top)) for v in values])
            for at, live, values in loaded
        ]

    def _read(self) -> Iterator[tuple[Any, list[Any]]]:
        """Vectors of this thread from memory; where there is room for their codes, these are kept."""
        k, V = self.k, self.V
        step, start = self.threads * V, self.begin + k.tid * V
        if self.held is None:
            for first in k.range(start, self.end, step * 2):
                yield from self._loaded(first, 2)
            return
        for turn in range(0, self.turns, UNROLL):
            count = min(UNROLL, self.turns - turn)
            for u, (at, codes) in enumerate(self._loaded(start + turn * step, count)):
                each = 16 // self.code.bytes
                for e in range(0, V, each):
                    self.held.store(((turn + u) * self.threads + k.tid) * V + e, codes[e : e + each])
                yield at, codes

    def vectors(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Codes and places of this thread's elements, 16 bytes at a time; some have no element's code."""
        k, V = self.k, self.V
        each = min(16 // self.code.bytes, V)
        if self.held is None:
            for at, codes in self._read():
                for e in range(0, V, each):
                    yield codes[e : e + each], [at + i for i in range(e, e + each)]
            return
        for turn in k.range(self.turns):
            at = (turn * self.threads + k.tid) * V
            for e in range(0, V, each):
                yield self.held.load(at + e, vec=each), [self.begin + at + i for i in range(e, e + each)]

    def elements(self) -> Iterator[tuple[Any, Any]]:
        """(code, place) of each element."""
        for codes, places in self.vectors():
            yield from zip(codes, places, strict=True)

    def first(self) -> tuple[Any, Any]:
        """Code and place of the row's first token: the same in all threads of all blocks.  Passes begin with it."""
        k: Any = self.k
        code, place = k.var(self.code, self.top), k.var(u32, NONE)
        for at, codes in self._read():
            for e, own in enumerate(codes):
                better = own < code
                place.set(k.select(better, at + e, place))
                code.set(k.select(better, own, code))
        least = k.block_reduce(code.value, "min")
        where = k.block_reduce(k.select(code == least, place, NONE), "min")
        with k.when(k.tid == 0):
            self.best[0].store(0, least)
            self.best[1].store(0, where)
        code, place = self._agreed()
        self.most, self.most_code = value_of(k, code), code
        return code, place

    def _agreed(self) -> tuple[Any, Any]:
        """The first of the tokens that the blocks have in `best`."""
        k: Any = self.k
        self.sync()
        if self.blocks == 1:
            result = self.best[0].load(0), self.best[1].load(0)
            k.sync()
            return result
        others = [tuple(k.in_block(a, b).load(0) for a in self.best) for b in range(self.blocks)]
        least = others[0]
        for other in others[1:]:
            least = _earlier(k, least, other)
        with k.when(k.tid == 0):  # in memory that no other block reads, for all threads to know the same
            self.picked[1].store(0, least[1])
            self.scratch.store(0, least[0].to(u64).bits(f64))
        self.sync()  # before a block has another token in `best`
        code = self.scratch.load(0).bits(u64)
        result = (code if self.code is u64 else k.unpack(code)[0]), self.picked[1].load(0)
        k.sync()
        return result

    # ---- the search

    def limit(self, gap: Any) -> None:
        """Drop tokens that are less than the largest by more than a gap, an f64 that may be infinite."""
        k: Any = self.k
        edge = self.most.to(f64) - gap
        code = code_of(k, edge if self.code is u64 else edge.to(f32, "rp"))
        nearer = (gap < float("inf")) & (code < self.bound)
        self.bound.set(k.select(nearer, code, self.bound))
        self.bound_place.set(k.select(nearer, NONE, self.bound_place))

    def search(self, level_of: Callable[[Any], Any], strict: Any, weights: Any = None, rate: Any = None,
               scale: Any = None) -> None:  # fmt: skip
        """Make the bound the first token at which the sum passes its level.

        level_of: the level, from the sum over all.  strict: a predicate, whether it must be exceeded.  weights: a
        predicate, whether a token counts 2^(-rate · gap) · scale, where scale is a power of two, or else 1.
        """
        k: Any = self.k
        for var, value in (
            (self.stage, 0), (self.bin, 0), (self.shift, 0), (self.low, 0), (self.high, self.bound),
            (self.low_place, 0), (self.high_place, NONE),
        ):  # fmt: skip
            var.set(value)
        before, level = k.var(f64, 0.0), k.var(f64, 0.0)
        with k.loop() as loop:
            total, inclusive, exclusive, some, count = self._summed(weights, rate, scale)
            level.set(k.select(self.stage == 0, level_of(total), level))
            reached = before + inclusive
            passes = some & ((reached > level) | (~strict & (reached >= level)))
            own = k.select(passes, k.tid, k.select(some, 2 * self.threads - 1 - k.tid, 2 * self.threads))
            chosen = k.block_reduce(own, "min")
            bin_ = k.select(chosen < self.threads, chosen, 2 * self.threads - 1 - chosen)
            with k.when(k.tid == bin_):
                self.picked[0].store(0, before + exclusive)
                self.picked[1].store(0, k.tid)
                self.picked[2].store(0, count)
            k.sync()
            before.set(self.picked[0].load(0))
            picked, tokens = self.picked[1].load(0), self.picked[2].load(0)
            ended = (self.stage == 2) & (self.shift == 0)
            self._narrow(picked)
            k.sync()
            loop.leave_if((tokens <= 1) | ended)
        with k.when(k.tid == 0):
            self.best[0].store(0, self.top)
            self.best[1].store(0, NONE)
        k.sync()
        for codes, places in self.vectors():
            near, some = self._near(codes)
            with k.when(some):
                for code, place, possible in zip(codes, places, near, strict=True):
                    here = possible & self._here(code, place)
                    self.best[0].store(0, code, where=here)
                    self.best[1].store(0, place, where=here)
        code, place = self._agreed()
        self.bound.set(code)
        self.bound_place.set(place)

    def _near(self, codes: list[Any]) -> tuple[list[Any], Any]:
        """Whether each code is among those that the bin can hold, and whether any is: all that is asked of most."""
        near = [(code >= self.low) & (code <= self.high) for code in codes]
        some = near[0]
        for other in near[1:]:
            some = some | other
        return near, some

    def _here(self, code: Any, place: Any) -> Any:
        """Whether a token with such a code is in the bin, and not behind the bound."""
        behind = (code == self.bound) & (place > self.bound_place)
        inside = (place >= self.low_place) & (place <= self.high_place)
        return inside & ~behind & ((self.stage == 0) | (self._bin_of(code) == self.bin))

    def kept(self, code: Any, place: Any) -> Any:
        """Whether a token is the bound, or before it."""
        return (code < self.bound) | ((code == self.bound) & (place <= self.bound_place))

    def _bin_of(self, code: Any) -> Any:
        """The bin of the first pass: the larger the difference from the largest, the later.  A NaN's has all."""
        gap = (self.most - value_of(self.k, code)) * STEPS
        return self.k.min(gap.to(u32, "rz"), self.threads - 1)

    def _summed(self, weights: Any, rate: Any, scale: Any) -> tuple[Any, Any, Any, Any, Any]:
        """The sum over all bins, over those up to this thread's, over those before it; and whether this one has any.

        That is not whether the second sum exceeds the third: they are added in other orders, and an empty bin's may
        differ by rounding.  Last, the tokens in this bin.
        """
        k: Any = self.k
        base = self.turn * self.threads
        mine = base + k.tid
        for array in self.bins:
            array.store(mine, 0)
        k.sync()
        counts, *parts = self.bins
        for codes, places in self.vectors():
            near, some = self._near(codes)
            with k.when(some):  # all of a vector at once, since exponentials take long one after the other
                taken = []
                for code, place, possible in zip(codes, places, near, strict=True):
                    here = possible & self._here(code, place)
                    deep = k.select(self.stage == 2, (place - self.low_place).to(self.code), code - self.low)
                    deep = k.shr(deep, self.shift)
                    deep = deep if deep.type is u32 else k.unpack(deep)[0]
                    bin_ = k.select(self.stage == 0, self._bin_of(code), k.min(deep, self.threads - 1)) + base
                    counts.reduce("add", bin_, 1, where=here)
                    taken.append((code, here, bin_))
                if weights is not None:
                    with k.when(weights):
                        fixed = [k.unpack(self._weight(code, rate, scale)) for code, _, _ in taken]
                        for (low, high), (_, here, bin_) in zip(fixed, taken, strict=True):
                            old = parts[0].atomic("add", bin_, low, where=here)
                            parts[1].reduce("add", bin_, high + ((old + low) < old).to(u32), where=here)
        self.sync()
        count, own = self._gathered(mine, weights)
        self.turn.set(self.turn ^ 1)
        return (*self._scanned(own), own > 0.0, count)

    def _weight(self, code: Any, rate: Any, scale: Any) -> Any:
        """2^(-rate · gap) · scale as a u64."""
        k: Any = self.k
        gap = self.most.to(f64) - widened(k, value_of(k, code))
        gap = k.select(code == self.most_code, 0.0, gap)
        return k.fma(halving(k, gap * rate), scale, 2.0**52).bits(u64) - (1075 << 52)

    def _gathered(self, mine: Any, weights: Any) -> tuple[Any, Any]:
        """The tokens in one bin of all blocks, and their sum as f64: exact as an integer, then rounded."""
        k: Any = self.k
        sums = []
        for array in self.bins:
            values = [(k.in_block(array, b) if self.blocks > 1 else array).load(mine) for b in range(self.blocks)]
            sums.append([v.to(u64) for v in values])
        count, *parts = (_total(v) for v in sums)
        own = count.to(f64)
        if parts:
            own = k.select(weights, (parts[0] + k.shl(parts[1], 32)).to(f64), own)
        return k.unpack(count)[0], own

    def _scanned(self, own: Any) -> tuple[Any, Any, Any]:
        """The sum over all threads, that up to this one, and that before it, in a fixed order."""
        k: Any = self.k
        warps = self.threads // 32
        running = _running(k, own, 32)
        with k.when(k.lane == 31):
            self.scratch.store(k.warp, running)
        k.sync()
        ends = _running(k, self.scratch.load(k.lane % warps), warps)
        total = k.shuffle(ends, "idx", warps - 1)
        previous = k.shuffle(ends, "idx", k.max(k.warp, 1) - 1)
        earlier = k.select(k.warp == 0, 0.0, previous)
        before = k.shuffle(running, "up", 1)
        k.sync()
        return total, earlier + running, earlier + k.select(k.lane == 0, 0.0, before)

    def _narrow(self, picked: Any) -> None:
        """Divide the bin that was found: the codes that it may hold, or what is left of them, or places."""
        k: Any = self.k
        kind = self.most.type
        begin, end = picked.to(kind) * (1 / STEPS), (picked + 1).to(kind) * (1 / STEPS)
        first = code_of(k, k.sub(self.most, begin * (1 - LOOSE), rnd="rp"))
        last = code_of(k, k.sub(self.most, end * (1 + LOOSE), rnd="rm"))
        whole = self.most_code == 0  # a NaN: there are no differences, and the first bin has all
        first = k.select(whole, k.const(self.code, 0), first)
        last = k.min(k.select(whole | (picked == self.threads - 1), k.const(self.code, self.top), last), self.bound)
        low = self.low + k.shl(picked.to(self.code), self.shift)
        high = low + k.min(self.high - low, k.shl(k.const(self.code, 1), self.shift) - 1)  # no sum may wrap around
        coarse, by_code = self.stage == 0, self.stage == 1
        single = by_code & (self.shift == 0)  # one code has more than one token
        low_place = self.low_place + k.shl(picked, self.shift)
        high_place = low_place + k.min(self.high_place - low_place, k.shl(k.const(u32, 1), self.shift) - 1)
        by_place = self.stage == 2
        self.bin.set(k.select(coarse, picked, self.bin))
        self.low_place.set(k.select(by_place, low_place, 0))
        self.high_place.set(k.select(by_place, high_place, k.select(single, self.n - 1, NONE)))
        self.high.set(k.select(coarse, last, k.select(by_code, high, self.high)))
        self.low.set(k.select(coarse, first, k.select(by_code, low, self.low)))
        self.stage.set(k.select(coarse, k.const(u32, 1), k.select(single, k.const(u32, 2), self.stage)))
        codes = k.sub(self.code.bits, k.clz(self.high - self.low))
        digits = k.select(self.stage == 2, k.sub(32, k.clz(self.high_place - self.low_place)), codes)
        self.shift.set(k.max(digits, self.bits) - self.bits)


def _total(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _running(k: Any, value: Any, width: int) -> Any:
    """The sum over a group's lanes up to each."""
    distance = 1
    while distance < width:
        other = k.shuffle(value, "up", distance, width)
        value = k.select(k.lane % width >= distance, value + other, value)
        distance *= 2
    return value


def _earlier(k: Any, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of two (code, place) the first."""
    other = (b[0] < a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
    return k.select(other, b[0], a[0]), k.select(other, b[1], a[1])
