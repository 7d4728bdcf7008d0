# mypy: disable-error-code="valid-type"
"""What brings a few tokens into a cache, in one launch: queries turn, keys turn and are stored, values are stored.

    blocks below `first_keys`     V pairs of a head of queries a thread, turned as `rope` turns them
    below `first_values`          V pairs of a head of keys, turned, rounded to the cache's format, and stored
    all others                    W numbers of a row of values, rounded and stored, as `kv_cache_scatter` does it

A batch asks for it as a `SharedOp` (`trueno.batch.tokens`).  A slot outside of a cache is left out, and of rows with
one slot the last one counts: a thread looks at the slots behind its own.  Prompts, guards, caches in q8_0 and heads of
which only a part turns run as the four kernels that they would be alone.

Floor: 14 KB for a token of a 7B model, which is a launch.  Measured in a step on an H200: 1.3 us a layer, and
4.3 us as four kernels.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import Call, Kernel, rotation

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.caches.cells import CELLS, PIECE, Rows, narrowed
from trueno_cuda.kernels.operands import VECTOR, build, prepared, typed
from trueno_cuda.kernels.turning import SMALL, Turns, angle_waves, turned
from trueno_cuda.ptx import TARGETS, Builder, Pointer, Source, Value, f32, ptr, u16, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 128
MOST_TOKENS = 64
"""Above so many, looking for later rows with the same slot costs more than a launch."""
MOST_LAUNCHES = 64
OPERANDS = ((0, 0), (0, 1), (1, 0), (2, 2), (3, 1))
"""Queries, positions, keys, slots and values: member, and which of its operands."""


def _bring(
    k: Builder, q: Pointer, positions: Pointer, key: Pointer, value: Pointer, slots: Pointer, keys: Pointer,
    values: Pointer, out: Pointer, turns: Pointer, count: Value, n: Value, heads: Value, kept: Value, pairs: Value,
    width: Value, first_keys: Value, first_values: Value, magnitude: Value,
    *, F: str, V: int, W: int, INTERLEAVED: bool, MANY: bool,
) -> None:  # fmt: skip
    """n tokens of `heads` heads of queries, `kept` of keys, and `width` numbers of values; caches of `count` slots."""
    pairs = k.multiple_of(pairs, V)

    def place(row: Value) -> tuple[Value, Value]:
        """The slot of a token, and whether its row is to be stored."""
        slot = slots.load(row)
        live = slot < count  # as an unsigned number, which a negative one exceeds
        if MANY:
            later = k.var(u32, 0)
            for j in k.range(row + 1, n):
                later |= k.select(slots.load(j) == slot, k.const(u32, 1), 0)
            live = live & (later.value == 0)
        return slot, live

    def heads_of(source: Pointer, number: Value, many: Value, into: Pointer | None) -> None:
        """Turn the pairs of thread `number`, and store them in `out`, or where the token's slot of a cache is."""
        groups = pairs // V
        row, rest = number // (many * groups), number % (many * groups)
        live = row < n
        row = k.min(row, n - 1)
        head, pair = rest // groups, rest % groups * V
        at = k.mul_wide(row * many + head, pairs * 2)
        one, other = (pair * 2, pair * 2 + V) if INTERLEAVED else (pair, pair + pairs)
        numbers = [x for c in (one, other) for x in (source + at).load(c, vec=V, where=live)]
        each = min(V, 2)
        own = [t for e in range(0, V, each) for t in turns.load(pair + e, vec=each, cache="ca")]
        position = positions.load(row)
        waves = [angle_waves(k, position, t, magnitude) for t in own]
        results = turned(k, waves, numbers, INTERLEAVED)
        if into is None:
            target, cells = out + at, results
        else:
            slot, there = place(row)
            live = live & there
            target = into + (slot * (many * pairs * 2).to(u64) + k.mul_wide(head, pairs * 2))
            cells = narrowed(k, F, results)
        target.store(one, cells[:V], where=live)
        target.store(other, cells[V:], where=live)

    with k.when(k.ctaid < first_keys):
        heads_of(q, k.ctaid * THREADS + k.tid, heads, None)
    with k.otherwise():
        with k.when(k.ctaid < first_values):
            heads_of(key, (k.ctaid - first_keys) * THREADS + k.tid, kept, keys)
        with k.otherwise():
            pieces = k.multiple_of(width, W) // W
            number = (k.ctaid - first_values) * THREADS + k.tid
            row, at = number // pieces, number % pieces * W
            live = row < n
            row = k.min(row, n - 1)
            line = value + k.mul_wide(row, k.multiple_of(width, W))
            numbers = line.load(at, vec=W, where=live) if W > 1 else [line.load(at, where=live)]
            slot, there = place(row)
            cells = narrowed(k, F, numbers)
            target = values + slot * k.multiple_of(width, W).to(u64)
            target.store(at, cells if W > 1 else cells[0], where=live & there)


@cache
def source(form: str) -> Source:
    """The kernel; its constants are F, V, W, INTERLEAVED and MANY."""
    element = f32 if form == "f32" else u16
    pointers = {
        "q": ptr(f32), "positions": ptr(u64), "key": ptr(f32), "value": ptr(f32), "slots": ptr(u64),
        "keys": ptr(element), "values": ptr(element), "out": ptr(f32), "turns": ptr(u64),
    }  # fmt: skip
    sizes = {"count": u64} | dict.fromkeys(("n", "heads", "kept", "pairs", "width", "first_keys", "first_values"), u32)
    return typed(_bring, f"bring_{form}", THREADS, pointers | sizes | {"magnitude": f32})


def _vector(most: int, *numbers: int) -> int:
    """The widest access, up to `most` numbers, that divides all of these."""
    while any(x % most for x in numbers):
        most //= 2
    return most


def _blocks(n: int, heads: int, kept: int, pairs: int, width: int, v: int, w: int) -> tuple[int, int, int]:
    """Where the blocks of keys and of values begin, and how many blocks there are."""
    ends, first = [], 0
    for items in (n * heads * (pairs // v), n * kept * (pairs // v), n * (width // w)):
        first += -(-items // THREADS)
        ends.append(first)
    return ends[0], ends[1], ends[2]


def launch(
    device: Device, form: str, n: int, heads: int, kept: int, d: int, width: int, count: int, *,
    interleaved: bool, aligned: bool,
) -> Launch:  # fmt: skip
    """The launch for n tokens.  width: numbers of a row of values.  aligned: all arrays, to 16 bytes."""
    pairs = d // 2
    v = _vector(PIECE, pairs) if aligned and n * heads * pairs > SMALL * device.sms else 1
    w = _vector(PIECE, width) if aligned else 1
    first_keys, first_values, blocks = _blocks(n, heads, kept, pairs, width, v, w)
    constants = {"F": form, "V": v, "W": w, "INTERLEAVED": interleaved, "MANY": n > 1}
    numbers = (count, n, heads, kept, pairs, width, first_keys, first_values)
    return prepared(device, source(form), constants, blocks, numbers)


class Brought:
    """The kernel of one key.  alone: makes the kernel of one of the ops."""

    def __init__(self, device: Device, call: Call, alone: Any) -> None:
        op: Any = call.op
        self.device, self.call, self.alone, self.members = device, call, alone, op.members
        self.sources = [tuple(i for _, i in member.sources) for member in op.members]
        rope, scatter = dict(op.members[0].static), dict(op.members[2].static)
        self.form, self.interleaved = scatter["format"], rope["style"] == "interleaved"
        self.table = Turns(device, rope["scaling"])
        self.inputs = len(op.signature.inputs)
        self.together = self.form in CELLS and not rope["dims"] and not call.guarded
        self._launches: dict[Any, Launch] = {}
        self._kernels: list[Kernel] = []
        self._turned: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> int:
        operands, numbers, outs = args[: self.inputs], args[self.inputs : -3], args[-3:]
        q, positions, key, slots, value = (operands[self.sources[at][i]] for at, i in OPERANDS)
        if not self.together or len(q.shape) != 3 or not 0 < q.shape[0] <= MOST_TOKENS:
            return self._apart(operands, numbers, outs)
        n, heads, d = q.shape
        arrays = (q, positions, key, value, slots, outs[1], outs[2], outs[0])
        laid = self.device.contiguous
        good = (
            positions.shape == slots.shape == (n,) and key.shape[::2] == (n, d) and value.shape[0] == n
            and len(key.shape) == len(value.shape) == 3 and d % 2 == 0 and all(prod(x.shape) for x in arrays)
            and all(laid(x) is x for x in arrays) and numbers[:6] == numbers[6:]
            and self._takes(operands[self.sources[2][0]], key, outs[1], outs[1].shape[:2])
            and self._takes(operands[self.sources[3][0]], value, outs[2], outs[1].shape[:2])
        )  # fmt: skip
        if not good:
            return self._apart(operands, numbers, outs)
        pointers = [x.data.ptr for x in arrays]
        ends = [p + x.nbytes for p, x in zip(pointers, arrays, strict=True)]
        for to in (5, 6, 7):
            if any(pointers[i] < ends[to] and pointers[to] < ends[i] for i in range(len(arrays)) if i != to):
                return self._apart(operands, numbers, outs)  # each of which says what it takes
        turns, by = self.table(d // 2, *numbers[:6])
        aligned = not any(p % VECTOR for p in pointers)
        width, count = prod(value.shape[1:]), prod(outs[1].shape[:2])
        wanted = n, heads, key.shape[1], d, width, count, aligned
        ready = self._launches.get(wanted)
        if ready is None:
            if len(self._launches) >= MOST_LAUNCHES:
                self._launches.clear()
            ready = self._launches[wanted] = launch(
                self.device, self.form, *wanted[:-1], interleaved=self.interleaved, aligned=aligned
            )
        ready([*pointers, turns.data.ptr], (by,))
        return 0

    def _takes(self, kept: Any, x: Any, out: Any, slots: tuple[int, ...]) -> bool:
        """Whether rows of x go into this cache in place, which has pages and tokens like these."""
        rows = Rows(self.form, x.shape[2])
        if out.data.ptr != kept.data.ptr or out.data.ptr % rows.element.bytes or len(out.shape) != 4:
            return False
        return bool(out.shape[:2] == slots and out.shape[2:] == (x.shape[1], rows.nbytes))

    def _apart(self, operands: Sequence[Any], numbers: Sequence[float], outs: Sequence[Any]) -> int:
        """The four kernels, one after the other."""
        if not self._kernels:
            calls = [replace(self.call, op=m.op, layout=m.op.layout, static=m.static) for m in self.members]
            self._kernels = [self.alone(call) for call in calls]
        queries, keys, into, values = self._kernels
        key = operands[self.sources[1][0]]
        turned_keys = self._turned.get(key.shape)
        if turned_keys is None:
            turned_keys = self._turned[key.shape] = self.device.empty(key.shape, key.dtype)
        status = queries(*(operands[i] for i in self.sources[0]), *numbers[:6], outs[0])
        status = status or keys(*(operands[i] for i in self.sources[1]), *numbers[6:], turned_keys)
        slots = operands[self.sources[2][2]]
        status = status or into(operands[self.sources[2][0]], turned_keys, slots, outs[1])
        return status or values(*(operands[i] for i in self.sources[3]), outs[2])


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, form: str, V: int, W: int, INTERLEAVED: bool, MANY: bool) -> Built:
    constants = (("F", form), ("V", V), ("W", W), ("INTERLEAVED", INTERLEAVED), ("MANY", MANY))
    return build(source(form), arch, constants)


def _sample(rng: np.random.Generator, *, form: str, V: int, W: int, INTERLEAVED: bool, MANY: bool) -> Sample:
    """Positions 0, where nothing turns and every byte is plain to write down, and values with few digits."""
    n, heads, kept, pairs, count = 5 if MANY else 1, 3, 2, 8, 7
    slots = np.array([3, -1, 6, 7, 3] if MANY else [4])
    d, width = 2 * pairs, kept * 16
    q, key = (rng.integers(-127, 128, (n, h, d)).astype(np.float32) for h in (heads, kept))
    value = rng.integers(-127, 128, (n, width)).astype(np.float32)
    held = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}[form]
    bits = np.float32 if form == "f32" else np.uint16
    caches = []
    for rows in (key.reshape(n, -1), value):
        there = rng.integers(0, 1 << 15, (count, rows.shape[1])).astype(bits)
        want = there.copy()
        for slot, row in zip(slots, rows.astype(held), strict=True):
            if 0 <= slot < count:
                want[slot] = row.view(bits)
        caches.append((there, want))
    first_keys, first_values, blocks = _blocks(n, heads, kept, pairs, width, V, W)
    operands = {
        "q": q, "positions": np.zeros(n, np.int64), "key": key, "value": value, "slots": slots.astype(np.uint64),
        "keys": caches[0][0], "values": caches[1][0], "out": np.zeros_like(q),
        "turns": rotation(pairs, 10000.0, "none")[0], "count": count, "n": n, "heads": heads, "kept": kept,
        "pairs": pairs, "width": width, "first_keys": first_keys, "first_values": first_values, "magnitude": 1.0,
    }  # fmt: skip
    wants = {"keys": Want(caches[0][1]), "values": Want(caches[1][1]), "out": Want(q)}
    return Sample((blocks, 1, 1), operands, wants)


CATALOGUE = [
    CatalogueEntry(
        "bring",
        "caches",
        "rope of queries and keys, and rows of keys and values into slots of a cache, in one launch",
        _build,
        _sample,
        (
            Constant("form", "f16", "format of the caches", tuple(CELLS)),
            Constant("V", 1, "pairs of a thread", (1, 2, PIECE)),
            Constant("W", PIECE, "numbers of a row of values of a thread", (1, 2, PIECE)),
            Constant("INTERLEAVED", False, "pairs are neighbours", (False, True)),
            Constant("MANY", False, "several tokens, of which the last counts for a slot", (False, True)),
        ),
        arches=tuple(name for name, target in TARGETS.items() if target.number >= 80),
        variants=(
            {},
            {"form": "f32", "V": PIECE, "MANY": True},
            {"form": "bf16", "V": 2, "W": 1, "INTERLEAVED": True, "MANY": True},
            {"W": 2, "INTERLEAVED": True},
        ),
    )
]
