"""Loads, stores and atomics, on pointers into global, shared and local memory.

A vector access must be aligned, and the builder must know that it is: from constants, from multiplications by
them, or from the author's assertion (`k.multiple_of`).
"""

import math
from collections.abc import Sequence
from functools import cached_property

from trueno_cuda.ptx.control import Control
from trueno_cuda.ptx.elements import Place, Threads
from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.hazards import Region, Uniformity
from trueno_cuda.ptx.instructions import ATOMICS
from trueno_cuda.ptx.pointers import CACHE, ORDERS, SCOPES, Array, Index, Pointer, Root
from trueno_cuda.ptx.types import (
    PACKS,
    Type,
    cache_policy,
    checked,
    cluster_address,
    f16,
    global_address,
    local_address,
    shared_address,
    u32,
    u64,
)
from trueno_cuda.ptx.values import Number, Value, is_predicate, least_uniform, multiple, plain, seen


class Memory(Control):
    """Adds arrays, loads, stores and atomics."""

    @cached_property
    def given(self) -> dict[str, Root]:
        """The memory that the pointer parameters refer to, by the parameter's name."""
        return {}

    @cached_property
    def arrays(self) -> list[Array]:
        """The arrays declared so far."""
        return []

    # ---- arrays ---------------------------------------------------------------------------------------

    def shared(self, element: Type, *shape: int, stages: int = 1, per: str = "block", align: int = 16) -> Array:
        """Shared memory of a block: `tile = k.shared(f32, 64, 65)`, used as `tile.load((row, col))`.

        shape: elements, Python ints.  stages: number of copies, `tile[stage]`.  align: bytes.  per="warp": each warp
        uses its own part, so k.sync_warp orders it.  Beyond 48 KiB all arrays become dynamic shared memory, which the
        launcher must request.  BuildError: beyond the limit of the architecture, and for a read after a write,
        or a write after a read, with no barrier between.
        """
        if per not in ("block", "warp"):
            raise BuildError(f"k.shared: per={per!r} is neither 'block' nor 'warp'")
        return self._array(element, shape, "shared", shared_address, stages, align, per)

    def local(self, element: Type, *shape: int) -> Array:
        """An array per thread, in local memory: only for indices known on the GPU; slow.

        shape: elements, Python ints.  With indices that Python knows, k.vars stays in registers.
        """
        return self._array(element, shape, "local", local_address, 1, 16, "")

    def _array(
        self, element: Type, shape: tuple[int, ...], space: str, address: Type, stages: int, align: int, per: str
    ) -> Array:
        element = checked(element, f"k.{space}", f"k.{space}(f32, 32, 33)")
        shape = tuple(map(plain, shape))
        if not shape or not all(isinstance(n, int) and n > 0 for n in (*shape, stages)):
            raise BuildError(f"k.{space}: a shape of positive Python ints is wanted, not {shape} in {stages} stages")
        count = math.prod(shape)
        if align < 1 or align & (align - 1):
            raise BuildError(f"k.{space}: align={align} is not a power of two")
        number = 1 + sum(a.root.space == space for a in self.arrays)
        root = Root(f"{space}_{number}", space, max(align, element.bytes))
        pitches = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        region = Region(root.name, "0" if stages > 1 else "", per) if space == "shared" else None
        base = self.new(address, Uniformity.BLOCK, top=True)
        array = Array(self, element, root, base, 1 << 40, count, region, pitches)
        array.stages = stages
        self.arrays.append(array)
        return array

    # ---- addresses ------------------------------------------------------------------------------------

    def flat(self, pointer: Pointer, index: Index) -> Value | int:
        """A row and a column as one index."""
        if not isinstance(index, tuple):
            return plain(index)  # type: ignore[no-any-return]
        index = tuple(map(plain, index))
        if len(index) != len(pointer.pitches):
            raise BuildError(f"{pointer} has {len(pointer.pitches)} dimensions, the index has {len(index)}")
        total: Value | int = 0
        for at, pitch in zip(index, pointer.pitches, strict=True):
            step = at * pitch
            total = step if isinstance(total, int) and total == 0 else total + step
        return total

    def in_bounds(self, pointer: Pointer, index: Value | int, count: int) -> None:
        if isinstance(index, int) and pointer.count is not None and not 0 <= index <= pointer.count - count:
            wanted = f"{index} to {index + count - 1}" if count > 1 else str(index)
            raise BuildError(f"element {wanted} of {pointer}, which has {pointer.count}")

    def address(self, pointer: Pointer, index: Value | int) -> Value:
        """The address of an element, in a register."""
        base, size, where = self.read(pointer.address), pointer.element.bytes, pointer.address
        if not isinstance(index, (int, Value)) or isinstance(index, bool):
            raise BuildError(f"{pointer}: {index!r} is not an index; indices are integers and count elements")
        if isinstance(index, int) and index == 0:
            return where
        result = self.new(where.type, least_uniform(where, index))
        if isinstance(index, int):
            self.emit(f"add.{where.type.word}", result.text, base, str(index * size))
        elif not index.type.integer or index.type.bits < 32 or index.type.bits > where.type.bits:
            wanted = "u32 or s32" if where.type.bits == 32 else "u32, s32, u64 or s64"
            raise BuildError(f"{pointer}: {index} is not an index; indices into {pointer.root.space} memory: {wanted}")
        else:
            wide = "wide" if index.type.bits < where.type.bits else "lo"
            self.emit(f"mad.{wide}.{index.type}", result.text, self.read(index), str(size), base)
        return result

    def place_of(self, pointer: Pointer, index: Value | int) -> str:
        """`[register+bytes]` of an element."""
        if isinstance(index, int) and not isinstance(index, bool):
            offset = index * pointer.element.bytes
            return f"[{self.read(pointer.address)}{f'+{offset}' if offset else ''}]"
        return f"[{self.address(pointer, index).text}]"

    @cached_property
    def _block(self) -> Threads | None:
        """The block's threads, if their number is known."""
        return None if self.shape is None else Threads(self.shape)

    def _spot(self, pointer: Pointer, at: Value | int, count: int, where: Value | bool | None) -> Place | None:
        """The elements that an access of shared memory touches, in each thread."""
        if self._block is None:
            return None
        parts = (*pointer.offset, (seen(at), pointer.element.bytes))
        conditions = [*self.path.conditions, *([(seen(where), True)] if isinstance(where, Value) else [])]
        return Place(self._block, parts, count * pointer.element.bytes, conditions)

    def _access(
        self, pointer: Pointer, index: Index, count: int, how: str, where: Value | bool | None
    ) -> tuple[str, Value | int]:
        """Check an access of `count` neighbours and note it; returns its place and the index."""
        at = self.flat(pointer, index)
        size, root = pointer.element.bytes, pointer.root
        widest = 32 if self.target.number >= 100 and root.space == "global" else 16
        if count & (count - 1) or count < 1 or size * count > max(widest, size):
            raise BuildError(
                f"{pointer}: a vector of {count} {pointer.element} is not 1, 2, 4, ... of at most {widest} bytes"
            )
        divisor = min(pointer.multiple, multiple(at))
        if divisor % count:
            raise BuildError(
                f"{pointer}: a vector of {count} must start at a multiple of {count}, and the index is only known to "
                f"be one of {divisor}; multiply by a constant, or promise it with k.multiple_of(i, {count})"
            )
        self.in_bounds(pointer, at, count)
        root.align = max(root.align, size * count)
        root.read |= how != "write"
        root.written |= how != "read"
        if how != "read" and root.space == "global":
            self.writes(root)
        if pointer.region is not None:
            spot = self._spot(pointer, at, count, where)
            self.path.touch("write" if how != "read" else "read", pointer.region, spot)
        return self.place_of(pointer, at), at

    def writes(self, root: Root | None) -> None:
        """Note a write to global memory, of a parameter or other; BuildError where none may be written yet."""
        if self.late and not self.path.pending.waited:
            name = root.name if root else "a tensor map's memory"
            raise BuildError(f"{name} is written before k.wait_previous(): the previous grid may still use it")

    # ---- loads and stores -----------------------------------------------------------------------------

    def load(
        self, pointer: Pointer, index: Index, count: int, *, where: Value | bool | None = None,
        other: Value | Number = 0, cache: str = "", policy: Value | None = None, order: str = "", scope: str = "gpu",
    ) -> list[Value]:  # fmt: skip
        """`pointer.load(...)`; always a list."""
        guard = self.guard(where)
        place, at = self._access(pointer, index, count, "read", where)
        element, kind = pointer.element, pointer.element.widened
        level = least_uniform(at, where, pointer.address)
        packs = element.bits < 32 and count > 4
        word = PACKS.get(element.name) if packs else kind
        if word is None or not word.register:
            hint = f"; cast to {PACKS[element.name]}" if element.name in PACKS else ""
            raise BuildError(f"{pointer}: {count} {element} cannot be loaded together{hint}")
        number = count // word.lanes if packs else count
        values = [self.new(word, level) for _ in range(number)]
        if where is not None and guard:
            both = self.pack(word, other, other) if packs and isinstance(other, Value) else other
            filling = self.operand(both, word)
            for value in values:
                self.emit(f"mov.{word.word}", value.text, filling)
        spelled = word.word if packs else element.word
        opcode = f"ld{self._access_words(pointer, order, scope, cache, policy)}{_vector(number)}.{spelled}"
        operands = [_tuple(values), place] + ([self.operand(policy, cache_policy)] if policy is not None else [])
        self.emit(opcode, *operands, guard=guard)
        return [lane for value in values for lane in self.unpack(value)] if packs else values

    def store(
        self, pointer: Pointer, index: Index, values: Sequence[Value | Number], *, where: Value | bool | None = None,
        cache: str = "", policy: Value | None = None, order: str = "", scope: str = "gpu",
    ) -> None:  # fmt: skip
        """`pointer.store(...)`."""
        guard = self.guard(where)
        element, kind, count = pointer.element, pointer.element.widened, len(values)
        place, _ = self._access(pointer, index, count, "write", where)
        texts = [self.operand(v, kind) for v in values]
        spelled = element.word
        if element.bits < 32 and count > 4:
            word = PACKS[element.name]
            if word.lanes != 2:
                raise BuildError(f"{pointer}: {count} {element} cannot be stored together; cast to {word}")
            packs = [self.new(word) for _ in range(count // 2)]
            for i, pack in enumerate(packs):
                self.emit("mov.b32", pack.text, f"{{{texts[2 * i]}, {texts[2 * i + 1]}}}")
            texts, spelled = [p.text for p in packs], word.word
        opcode = f"st{self._access_words(pointer, order, scope, cache, policy)}{_vector(len(texts))}.{spelled}"
        operands = [place, _braces(texts)] + ([self.operand(policy, cache_policy)] if policy is not None else [])
        self.emit(opcode, *operands, guard=guard)

    def guard(self, where: Value | bool | None) -> str:
        """The `@%p1 ` of a masked access; True and None mask nothing."""
        if where is None or where is True:
            return ""
        if not is_predicate(where):
            raise BuildError(f"where={where!r} is not a predicate; compare, as in where=i < n")
        return f"@{self.read(where)} "  # type: ignore[arg-type]

    def _order(self, order: str, scope: str) -> str:
        if not order:
            return ""
        if order not in ORDERS or scope not in SCOPES:
            raise BuildError(f"order={order!r} scope={scope!r}: known are {', '.join(ORDERS)}; {', '.join(SCOPES)}")
        return f".{order}" if order == "volatile" else f".{order}.{SCOPES[scope]}"

    def _access_words(self, pointer: Pointer, order: str, scope: str, cache: str, policy: Value | None) -> str:
        """The text between `ld` or `st` and the type: order, address space, cache hints."""
        for word in cache.split():
            if word not in CACHE:
                raise BuildError(f"cache={cache!r}: {word!r} is not one of {', '.join(CACHE)}")
        hints = "".join(CACHE[w] for w in cache.split() if not (w == "nc" and self.early)) + (
            ".L2::cache_hint" if policy is not None else ""
        )
        return f"{self._order(order, scope)}.{pointer.root.space}{hints}"

    def l2_policy(self, priority: str = "evict_first", fraction: float = 1.0) -> Value:
        """For `policy=`: evict_first, evict_last or evict_unchanged, for that fraction of the accesses."""
        if priority not in ("evict_first", "evict_last", "evict_normal", "evict_unchanged") or not 0 < fraction <= 1:
            raise BuildError(f"k.l2_policy({priority!r}, {fraction}): evict_first, evict_last, evict_normal; up to 1.0")
        policy = self.new(cache_policy, Uniformity.BLOCK)
        self.emit(f"createpolicy.fractional.L2::{priority}.b64", policy.text, str(float(fraction)))
        return policy

    def in_block(self, pointer: Pointer, rank: Value | int) -> Pointer:
        """The same shared memory in the cluster's block with rank `rank`."""
        if pointer.root.space != "shared":
            raise BuildError(f"{pointer}: only shared memory has a counterpart in other blocks of the cluster")
        address = self.new(cluster_address)
        self.emit("mapa.shared::cluster.u32", address.text, self.read(pointer.address), self.operand(rank, u32))
        root = Root(pointer.root.name, "shared::cluster", pointer.root.align)
        return Pointer(self, pointer.element, root, address, pointer.multiple, pointer.count, None, pointer.pitches)

    def as_global(self, address: Value, element: Type, align: int = 16) -> Pointer:
        """A pointer that was itself loaded from memory, as a u64: for tables of matrices.

        align: bytes that the address is asserted to be a multiple of.
        """
        result = self.new(global_address, address.uniformity)
        self.emit("cvta.to.global.u64", result.text, self.operand(address, u64))
        return Pointer(self, element, Root(f"memory at {address.text}", "global", align), result)

    # ---- atomics --------------------------------------------------------------------------------------

    def atomic(
        self, pointer: Pointer, name: str, index: Index, operands: Sequence[Value | Number], *, returns: bool,
        where: Value | bool | None = None, order: str = "", scope: str = "gpu",
    ) -> Value | None:  # fmt: skip
        """`pointer.atomic(...)` and `pointer.reduce(...)`."""
        kind = pointer.element
        if name not in ATOMICS:
            raise BuildError(f"{pointer}: no atomic {name!r}; known: {', '.join(ATOMICS)}")
        if kind not in ATOMICS[name] or (not returns and name in ("exch", "cas")):
            taken = ", ".join(t.name for t in ATOMICS[name])
            raise BuildError(
                f"{pointer}: atomic {name} is for {taken}" + ("" if returns else ", and returns the old value")
            )
        wanted = 2 if name == "cas" else 1
        if len(operands) != wanted:
            raise BuildError(f"{pointer}: atomic {name} takes {wanted} values, not {len(operands)}")
        guard = self.guard(where)
        place, _ = self._access(pointer, index, 1, "both", where)
        suffix = f"b{kind.bits}" if name in ("and", "or", "xor", "exch", "cas") else kind.name
        rounding = ".noftz" if kind is f16 or kind.kind == "x" or kind.name == "bf16" else ""
        opcode = (
            f"{'atom' if returns else 'red'}{self._order(order, scope)}.{pointer.root.space}.{name}{rounding}.{suffix}"
        )
        texts = [self.operand(v, kind) for v in operands]
        if not returns:
            self.emit(opcode, place, *texts, guard=guard)
            return None
        result = self.new(kind)
        if guard:
            self.emit(f"mov.{kind.word}", result.text, self.operand(0, kind))
        self.emit(opcode, result.text, place, *texts, guard=guard)
        return result


def _vector(count: int) -> str:
    return f".v{count}" if count > 1 else ""


def _braces(texts: Sequence[str]) -> str:
    return f"{{{', '.join(texts)}}}" if len(texts) > 1 else texts[0]


def _tuple(values: Sequence[Value]) -> str:
    return _braces([v.text for v in values])
