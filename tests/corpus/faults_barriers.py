"""Faults of barriers, asynchronous copies and what orders threads."""

from collections.abc import Iterator

from .faults import ODD, Edit, Edits, after, before, fault, instead, is_barrier, previous, rebuilt, without
from .statements import Entry, Statement


def _barriers(entry: Entry) -> Iterator[tuple[int, Statement]]:
    return ((k, s) for k, s in enumerate(entry.code) if s.kind == "instruction" and is_barrier(s))


def _awaits_copies(entry: Entry, at: int) -> bool:
    return any(_is_wait(entry.code[k]) for k, _ in zip(previous(entry, at), range(3), strict=False))


def _is_wait(s: Statement) -> bool:
    return s.opcode == "cp" and ("wait_group" in s.mods or "wait_all" in s.mods) and "bulk" not in s.mods


@fault("missing-barrier")
def drop_barrier(entry: Entry) -> Iterator[Edits]:
    """A barrier outside of loops is missing."""
    for k, s in _barriers(entry):
        if not entry.inside(k) and not _awaits_copies(entry, k):
            yield without(s)


@fault("missing-barrier")
def drop_loop_barrier(entry: Entry) -> Iterator[Edits]:
    """A barrier in a loop is missing: the next round writes what others still read, or reads too early."""
    for k, s in _barriers(entry):
        if entry.inside(k) and not _awaits_copies(entry, k):
            yield without(s)


@fault("missing-barrier")
def move_barrier(entry: Entry) -> Iterator[Edits]:
    """A barrier stands before the store that it has to follow."""
    for k, s in _barriers(entry):
        for j in previous(entry, k):
            store = entry.code[j]
            if store.opcode == "st" and any(m.startswith("shared") for m in store.mods):
                yield [*without(s), *before(store, s.text)]
                break


@fault("divergent-barrier")
def barrier_in_branch(entry: Entry) -> Iterator[Edits]:
    """Threads with odd numbers jump over a barrier."""
    for _, s in _barriers(entry):
        yield instead(s, f"{ODD} @%mut_p0 bra MUT_SKIP; {s.text}\nMUT_SKIP:")


@fault("divergent-barrier")
def guarded_barrier(entry: Entry) -> Iterator[Edits]:
    """A barrier has a guard that differs from thread to thread."""
    for _, s in _barriers(entry):
        if not s.guard:
            yield [Edit(s.start, s.end, f"{ODD} @%mut_p0 {s.text}")]


@fault("exit-before-barrier divergent-barrier")
def exit_before_barrier(entry: Entry) -> Iterator[Edits]:
    """Threads with odd numbers leave the kernel before a barrier."""
    for _, s in _barriers(entry):
        yield before(s, f"{ODD} @%mut_p0 ret;")


@fault("divergent-barrier exit-before-barrier")
def leave_loop_before_barrier(entry: Entry) -> Iterator[Edits]:
    """Threads with odd numbers leave a loop before the barrier in it."""
    for k, s in _barriers(entry):
        loops = entry.inside(k)
        if loops:
            tail = entry.code[max(loops, key=lambda loop: loop.head).tail]
            if tail.guard:
                yield [*before(s, f"{ODD} @%mut_p0 bra MUT_OUT;"), *after(tail, "\nMUT_OUT:")]


@fault("missing-barrier")
def drop_warp_barrier(entry: Entry) -> Iterator[Edits]:
    """Lanes of a warp exchange words in shared memory, and bar.warp.sync is missing."""
    for s in entry.instructions:
        if s.opcode == "bar" and "warp" in s.mods:
            yield without(s)


@fault("missing-barrier")
def plain_for_atomic(entry: Entry) -> Iterator[Edits]:
    """A load, an addition and a store stand in place of an atomic addition to shared memory."""
    for s in entry.instructions:
        if s.opcode in ("atom", "red") and "shared" in s.mods and "add" in s.mods and s.mods[-1] in ("u32", "s32"):
            place, value = s.operands[-2:]
            if not s.guard:
                kind = s.mods[-1]
                yield instead(s, f"ld.shared.{kind} %mut_r0, {place}; add.{kind} %mut_r1, %mut_r0, {value}; "
                                 f"st.shared.{kind} {place}, %mut_r1;")  # fmt: skip


# ---- asynchronous copies ------------------------------------------------------------------------


@fault("cp-async-no-wait")
def drop_copy_wait(entry: Entry) -> Iterator[Edits]:
    """Nothing waits for an asynchronous copy."""
    for s in entry.instructions:
        if _is_wait(s):
            yield without(s)


@fault("cp-async-no-wait")
def late_copy_wait(entry: Entry) -> Iterator[Edits]:
    """The wait leaves one group more on its way than it may."""
    for s in entry.instructions:
        if _is_wait(s) and "wait_group" in s.mods:
            yield instead(s, rebuilt(s, _0=str(int(s.operands[0]) + 1)))


@fault("cp-async-no-wait")
def drop_copy_commit(entry: Entry) -> Iterator[Edits]:
    """A group of copies is not committed, so that the wait is for an older one."""
    for s in entry.instructions:
        if s.opcode == "cp" and "commit_group" in s.mods and "bulk" not in s.mods:
            yield without(s)


@fault("cp-async-missing-barrier missing-barrier cp-async-no-wait")
def drop_barrier_after_copy(entry: Entry) -> Iterator[Edits]:
    """Each thread waits for its own copies, and no barrier follows before it reads those of others."""
    for k, s in _barriers(entry):
        if _awaits_copies(entry, k):
            yield without(s)


@fault("cp-async-missing-barrier missing-barrier cp-async-no-wait")
def wait_behind_barrier(entry: Entry) -> Iterator[Edits]:
    """The wait for the copies follows the barrier that it has to precede."""
    for k, s in _barriers(entry):
        for j in previous(entry, k):
            wait = entry.code[j]
            if _is_wait(wait):
                yield [*without(wait), *after(s, wait.text)]
                break


# ---- mbarriers and wgmma ------------------------------------------------------------------------


@fault("mbarrier-no-expect")
def drop_expect(entry: Entry) -> Iterator[Edits]:
    """The mbarrier is not told how many bytes a bulk copy brings."""
    for s in entry.instructions:
        if s.opcode == "mbarrier" and "expect_tx" in s.mods:
            if "arrive" in s.mods:
                name = s.name.replace(".expect_tx", "")
                yield instead(s, f"{name} {', '.join(s.operands[:-1])};")
            else:
                yield without(s)


@fault("mbarrier-no-wait missing-barrier")
def drop_mbarrier_wait(entry: Entry) -> Iterator[Edits]:
    """Nothing waits for the phase of an mbarrier: its test is replaced by true."""
    for s in entry.instructions:
        if s.opcode == "mbarrier" and ("try_wait" in s.mods or "test_wait" in s.mods):
            yield instead(s, f"setp.eq.u32 {s.operands[0]}, 0, 0;")


@fault("wgmma-no-fence")
def drop_wgmma_fence(entry: Entry) -> Iterator[Edits]:
    """A product of a warp group starts without the fence after its registers were written."""
    for s in entry.instructions:
        if s.opcode == "wgmma" and "fence" in s.mods:
            yield without(s)


@fault("wgmma-no-wait")
def drop_wgmma_wait(entry: Entry) -> Iterator[Edits]:
    """The accumulators are read while the product is in flight."""
    for s in entry.instructions:
        if s.opcode == "wgmma" and "wait_group" in s.mods:
            yield without(s)


@fault("wgmma-no-wait")
def late_wgmma_wait(entry: Entry) -> Iterator[Edits]:
    """The wait allows one group of products to be in flight, and it is the one that is read."""
    for s in entry.instructions:
        if s.opcode == "wgmma" and "wait_group" in s.mods:
            yield instead(s, rebuilt(s, _0=str(int(s.operands[0]) + 1)))


@fault("wgmma-no-wait")
def drop_wgmma_commit(entry: Entry) -> Iterator[Edits]:
    """The group of products is not committed, so that the wait is for none."""
    for s in entry.instructions:
        if s.opcode == "wgmma" and "commit_group" in s.mods:
            yield without(s)


# ---- shuffles -----------------------------------------------------------------------------------

WHOLE = ("-1", "0xffffffff", "4294967295", "0xFFFFFFFF")


def _of_all_lanes(entry: Entry) -> Iterator[Statement]:
    """Exchanges whose mask names the whole warp, in the text or through a register."""
    for s in entry.instructions:
        if s.opcode in ("shfl", "vote", "match", "redux") and "sync" in s.mods:
            mask = s.operands[-1]
            source = entry.sole(mask)
            if mask in WHOLE or (source is not None and source.opcode == "mov" and source.operands[1] in WHOLE):
                yield s


@fault("partial-shuffle-mask")
def partial_mask(entry: Entry) -> Iterator[Edits]:
    """The mask of an exchange names the lower half of the warp, and all lanes execute it."""
    for s in _of_all_lanes(entry):
        yield instead(s, rebuilt(s, **{f"_{len(s.operands) - 1}": "0x0000ffff"}))


@fault("partial-shuffle-mask divergent-barrier")
def shuffle_in_branch(entry: Entry) -> Iterator[Edits]:
    """Lanes with odd numbers jump over an exchange whose mask names all lanes."""
    for s in _of_all_lanes(entry):
        yield instead(s, f"{ODD} @%mut_p0 bra MUT_SKIP; {s.text}\nMUT_SKIP:")


# ---- faults that a text does not show -----------------------------------------------------------


@fault("missing-fence", by="construction", static=False)
def drop_fence(entry: Entry) -> Iterator[Edits]:
    """A fence between two accesses to global memory is missing."""
    for s in entry.instructions:
        if s.opcode in ("membar", "fence") and "proxy" not in s.mods and "mbarrier_init" not in s.mods:
            yield without(s)


@fault("mbarrier-no-wait", static=False)
def wrong_parity(entry: Entry) -> Iterator[Edits]:
    """The wait is for the other phase of the mbarrier."""
    for s in entry.instructions:
        if s.opcode == "mbarrier" and "parity" in s.mods and s.operands[-1] in ("0", "1"):
            yield instead(s, rebuilt(s, **{f"_{len(s.operands) - 1}": str(1 - int(s.operands[-1]))}))


@fault("mbarrier-no-init", static=False)
def drop_mbarrier_init(entry: Entry) -> Iterator[Edits]:
    """The mbarrier is not set up."""
    for s in entry.instructions:
        if s.opcode == "mbarrier" and "init" in s.mods:
            yield without(s)


@fault("divergent-barrier", static=False)
def wrong_count(entry: Entry) -> Iterator[Edits]:
    """A named barrier waits for twice as many threads as come."""
    for s in entry.instructions:
        if s.opcode in ("bar", "barrier") and len(s.operands) == 2 and s.operands[1].isdigit():
            yield instead(s, rebuilt(s, _1=str(2 * int(s.operands[1]))))
