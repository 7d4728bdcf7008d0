"""A warp's part of attention_decode by matrix products: what it reads, multiplies, and leaves for others.

Lane 4 g + c holds keys g and g + 8 in part, all of the scores of queries 2 c and 2 c + 1 with these, and columns of
values that belong to g of four keys that belong to c.
"""

from typing import Any

from trueno_cuda.kernels.caches.cells import Rows
from trueno_cuda.kernels.caches.shares import NOWHERE, WARPS, Share, across, finite, largest
from trueno_cuda.ptx import Builder, Value, bf16x2, f16x2, f32, s32, u32, u64

THREADS = 32 * WARPS
EACH = 16
"""Keys of a warp at a time."""
WIDTH = 8
"""Rows of queries of a tile."""
MOST = 128
"""The longest row: its numbers are in registers."""
PACKS = {"f16": (f16x2, 2, 2.0**15), "bf16": (bf16x2, 3, 1.0), "q8_0": (f16x2, 2, 1.0)}
"""Registers of a format, parts that make a float32, and what weights are multiplied by before they are split."""
LOWER, UPPER = 0x5410, 0x7632
"""Selectors of prmt that join the lower, or the upper, halves of two registers."""
MOST_FRAGMENTS = 8
"""Fragments of queries that a warp keeps in registers; of more, it reads each from shared memory as it is needed."""
APART = 2
"""Numbers between rows in shared memory, so that lanes write to different banks."""


def rows_of(tiles: int, along: bool) -> int:
    """Rows of queries of a block."""
    return WIDTH * tiles * (1 if along else WARPS)


def step_of(along: bool, warps: int = WARPS) -> int:
    """Keys that a block takes at a time."""
    return EACH * warps if along else EACH


def _parts(k: Builder, form: str, pairs: list[tuple[Value, Value]]) -> list[list[Value]]:
    """Registers of pairs of float32: those of the first part, of the second, …, which add up to them."""
    pack, count, _ = PACKS[form]
    parts = []
    for number in range(count):
        parts.append([k.pack(pack, a, b) for a, b in pairs])
        if number + 1 < count:
            near = [k.unpack(x, f32) for x in parts[-1]]
            pairs = [(a - x, b - y) for (a, b), (x, y) in zip(pairs, near, strict=True)]
    return parts


def _scaled(k: Builder, numbers: list[Value], form: str) -> tuple[list[Value], Value]:
    """A lane's numbers of a query times a power of two, which puts the largest of all lanes near 2^15; its inverse."""
    if PACKS[form][0] is not f16x2:
        return numbers, k.const(f32, 1.0)
    most = abs(numbers[0])
    for x in numbers[1:]:
        most = k.max(most, abs(x))
    exponent = k.min(k.max(across(k, most, "max", (1, 2)).bits(u32) >> 23, 15), 254)
    factor = ((268 - exponent) << 23).bits(f32)
    return [x * factor for x in numbers], ((exponent - 14) << 23).bits(f32)


def _chunks(e: int) -> list[tuple[int, int]]:
    """(first column, numbers of a lane) of each access of eight lanes to a row of values."""
    return [(c, 8 if c + 64 <= e else 4) for c in range(0, e, 64)]


class Warp:
    """What a warp holds: of lane 4 g + c the queries g, the sums of queries 2 c and 2 c + 1, and 16 keys."""

    def __init__(
        self, k: Builder, p: Any, share: Share, form: str, d: int, e: int, tiles: int, along: bool, capped: bool
    ) -> None:  # fmt: skip
        self.k, self.p, self.share, self.form, self.d, self.e = k, p, share, form, d, e
        self.along, self.capped = along, capped
        self.pack, self.count, self.lift = PACKS[form]
        self.cache = "no_allocate" if along else ""
        self.g, self.c = k.lane // 4, k.lane % 4
        self.first = k.const(u32, 0) if along else k.warp * (WIDTH * tiles)
        self.tiles = range(tiles)
        self.declare()
        self.start = share.low + (k.warp * EACH).bits(s32) if along else share.low
        self.here = k.var(self.slot(self.start))  # the first keys and values are on their way while queries are split
        self.read_keys(self.here.value)
        self.read_values(self.here.value)
        self.queries: list[list[list[list[Value]]]] = []
        kept = len(self.tiles) * (d // 32) * self.count
        self.kept = k.shared(self.pack, share.warps, kept, 32, 4, per="warp") if kept > MOST_FRAGMENTS else None
        inverses = [self._query(n) for n in self.tiles]
        if self.kept is not None:
            k.sync_warp()
        self.inverses = [[k.shuffle(i, "idx", 8 * self.c + 4 * b) for b in range(2)] for i in inverses]
        self.places = [[share.place(self.first + (WIDTH * n + 2 * self.c + b)) for b in range(2)] for n in self.tiles]
        self.tops = [[k.var(f32, -float("inf")) for _ in range(2)] for _ in self.tiles]
        self.totals = [k.vars(f32, 2, 0.0) for _ in self.tiles]
        self.sums = [[k.vars(f32, 4, 0.0) for _ in self.tiles] for _ in self.columns]

    def declare(self) -> None:
        """Registers of keys and values; and of sums, the first column of lane 0, and the columns of a lane."""
        k = self.k
        self.keys = [[k.vars(self.pack, 4) for _ in range(0, self.d, 32)] for _ in range(2)]
        self.values = [k.vars(self.pack, 4) for _ in range(0, self.e, 16)]
        self.columns = [(c + i, width) for c, width in _chunks(self.e) for i in range(0, width, 2)]

    def _query(self, n: int) -> Value:
        """Take this lane's query of a tile apart, for `fragment`; what undoes its scaling."""
        k, p = self.k, self.p
        _, row = self.share.place(self.first + (WIDTH * n + self.g))
        line = p.q + row.to(u64) * self.d
        numbers = []
        for chunk in range(0, self.d, 32):
            for half in (0, 4):
                numbers += line.load(self.c * 8 + (chunk + half), vec=4)
        numbers, inverse = _scaled(k, [x * p.scale for x in numbers], self.form)
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        fragments = [_parts(k, self.form, pairs[i : i + 4]) for i in range(0, len(pairs), 4)]
        if self.kept is None:
            self.queries.append(fragments)
            return inverse
        for i, fragment in enumerate(x for parts in fragments for x in parts):
            self.kept.store((k.warp, n * (self.d // 32) * self.count + i, k.lane, 0), fragment)
        return inverse

    def fragment(self, n: int, chunk: int, part: int) -> list[Value]:
        """A part of 32 numbers of a tile's queries, from registers or from this warp's shared memory."""
        if self.kept is None:
            return self.queries[n][chunk][part]
        at = (n * (self.d // 32) + chunk) * self.count + part
        found: list[Value] = self.kept.load((self.k.warp, at, self.k.lane, 0), vec=4)
        return found

    # ---- reading ----------------------------------------------------------------------------------------

    def key(self, base: Value) -> Value:
        """The key that this lane looks up: each of the 16 from `base` on is that of two lanes."""
        mine: Value = base + (self.k.lane % EACH).bits(s32)
        return mine

    def slot(self, base: Value, page: tuple[Any, Any] | None = None) -> Value:
        """The slot of this lane's key."""
        return self.share.slot(self.key(base), page)

    def read_keys(self, slots: Value) -> None:
        """Begin to read this lane's parts of two keys; 0 where there is none."""
        k = self.k
        rows = Rows(self.form, self.d)
        for half, held in enumerate(self.keys):
            slot = k.shuffle(slots, "idx", self.g + 8 * half)
            line = self.share.line(self.p.keys, slot, rows, k.nctaid_y).cast(self.pack)
            for chunk, registers in enumerate(held):
                read = line.load(self.c * 4 + 16 * chunk, vec=4, where=slot != NOWHERE, cache=self.cache)
                for register, value in zip(registers, read, strict=True):
                    register.set(value)

    def read_values(self, slots: Value) -> None:
        """Begin to read this lane's columns of its four keys, pairs of neighbours; 0 where there is no key."""
        k, rows = self.k, Rows(self.form, self.e)
        for i, j in enumerate((0, 1, 8, 9)):
            slot = k.shuffle(slots, "idx", 2 * self.c + j)
            line = self.share.line(self.p.values, slot, rows, k.nctaid_y).cast(self.pack)
            words: list[Value] = []
            for first, width in _chunks(self.e):
                at = self.g * (width // 2) + first // 2
                words += line.load(at, vec=width // 2, where=slot != NOWHERE, cache=self.cache)
            for registers, word in zip(self.values, words, strict=True):
                registers[i].set(word)

    # ---- products ---------------------------------------------------------------------------------------

    def scores(self, n: int) -> list[Value]:
        """Keys g, g, g + 8, g + 8 times queries 2 c, 2 c + 1, 2 c, 2 c + 1 of a tile.

        Several sums, since a product waits for the one before it on the same sum.
        """
        k, (upper, lower) = self.k, self.keys
        split = 2 if len(self.tiles) == 1 else 1
        sums = [[k.vars(f32, 4, 0.0) for _ in range(split)] for _ in range(self.count)]
        for chunk in range(self.d // 32):
            parts = [self.fragment(n, chunk, part) for part in range(self.count)]
            for i in (0, 2):
                a = [upper[chunk][i], lower[chunk][i], upper[chunk][i + 1], lower[chunk][i + 1]]
                for part, acc in zip(parts, sums, strict=True):
                    k.mma("m16n8k16", acc[i // 2 % split], [x.value for x in a], part[i : i + 2])
        terms = [acc for part in reversed(sums) for acc in part]  # the small ones first
        total: list[Any] = list(terms[0])
        for term in terms[1:]:
            total = [x + y for x, y in zip(total, term, strict=True)]
        return [x * self.inverses[n][i % 2] for i, x in enumerate(total)]

    def weights(self, n: int, dots: list[Value], base: Value, slots: list[Value]) -> Any:
        """The `parts` of a tile's weights; what came before shrinks where a maximum grows."""
        k, share = self.k, self.share
        mine: list[Any] = [None] * 4
        for b in range(2):
            position = self.places[n][b][0]
            pair = [
                share.score(dots[2 * h + b], base + (self.g + 8 * h).bits(s32), slots[h], position, self.capped)
                for h in range(2)
            ]
            before = self.tops[n][b]
            top = k.max(before, across(k, k.max(*pair), "max"))
            reference = finite(k, top)
            shrunk = k.exp2(before - reference, ftz=True)
            self.tops[n][b].set(top)
            one, other = (k.exp2(x - reference, ftz=True) for x in pair)
            self.totals[n][b].set(k.fma(self.totals[n][b], shrunk, one + other))
            mine[b], mine[2 + b] = one * self.lift, other * self.lift
            for sums in self.sums:
                for i in (b, 2 + b):
                    sums[n][i].set(sums[n][i] * shrunk)
        odd = self.g % 2 == 1
        turned = []
        for h in range(2):
            for j in range(2):
                lane = 8 * self.c + (4 * j + self.g // 2)
                a, b_ = (k.shuffle(mine[2 * h + b], "idx", lane) for b in range(2))
                turned.append(k.select(odd, b_, a))
        return self.parts(turned)

    def parts(self, weights: list[Value]) -> Any:
        """What `add` takes of the weights of a lane's four keys."""
        return _parts(self.k, self.form, [(weights[0], weights[1]), (weights[2], weights[3])])

    def add(self, fragments: Any) -> None:
        """Add weights times values to the sums.  fragments: of each tile, the parts of its weights, [part][2]."""
        k = self.k
        for words, sums in zip(self.values, self.sums, strict=True):
            a = [k.prmt(words[j].value, words[j + 1].value, how) for j in (0, 2) for how in (LOWER, UPPER)]
            for n in self.tiles:
                for part in reversed(fragments[n]):
                    k.mma("m16n8k16", sums[n], a, part)

    def run(self) -> None:
        """All of the share's keys, and what they come to."""
        k, share = self.k, self.share
        step = step_of(self.along, share.warps)
        entry, token = share.page(self.key(self.start + step))
        if share.entry is None:
            entry, token = k.var(entry), k.var(token)
        for base in k.range(self.start, share.high, step):
            slots = self.here.value
            following = self.slot(base + step, None if share.entry is not None else (entry.value, token.value))
            dots = [self.scores(n) for n in self.tiles]
            self.read_keys(following)
            self.here.set(following)
            if share.entry is None:  # two turns ahead, so that nothing waits for the table
                page = share.page(self.key(base + 2 * step))
                entry.set(page[0])
                token.set(page[1])
            mine = [k.shuffle(slots, "idx", self.g + 8 * h) for h in range(2)]
            self.add([self.weights(n, dots[n], base, mine) for n in self.tiles])
            self.read_values(following)
        for n in self.tiles:
            for b in range(2):
                self.totals[n][b].set(across(k, self.totals[n][b].value, "add"))
        if self.along:
            self._joined()
        else:
            self._written()

    # ---- the end ----------------------------------------------------------------------------------------

    def _written(self) -> None:
        """Each warp writes its own rows."""
        k, p = self.k, self.p
        for n in self.tiles:
            for b in range(2):
                _, row = self.places[n][b]
                exists = self.share.exists(self.first + (WIDTH * n + 2 * self.c + b))
                at = k.mul_wide(self.share.split, p.rows) + row.to(u64)
                with k.when(self.g == 0):
                    p.stats.store(at * 2, [self.tops[n][b].value, self.totals[n][b].value], where=exists)
                numbers = [[sums[n][i] * (1 / self.lift) for i in (b, 2 + b)] for sums in self.sums]
                line = p.parts + at * self.e
                for i in range(0, len(numbers), 2):
                    first, width = self.columns[i]
                    line.store(self.g * width + first, numbers[i] + numbers[i + 1], where=exists)

    def _joined(self) -> None:
        """Warps leave their sums in shared memory, and the block writes what they add up to."""
        k, share, height = self.k, self.share, WIDTH * len(self.tiles)
        held = k.shared(f32, share.warps, height, self.e + APART)
        state = k.shared(f32, share.warps, height, 2)
        rows = [[2 * self.c + (WIDTH * n + b) for b in range(2)] for n in self.tiles]
        for n in self.tiles:
            for b in range(2):
                with k.when(self.g == 0):
                    state.store((k.warp, rows[n][b], 0), [self.tops[n][b].value, self.totals[n][b].value])
        k.sync()
        for n in self.tiles:
            for b in range(2):
                top = finite(k, largest(k, state, rows[n][b], share.warps))
                factor = k.exp2(self.tops[n][b] - top, ftz=True) * (1 / self.lift)
                for (first, width), sums in zip(self.columns, self.sums, strict=True):
                    pair = [sums[n][b] * factor, sums[n][2 + b] * factor]
                    held.store((k.warp, rows[n][b], self.g * width + first), pair)
        k.sync()
        turn = 2 * 32 * share.warps
        for i in range(0, height * self.e, turn):
            at = k.tid * 2 + i
            inside = at < height * self.e if height * self.e % turn else None
            r, column = at // self.e, k.multiple_of(at % self.e, 2)
            _, row = share.place(r)
            total = held.load((0, r, column), vec=2, where=inside)
            for w in range(1, share.warps):
                total = [x + y for x, y in zip(total, held.load((w, r, column), vec=2, where=inside), strict=True)]
            share.keep(r, row, column, self.e, total, inside)
        share.settled(state)
