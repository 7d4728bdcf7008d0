"""Collective operations of threads: barriers, fences, shuffles, votes, and reductions over a warp or a block."""

from collections.abc import Callable
from functools import cached_property
from typing import overload

from trueno_cuda.ptx.errors import BuildError, suggestion
from trueno_cuda.ptx.hazards import Uniformity
from trueno_cuda.ptx.instructions import FENCES, INSTRUCTIONS
from trueno_cuda.ptx.memory import Memory
from trueno_cuda.ptx.pointers import Array
from trueno_cuda.ptx.types import Type, pred, u16, u32, u64
from trueno_cuda.ptx.values import Value, is_predicate

FULL = 0xFFFFFFFF
SHUFFLES = {"down": "down", "up": "up", "xor": "bfly", "idx": "idx"}
REDUX = {
    "add": ("u32", "s32"), "min": ("u32", "s32"), "max": ("u32", "s32"),
    "and_": ("u32", "s32"), "or_": ("u32", "s32"), "xor": ("u32", "s32"),
}  # fmt: skip
"""Reductions that are one instruction from sm_80 on."""

Values = tuple[Value, ...]
Combine = Callable[[Values, Values], Values]


class Collectives(Memory):
    """Adds operations of a whole warp or block."""

    # ---- barriers -------------------------------------------------------------------------------------

    def wait_previous(self) -> None:
        """Wait for the previous grid, in a kernel with overlap="late": what it wrote may be read from here on.

        Each thread says so once, on every path, before it writes to global memory.  Before sm_90 it emits nothing.
        BuildError: in another kernel, a second time, and in a loop.
        """
        if not self.late:
            raise BuildError('k.wait_previous(): this kernel is not built with @kernel(overlap="late")')
        if self.path.pending.waited:
            raise BuildError("k.wait_previous(): it has waited already; once is enough")
        if any(scope.repeats for scope in self.path.scopes):
            raise BuildError("k.wait_previous() in a loop: wait before it")
        if self.early:
            self.emit("griddepcontrol.wait")
        self.path.pending.waited = True

    def sync(self, barrier: int = 0, threads: int | None = None) -> None:
        """All threads of the block wait for each other; their writes to shared memory are then visible to all.

        A numbered barrier (1 to 15) may be for some warps only: `threads` says how many, and then it may be in a
        branch, and orders only what these warps share.  BuildError: in a branch or loop that not all threads of the
        block take alike, and for a number of threads that is not a whole number of warps.
        """
        self._barrier("bar.sync", barrier, threads)
        self.path.sync("block")

    def arrive(self, barrier: int, threads: int) -> None:
        """Arrive at a numbered barrier without waiting; threads: of all that arrive or wait."""
        self._barrier("bar.arrive", barrier, threads)

    def _barrier(self, opcode: str, barrier: int, threads: int | None) -> None:
        if not 0 <= barrier < 16:
            raise BuildError(f"barrier {barrier}: there are 0 to 15")
        if threads is None:
            self.path.require(Uniformity.BLOCK, "k.sync()")
            self.emit(opcode, str(barrier))
            return
        if threads % 32 or not 0 < threads <= 1024:
            raise BuildError(f"a barrier for {threads} threads: whole warps are wanted, up to 1024")
        self.path.require(Uniformity.WARP, f"{opcode} {barrier}")
        self.emit(opcode, str(barrier), str(threads))

    def sync_warp(self, mask: int = FULL) -> None:
        """All threads of the warp, or those of a mask, wait for each other: for shared memory with per="warp"."""
        self._whole_warp(mask, "k.sync_warp()")
        self.emit("bar.warp.sync", str(mask))
        self.path.sync("warp")

    def sync_cluster(self) -> None:
        """All threads of all blocks of the cluster wait for each other."""
        self.path.require(Uniformity.BLOCK, "k.sync_cluster()")
        self.emit("barrier.cluster.arrive")
        self.emit("barrier.cluster.wait")
        self.path.sync("block")

    def arrive_cluster(self) -> None:
        """Say that this block has begun, without waiting, and without ordering any access to memory.

        A block may write to another one's shared memory as soon as that has begun: behind `k.wait_cluster()`, which
        must come before the next barrier of the cluster.
        """
        self.path.require(Uniformity.BLOCK, "k.arrive_cluster()")
        self.emit("barrier.cluster.arrive.relaxed")

    def wait_cluster(self) -> None:
        """Wait until all blocks of the cluster got to `k.arrive_cluster()`."""
        self.path.require(Uniformity.BLOCK, "k.wait_cluster()")
        self.emit("barrier.cluster.wait")

    def fence(self, what: str = "gpu") -> None:
        """Order memory accesses for a `block`, `cluster`, the `gpu`, the `system`, or for `async` copies.

        `mbarrier_init`: make the init of mbarriers known to the cluster and to bulk copies.
        """
        if what not in FENCES:
            raise BuildError(f"k.fence({what!r}): known are {', '.join(FENCES)}{suggestion(what, FENCES)}")
        self.emit(FENCES[what])
        if what == "async":
            self.path.unfenced.clear()

    def _whole_warp(self, mask: int, what: str) -> None:
        if not 0 < mask <= FULL:
            raise BuildError(f"{what}: mask={mask:#x} is not a mask of 32 threads")
        if mask == FULL:
            self.path.require(Uniformity.WARP, what)

    # ---- shuffles and votes ---------------------------------------------------------------------------

    def shuffle(self, value: Value, how: str, lane: Value | int, width: int = 32, mask: int = FULL) -> Value:
        """The value of another lane: `down` or `up` by `lane`, `xor` with it, or index `idx`, in groups of `width`.

        For 16, 32 or 64 bits.  If that lane does not exist, a lane gets its own value.  mask: participating lanes, a
        Python int.  BuildError: if not all lanes of the warp get here, unless `mask` says which do.
        """
        if how not in SHUFFLES:
            raise BuildError(f"k.shuffle: {how!r} is not one of {', '.join(SHUFFLES)}")
        if width not in (1, 2, 4, 8, 16, 32):
            raise BuildError(f"k.shuffle: width={width} is not a power of two up to 32")
        self._whole_warp(mask, "k.shuffle")
        kind = value.type
        if kind.bits == 64 and kind.kind != "o":
            low, high = (self.shuffle(v, how, lane, width, mask) for v in self.unpack(value.bits(u64)))
            return self.pack(u64, low, high).bits(kind)
        if kind.bits == 16:
            wide = value.bits(u16).to(u32)
            return self.shuffle(wide, how, lane, width, mask).to(u16).bits(kind)
        if kind.bits != 32:
            raise BuildError(f"k.shuffle: {value} is not a number")
        same_for_all = how == "idx" and isinstance(lane, int) and width == 32 and mask == FULL
        result = self.new(kind, max(Uniformity.WARP, value.uniformity) if same_for_all else value.uniformity)
        clamp = ((32 - width) << 8) | (0 if how == "up" else 31)  # PTX ISA: segment mask in bits 8-12, clamp below
        operands = [self.read(value), self.operand(lane, u32), str(clamp), f"0x{mask:08X}"]
        self.emit(f"shfl.sync.{SHUFFLES[how]}.b32", result.text, *operands)
        return result

    def vote(self, how: str, condition: Value, mask: int = FULL) -> Value:
        """Over the warp: `any`, `all` or `uni` (all the same) give a predicate, `ballot` a u32 with one bit per lane.

        BuildError: as in `shuffle`.
        """
        if how not in ("any", "all", "uni", "ballot"):
            raise BuildError(f"k.vote: {how!r} is not one of any, all, uni, ballot")
        if not is_predicate(condition):
            raise BuildError(f"k.vote: {condition!r} is not a predicate; compare first")
        self._whole_warp(mask, "k.vote")
        result = self.new(u32 if how == "ballot" else pred, max(Uniformity.WARP, condition.uniformity))
        kind = "b32" if how == "ballot" else "pred"
        self.emit(f"vote.sync.{how}.{kind}", result.text, self.read(condition), f"0x{mask:08X}")
        return result

    def match(self, value: Value, mask: int = FULL) -> Value:
        """A u32 with a bit for each lane of the warp that holds the same value."""
        self._whole_warp(mask, "k.match")
        if value.type.bits not in (32, 64):
            raise BuildError(f"k.match: {value} has {value.type.bits} bits; 32 or 64 are wanted")
        result = self.new(u32)
        self.emit(f"match.any.sync.b{value.type.bits}", result.text, self.read(value), f"0x{mask:08X}")
        return result

    def active_mask(self) -> Value:
        """A u32 with a bit for each lane of the warp that is active here."""
        result = self.new(u32)
        self.emit("activemask.b32", result.text)
        return result

    def elect(self) -> Value:
        """A predicate that is true in one lane of the warp (sm_90)."""
        self._whole_warp(FULL, "k.elect")
        result = self.new(pred)
        self.emit("elect.sync", f"_|{result.text}", f"0x{FULL:08X}")
        return result

    # ---- reductions over a warp -----------------------------------------------------------------------

    def warp_reduce(self, value: "Value | Values", combine: str | Combine, width: int = 32) -> "Value | Values":
        """All lanes of each group of `width` get the same result, bit for bit.

        combine: the name of an instruction (`add`, `max`), or a function of two tuples for values that travel
        together, such as a maximum and its index; it must be commutative.
        width: 1, 2, 4, 8, 16 or 32 lanes.  BuildError: in a branch or loop that lanes take differently, and for a type
        that `combine` does not take.
        """
        return self._over_lanes(value, combine, width, "k.warp_reduce")

    def _over_lanes(self, value: "Value | Values", combine: str | Combine, width: int, what: str) -> "Value | Values":
        """`what`, as the kernel called it, for error messages."""
        self._reducible(value, combine, what)
        if width not in (1, 2, 4, 8, 16, 32):
            raise BuildError(f"{what}: width={width} is not a power of two up to 32")
        self._whole_warp(FULL, what)
        if isinstance(value, Value) and isinstance(combine, str) and self._one_instruction(value, combine, width):
            return self._redux(value, combine)
        together = _combining(self, combine)
        current: Values = value if isinstance(value, tuple) else (value,)
        distance = width // 2
        while distance:
            current = together(current, tuple(self.shuffle(v, "xor", distance) for v in current))
            distance //= 2
        if width == 32:
            current = tuple(Value(self, v.type, v.text, v.scope, max(v.uniformity, Uniformity.WARP)) for v in current)
        return current if isinstance(value, tuple) else current[0]

    def _reducible(self, value: "Value | Values", combine: str | Combine, what: str) -> None:
        """Refuse values that cannot be reduced, naming the caller's operation."""
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts:
            if not isinstance(part, Value):
                raise BuildError(f"{what}: {part!r} is not a Value; of several that travel together give a tuple")
            if not isinstance(combine, str):
                continue
            if combine not in INSTRUCTIONS:
                raise BuildError(f"{what}: no instruction is named {combine!r}{suggestion(combine, INSTRUCTIONS)}")
            taken = dict.fromkeys(f.operands[0].name for f in INSTRUCTIONS[combine]
                                  if len(f.operands) == 2 and f.operands[0] is f.operands[1] is f.result)  # fmt: skip
            if part.type.name not in taken:
                hint = "; .to(u32) makes it 0 or 1" if part.type is pred else "; convert with .to(...)"
                raise BuildError(f"{what} takes {', '.join(taken) or 'no type'}, not {part.type}{hint}")

    def _one_instruction(self, value: Value, name: str, width: int) -> bool:
        return width == 32 and value.type.name in REDUX.get(name, ()) and self.target.number >= 80

    def _redux(self, value: Value, name: str) -> Value:
        name = name.rstrip("_")
        result = self.new(value.type, max(Uniformity.WARP, value.uniformity))
        suffix = "b32" if name in ("and", "or", "xor") else value.type.name
        self.emit(f"redux.sync.{name}.{suffix}", result.text, self.read(value), f"0x{FULL:08X}")
        return result

    def warp_sum(self, value: Value, width: int = 32) -> Value:
        """The sum over each group of `width` lanes, in each of them; see `warp_reduce`."""
        return _one(self._over_lanes(value, "add", width, "k.warp_sum"))

    def warp_max(self, value: Value, width: int = 32) -> Value:
        """The largest over each group of `width` lanes; between a NaN and a number, the number wins, as in PTX."""
        return _one(self._over_lanes(value, "max", width, "k.warp_max"))

    def warp_min(self, value: Value, width: int = 32) -> Value:
        """The smallest over each group of `width` lanes; between a NaN and a number, the number wins."""
        return _one(self._over_lanes(value, "min", width, "k.warp_min"))

    # ---- reductions over a block ----------------------------------------------------------------------

    @overload
    def block_reduce(self, value: Value, combine: str | Combine) -> Value: ...
    @overload
    def block_reduce(self, value: Values, combine: str | Combine) -> Values: ...
    def block_reduce(self, value: "Value | Values", combine: str | Combine) -> "Value | Values":
        """As `warp_reduce`, over all threads; each of them gets the result.

        One value per warp goes through shared memory.  The partial results are combined in order of the warps, or by
        halves if their number is a power of two, so the result depends only on the operands.
        BuildError: as in `warp_reduce`; and for a block whose size is unknown at build time, or has a partial warp.
        """
        return self._over_block(value, combine, "k.block_reduce")

    @overload
    def _over_block(self, value: Value, combine: str | Combine, what: str) -> Value: ...
    @overload
    def _over_block(self, value: Values, combine: str | Combine, what: str) -> Values: ...
    def _over_block(self, value: "Value | Values", combine: str | Combine, what: str) -> "Value | Values":
        if self.shape is None:
            raise BuildError(f"{what}: the launch decides how many threads there are; write @kernel(threads=256)")
        if self.threads % 32:
            raise BuildError(f"{what} needs whole warps, not {self.threads} threads")
        self.path.require(Uniformity.BLOCK, what)
        current = self._over_lanes(value, combine, 32, what)
        parts: Values = current if isinstance(current, tuple) else (current,)
        if self.warps > 1:
            parts = self._over_warps(parts, combine, what)
        parts = tuple(Value(self, v.type, v.text, v.scope, Uniformity.BLOCK) for v in parts)
        return parts if isinstance(value, tuple) else parts[0]

    def _over_warps(self, parts: Values, combine: str | Combine, what: str) -> Values:
        kinds = tuple(v.type for v in parts)
        arrays = self._scratch(kinds, what)
        busy = any(a.region in self.path.pending.reads for a in arrays)
        if busy or any(b.repeats for b in self.path.scopes):  # others may still read the results before these
            self.sync()
        with self.when(self.lane == 0):
            for array, part in zip(arrays, parts, strict=True):
                array.store(self.warp, part)
        self.sync()
        if self.warps & (self.warps - 1) == 0:
            mine = self.lane & (self.warps - 1)
            return _many(self._over_lanes(tuple(a.load(mine) for a in arrays), combine, self.warps, what))
        total = tuple(a.load(0) for a in arrays)
        for w in range(1, self.warps):
            total = _combining(self, combine)(total, tuple(a.load(w) for a in arrays))
        return total

    @cached_property
    def _scratch_arrays(self) -> dict[tuple[Type, ...], list[Array]]:
        return {}

    def _scratch(self, kinds: tuple[Type, ...], what: str) -> list[Array]:
        """One word per warp for each type; reused by later reductions."""
        arrays = self._scratch_arrays
        if kinds not in arrays:
            if pred in kinds:
                raise BuildError(f"{what}: predicates have no place in memory; use .to(u32)")
            arrays[kinds] = [self.shared(kind, self.warps) for kind in kinds]
        return arrays[kinds]

    def block_sum(self, value: Value) -> Value:
        """The sum over all threads of the block, in each of them; see `block_reduce`."""
        return self._over_block(value, "add", "k.block_sum")

    def block_max(self, value: Value) -> Value:
        """The largest of the block; between a NaN and a number, the number wins, as in PTX."""
        return self._over_block(value, "max", "k.block_max")

    def block_min(self, value: Value) -> Value:
        """The smallest of the block; between a NaN and a number, the number wins."""
        return self._over_block(value, "min", "k.block_min")

    # ---- winners --------------------------------------------------------------------------------------

    def first_larger(self, a: Values, b: Values) -> Values:
        """Of two (value, index) the larger value, a NaN before all, the lower index if they are equal."""
        (x, i), (y, j) = a, b
        nan_y, both = y != y, (x == y) | ((x != x) & (y != y))
        other = (y > x) | nan_y if x.type.kind == "f" else y > x
        better = self.select_predicate(both, j < i, other & ~(x != x) if x.type.kind == "f" else other)
        return self.select(better, y, x), self.select(better, j, i)

    def select_predicate(self, condition: Value, a: Value, b: Value) -> Value:
        """a if `condition` is true, else b, for predicates."""
        return (condition & a) | (~condition & b)

    def warp_argmax(self, value: Value, index: Value) -> Values:
        """The largest value of the warp and the lowest index that holds it; see `block_argmax`."""
        return _many(self._over_lanes((value, index), self.first_larger, 32, "k.warp_argmax"))

    def block_argmax(self, value: Value, index: Value) -> Values:
        """The largest value of the block and the lowest index that holds it; a NaN counts as largest, as in NumPy."""
        return self._over_block((value, index), self.first_larger, "k.block_argmax")


def _combining(k: Collectives, combine: str | Combine) -> Combine:
    if not isinstance(combine, str):
        return combine
    name = combine
    return lambda a, b: tuple(k.apply(name, x, y) for x, y in zip(a, b, strict=True))


def _one(value: "Value | Values") -> Value:
    assert isinstance(value, Value)
    return value


def _many(value: "Value | Values") -> Values:
    assert isinstance(value, tuple)
    return value
