"""Copies that run beside the threads: cp.async, bulk copies, tensor maps, and the mbarriers that count them.

The thread that started a cp.async waits for it (`k.async_wait`), and other threads need a k.sync() after that.
Bulk copies report to an mbarrier, on which any thread can wait.
"""

from collections.abc import Sequence
from typing import Final

from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.pointers import Array, Index, Pointer
from trueno_cuda.ptx.tensor_cores import TensorCores
from trueno_cuda.ptx.types import (
    cache_policy,
    cluster_address,
    mbarrier_word,
    pred,
    s32,
    shared_address,
    tensor_address,
    u16,
    u32,
)
from trueno_cuda.ptx.values import Value, multiple

TO_SHARED: Final = "cp.async.bulk{}.shared::cluster.global{}.mbarrier::complete_tx::bytes{}{}"
REDUCTIONS: Final = ("add", "min", "max", "and", "or", "xor", "inc", "dec")


class Mbarrier:
    """Barriers in shared memory that count arrivals and, on sm_90, bytes.

    `wait(parity)` returns once the phase of that parity is over: 0 the first time, then 1, 0, 1 ...; a number `slot`
    selects one of several.
    """

    def __init__(self, k: "Asynchronous", words: Array) -> None:
        self.k, self.words = k, words

    def _place(self, slot: Value | int, how: str = "read") -> str:
        assert self.words.region is not None
        self.k.in_bounds(self.words, slot, 1)
        self.k.path.touch(how, self.words.region)
        return self.k.place_of(self.words, slot)

    def init(self, arrivals: int, slot: Value | int = 0) -> None:
        """Let a phase end after this many arrivals.  One thread does so; then k.fence("mbarrier_init"), k.sync()."""
        if not 0 < arrivals < 1 << 20:
            raise BuildError(f"an mbarrier for {arrivals} arrivals: 1 to {(1 << 20) - 1}")
        self.k.emit("mbarrier.init.shared.b64", self._place(slot, "write"), str(arrivals))

    def arrive(self, slot: Value | int = 0, *, where: Value | None = None) -> None:
        """Count this thread, or those where `where` is true; waiting threads see what they wrote before."""
        guard, state = self.k.guard(where), self.k.new(mbarrier_word)
        self.k.emit("mbarrier.arrive.shared.b64", state.text, self._place(slot), guard=guard)

    def arrive_expecting(self, bytes: Value | int, slot: Value | int = 0) -> None:  # noqa: A002
        """Arrive, and make the phase also wait for `bytes` bytes of bulk copies."""
        count, state = self.k.operand(bytes, u32), self.k.new(mbarrier_word)
        self.k.emit("mbarrier.arrive.expect_tx.shared.b64", state.text, self._place(slot), count)

    def arrive_in(self, rank: Value | int, slot: Value | int = 0) -> None:
        """Arrive at the same barrier of another block of the cluster."""
        k = self.k
        local, remote = k.address(self.words, slot), k.new(cluster_address)
        k.emit("mapa.shared::cluster.u32", remote.text, local.text, k.operand(rank, u32))
        k.emit("mbarrier.arrive.release.cluster.shared::cluster.b64", "_", f"[{remote.text}]")

    def arrive_after_copies(self, slot: Value | int = 0) -> None:
        """Arrive once this thread's earlier cp.async have landed; the arrival is one of those counted by `init`."""
        self.k.emit("cp.async.mbarrier.arrive.noinc.shared.b64", self._place(slot))
        self.k.path.pending.commit()
        self.k.path.pending.wait(0)

    def wait(self, parity: Value | int, slot: Value | int = 0) -> None:
        """Wait for the end of a phase.  Writes before the arrivals are visible after it."""
        k = self.k
        if isinstance(parity, int) and parity not in (0, 1):
            raise BuildError(f"an mbarrier's parity is 0 or 1, not {parity}")
        # The address and the parity stay in registers while it spins.
        place, phase = self._place(slot), k.operand(parity, u32)
        label, done = k.label("wait"), k.new(pred)
        k.place(label)
        test = "try_wait" if k.target.number >= 90 else "test_wait"
        k.emit(f"mbarrier.{test}.parity.shared.b64", done.text, place, phase)
        k.emit(f"@!{done.text} bra", label)
        k.path.sync("block")


class Asynchronous(TensorCores):
    """Adds asynchronous copies."""

    # ---- cp.async -------------------------------------------------------------------------------------

    def copy_async(
        self, tile: Pointer, to: Index, source: Pointer, at: Index, count: int,
        *, where: Value | bool | None = None, cache: str = "",
    ) -> None:  # fmt: skip
        """Copy `count` elements from global to shared memory, 4, 8 or 16 bytes; zeros where `where` is false.

        to, at: indices in elements, known to be multiples of `count`.  cache: `l2_64`, `l2_128` or `l2_256`, bytes to
        prefetch.  BuildError: also if the tile is read before k.async_wait and a barrier, or never waited for.
        """
        size = count * source.element.bytes
        if (tile.root.space, source.root.space) != ("shared", "global") or tile.element is not source.element:
            raise BuildError(f"k.copy_async: from global to shared memory of one element type, not {source} to {tile}")
        if size not in (4, 8, 16):
            raise BuildError(f"k.copy_async: {count} {source.element} are {size} bytes; 4, 8 or 16 are wanted")
        if cache not in ("", "l2_64", "l2_128", "l2_256"):
            raise BuildError(f"k.copy_async: cache={cache!r} is not one of l2_64, l2_128, l2_256")
        masked = bool(self.guard(where))
        self._aligned(tile, to, count, "k.copy_async")
        self._aligned(source, at, count, "k.copy_async")
        destination, origin = self._landing(tile, to, count), self._origin(source, at)
        operands = [destination, origin, str(size)]
        if masked:
            assert isinstance(where, Value)
            taken = self.new(u32)
            self.emit("selp.u32", taken.text, str(size), "0", self.read(where))
            operands.append(taken.text)
        hint = f".L2::{cache[3:]}B" if cache else ""
        self.emit(f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global{hint}", *operands)

    def async_commit(self) -> None:
        """Close a group of cp.async, for k.async_wait to count."""
        self.emit("cp.async.commit_group")
        self.path.pending.commit()

    def async_wait(self, newest: int = 0) -> None:
        """Wait until all but the `newest` groups of this thread have landed; other threads need k.sync() after it."""
        if newest < 0:
            raise BuildError(f"k.async_wait({newest}): how many groups may still run")
        self.emit("cp.async.wait_group", str(newest))
        self.path.pending.wait(newest)

    def _aligned(self, pointer: Pointer, index: Index, count: int, what: str) -> None:
        divisor = min(pointer.multiple, multiple(self.flat(pointer, index)))
        step = count & -count
        if divisor % step:
            raise BuildError(
                f"{what}: {count} elements of {pointer} must start at a multiple of {step}, and the index is only "
                f"known to be one of {divisor}; multiply by a constant, or promise it with k.multiple_of(i, {step})"
            )
        pointer.root.align = max(pointer.root.align, step * pointer.element.bytes)

    def _landing(self, tile: Pointer, to: Index, count: int, how: str = "copy_async") -> str:
        at = self.flat(tile, to)
        self.in_bounds(tile, at, count)
        if tile.region is not None:
            self.path.touch(how, tile.region)
        return self.place_of(tile, at)

    def _origin(self, source: Pointer, at: Index) -> str:
        source.root.read = True
        return self.place_of(source, self.flat(source, at))

    # ---- bulk copies and tensor maps, sm_90 -----------------------------------------------------------

    def mbarrier(self, slots: int = 1) -> Mbarrier:
        """`slots` barriers in shared memory, of 8 bytes each; `init` them before their first use."""
        return Mbarrier(self, self._array(mbarrier_word, (slots,), "shared", shared_address, 1, 8, "block"))

    def copy_bulk(
        self, tile: Pointer, to: Index, source: Pointer, at: Index, count: Value | int, barrier: Mbarrier,
        slot: Value | int = 0, *, blocks: Value | None = None, policy: Value | None = None,
    ) -> None:  # fmt: skip
        """One thread copies `count` elements from global to shared memory; their bytes count at `barrier`.

        to, at: indices in elements.  count: also a u32, of which nothing checks that the array has room.  blocks: a u16
        with a bit for each block of the cluster that gets them, at the same place.  policy: a k.l2_policy.
        BuildError: for bytes, or places, that are not known to be multiples of 16.
        """
        self._bulk_fits(source, count, "k.copy_bulk", tile, to, at)
        least = count if isinstance(count, int) else 16 // tile.element.bytes
        destination, origin = self._landing(tile, to, least, "fill"), self._origin(source, at)
        size = self.operand(count * tile.element.bytes, u32)
        self._to_shared("", "", [destination, origin, size, barrier._place(slot)], blocks, policy)

    def copy_tensor(
        self, tile: Pointer, to: Index, source: Value, at: Sequence[Value | int], barrier: Mbarrier,
        slot: Value | int = 0, *, blocks: Value | None = None, policy: Value | None = None,
    ) -> None:  # fmt: skip
        """One thread copies a box of a tensor map to shared memory.

        at: the box' corner, in elements, innermost first, each an s32 or a Python int; its size is the map's.  blocks,
        policy: as in `copy_bulk`.  BuildError: for a corner with no or more than 5 dimensions.
        """
        tile.root.align = max(tile.root.align, 128)
        destination = self._landing(tile, to, 1, "fill")
        operands = [destination, self._corner(source, at), barrier._place(slot)]
        self._to_shared(f".tensor.{len(at)}d", ".tile", operands, blocks, policy)

    def _to_shared(
        self, tensor: str, mode: str, operands: list[str], blocks: Value | None, policy: Value | None
    ) -> None:
        multicast, hint = "", ""
        if blocks is not None:
            multicast, operands = ".multicast::cluster", [*operands, self.operand(blocks, u16)]
        if policy is not None:
            hint, operands = ".L2::cache_hint", [*operands, self.operand(policy, cache_policy)]
        self.emit(TO_SHARED.format(tensor, mode, multicast, hint), *operands)

    def store_bulk(self, target: Pointer, to: Index, tile: Pointer, at: Index, count: int, *, reduce: str = "") -> None:
        """One thread copies `count` elements from shared to global memory, or adds them there (`reduce="add"`).

        Then k.bulk_commit() and k.bulk_wait().  BuildError: as in `copy_bulk`.
        """
        self._bulk_fits(target, count, "k.store_bulk", tile, at, to)
        if reduce and reduce not in REDUCTIONS:
            raise BuildError(f"k.store_bulk: reduce={reduce!r} is not one of {', '.join(REDUCTIONS)}")
        target.root.written = True
        self.writes(target.root)
        operands = [self.place_of(target, self.flat(target, to)), self._landing(tile, at, count, "fetch")]
        start, end = ("cp.reduce", f".{reduce}.{target.element}") if reduce else ("cp", "")
        self.emit(f"{start}.async.bulk.global.shared::cta.bulk_group{end}", *operands, str(count * tile.element.bytes))

    def store_tensor(self, target: Value, to: Sequence[Value | int], tile: Pointer, at: Index) -> None:
        """One thread copies a box from shared memory to a tensor map's place."""
        self.writes(None)
        operands = [self._corner(target, to), self._landing(tile, at, 1, "fetch")]
        self.emit(f"cp.async.bulk.tensor.{len(to)}d.global.shared::cta.tile.bulk_group", *operands)

    def bulk_commit(self) -> None:
        """Close a group of bulk stores."""
        self.emit("cp.async.bulk.commit_group")

    def bulk_wait(self, newest: int = 0, *, read: bool = True) -> None:
        """Wait until all but the `newest` groups have read their shared memory, or also have written (read=False)."""
        self.emit(f"cp.async.bulk.wait_group{'.read' if read else ''}", str(newest))

    def prefetch_map(self, source: Value) -> None:
        """Fetch a tensor map's 128 bytes ahead of the first copy; one thread does it."""
        self.emit("prefetch.tensormap", f"[{self.operand(source, tensor_address)}]")

    def _corner(self, tensor: Value, at: Sequence[Value | int]) -> str:
        if not 1 <= len(at) <= 5:
            raise BuildError(f"a tensor map has 1 to 5 dimensions, the corner has {len(at)}")
        corner = ", ".join(self.operand(v, s32) for v in at)
        return f"[{self.operand(tensor, tensor_address)}, {{{corner}}}]"

    def _bulk_fits(
        self, remote: Pointer, count: Value | int, what: str, tile: Pointer, here: Index, there: Index
    ) -> None:
        size = count * remote.element.bytes
        if (tile.root.space, remote.root.space) != ("shared", "global") or tile.element is not remote.element:
            raise BuildError(f"{what}: global and shared memory of one element type, not {remote} and {tile}")
        if isinstance(size, Value):
            if multiple(size) % 16:
                raise BuildError(
                    f"{what}: the bytes are only known to be a multiple of {multiple(size)}; 16 is wanted: promise it "
                    f"with k.multiple_of"
                )
        elif size % 16 or size <= 0:
            raise BuildError(f"{what}: {count} {remote.element} are {size} bytes; a multiple of 16 is wanted")
        unit = 16 // remote.element.bytes
        self._aligned(tile, here, unit, what)
        self._aligned(remote, there, unit, what)
