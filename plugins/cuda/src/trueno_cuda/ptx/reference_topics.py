"""All members of the builder, by topic: the order of the reference page, and the names that a hint may propose.

Members of the builder are `k.NAME`, those of its objects are named after them: `pointer.load`, `var.set`.  The
instructions in the tables of `instructions` are not repeated here; the page prints those tables.
"""

from typing import Final, NamedTuple


class Topic(NamedTuple):
    """title, what holds for all of it, and the members, in the order in which they are read."""

    title: str
    about: str
    members: tuple[str, ...]


TOPICS: Final = (
    Topic(
        "Launch and threads",
        "Values that exist on the GPU, besides the special registers of the table below; k.threads and k.warps are "
        "Python ints.",
        ("k.threads", "k.warps", "k.warp"),
    ),
    Topic(
        "Values and vars",
        "A Value is written once; a Var may change. Operators emit one instruction each: `+ - * / // % & | ^ ~ << >>` "
        "and comparisons, which give predicates. `/` is for floats, `//` and `%` for unsigned integers. Operands have "
        "one type; a Python number takes the other's.",
        ("k.var", "k.vars", "k.const", "k.copy", "var.set", "var.update", "var.fma", "var.value", "value.to",
         "value.bits", "k.pack", "k.unpack", "k.select", "k.select_predicate", "k.compare", "k.copysign",
         "k.multiple_of"),
    ),
    Topic(
        "Branches and loops",
        "A branch or a body is a separate block: a value that is defined in it does not exist outside. Barriers and "
        "collective operations of a warp or block are refused if some threads would not reach them.",
        ("k.when", "k.otherwise", "k.range", "k.loop", "loop.leave_if"),
    ),
    Topic(
        "Memory",
        "Indices count elements; a tuple is an index of an array of several dimensions. Pointers are parameters "
        "annotated with ptr(f32); arrays come from k.shared and k.local.",
        ("pointer.load", "pointer.store", "pointer.cast", "pointer.prefetch", "k.shared", "k.local", "array.bytes",
         "k.as_global", "k.l2_policy"),
    ),
    Topic("Atomics", "Updates that no other thread can interrupt.", ("pointer.atomic", "pointer.reduce")),
    Topic(
        "Barriers and fences",
        "What one thread wrote to shared memory another may read after a barrier; the builder refuses a read or write "
        "that needs one.",
        ("k.sync", "k.wait_previous", "k.sync_warp", "k.sync_cluster", "k.arrive", "k.fence"),
    ),
    Topic(
        "Shuffles and votes",
        "Data exchange between the 32 lanes of a warp, without memory. All of them take part, or those of `mask`.",
        ("k.shuffle", "k.vote", "k.match", "k.active_mask", "k.elect"),
    ),
    Topic(
        "Reductions",
        "Over a warp, or over a block of whole warps; every thread gets the result, the same to the bit in every run.",
        ("k.warp_sum", "k.warp_max", "k.warp_min", "k.warp_argmax", "k.warp_reduce", "k.block_sum", "k.block_max",
         "k.block_min", "k.block_argmax", "k.block_reduce", "k.first_larger"),
    ),
    Topic(
        "Asynchronous copies",
        "cp.async, from sm_80 on: each thread copies 4, 8 or 16 bytes to shared memory without registers, and waits "
        "for its own groups; others see them behind a k.sync().",
        ("k.copy_async", "k.async_commit", "k.async_wait"),
    ),
    Topic(
        "Memory barriers",
        "mbarriers: objects in shared memory that count arrivals (sm_80), and bytes of bulk copies (sm_90).",
        ("k.mbarrier", "barrier.init", "barrier.arrive", "barrier.arrive_expecting", "barrier.arrive_after_copies",
         "barrier.arrive_in", "barrier.wait"),
    ),
    Topic(
        "Bulk copies and tensor maps",
        "sm_90: one thread moves whole tiles, which report to an mbarrier. A parameter annotated with tensor_map is "
        "such a map. An ordinary store that a bulk copy shall read wants k.fence(\"async\") before the barrier.",
        ("k.copy_bulk", "k.copy_tensor", "k.store_bulk", "k.store_tensor", "k.bulk_commit", "k.bulk_wait",
         "k.prefetch_map"),
    ),
    Topic(
        "Clusters",
        "sm_90: blocks that run together and reach each other's shared memory; @kernel(cluster=2) says how many.",
        ("k.in_block", "k.sync_cluster", "k.arrive_cluster", "k.wait_cluster", "barrier.arrive_in"),
    ),
    Topic(
        "Matrix products of a warp",
        "mma.sync. A fragment is a list of values, one a register, in the order of the PTX ISA.",
        ("k.mma", "k.ldmatrix", "k.stmatrix"),
    ),
    Topic(
        "Matrix products of four warps",
        "wgmma, on sm_90a alone: operands in shared memory, asynchronous; fence, multiply, commit, wait.",
        ("k.matrix", "k.deeper", "k.wgmma_fence", "k.wgmma", "k.wgmma_commit", "k.wgmma_wait", "k.set_max_registers"),
    ),
    Topic(
        "The way out",
        "For what the tables lack. Kernels list each use of k.asm in `escapes`.",
        ("k.asm", "k.comment", "k.allow"),
    ),
)  # fmt: skip
MEMBERS: Final = tuple(dict.fromkeys(name.partition(".")[2] for t in TOPICS for name in t.members if name[:2] == "k."))
"""What stands behind `k.` beside the tables of instructions."""
