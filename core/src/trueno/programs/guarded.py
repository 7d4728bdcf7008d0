"""Guarded programs: programs that also report whether they produced a value that is not finite.

Every float result gets flags after all results, computed in the same pass that stores it.  There are two forms:

    with_flags(program)             one flag per result and row: any(isnan(y − y)), true only for NaN and ±Inf
    with_flags(program, bits=True)  two flags per result and row: any(isnan(y)), then any(isinf(y))

The first costs the least where reading the result again is cheap (a CPU, in the rare case of a trip) and where the
compiler keeps IEEE 754.  The second distinguishes the two at once, and uses tests that can be done on
bits, for compilers that assume finite numbers.

## What a printer generates for them

A flag is not a result: it is not stored per row, but or-ed over all rows into one word per call, the kernel's status.

* **Status.** 0: every float result is finite.  Else bit 1 if some result holds a NaN, bit 2 if some holds an Inf; both
  bits exactly, whatever the operands held.  Results of positions (int64) have no flags.
* **One word.** A device kernel gets one more binding, a 4-byte word that is zero when the kernel starts, and each
  workgroup (or block) ors its own flags into it at most once: reduce in the group first, then one
  `atomicOr(&status, bits)` by one thread, and none if bits is 0.  On CUDA `atom.global.or.b32` after a `vote.any`
  (`vote.sync.any.pred`) and a shared-memory word; in WGSL a `var<workgroup> atomic<u32>` and a barrier.
* **Tests.** WGSL lets an implementation assume that there is no NaN and no Inf, and `y - y` may become 0.  So print the
  second form, and both tests on bits: with u = bitcast<u32>(y) & 0x7fffffffu, isnan is u > 0x7f800000u and isinf is
  u == 0x7f800000u.  PTX keeps IEEE 754, and has `testp.notanumber.f32` and `testp.infinite.f32`.
* **What is tested** is the value that is stored, after it is rounded to its storage type: a float32 value that becomes
  Inf in a half is an Inf.  Lanes past the end of the data must not set a flag.
* **When.** A kernel that waits for its end returns the status.  One that only submits returns 0 and keeps the word;
  `Backend.synchronize()` waits, returns the or of all such words since the last time, and clears them.  The core runs
  guarded kernels of a device one at a time and synchronizes after each, so bits never mix with another call's.  A
  transfer (`to_host`) does not clear them.
* **Refusal.** −1 still refuses the call, with nothing written and no flag kept.
* **In place.** A guarded kernel need not preserve operands: the core passes it results that overlap none.

Where a backend has no guarded kernel for a call, `supports` answers `unguarded` for `call.guarded`, and the core reads
the results itself.
"""

from trueno.programs.program import FOLDS, Node, Program


def with_flags(program: Program, *, bits: bool = False) -> Program:
    """`program` with flags after its results: for every float result one, "not finite", or two, NaN and Inf."""
    nodes = list(program.nodes)

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    flags = []
    for o in program.outputs:
        node = program.nodes[o]
        if node.type != "T":
            continue
        tested = [("isnan", o), ("isinf", o)] if bits else [("isnan", add(Node("sub", (o, o), None, node.space, "T")))]
        for kind, value in tested:
            bad = add(Node(kind, (value,), None, node.space, "bool"))
            flags.append(add(Node("any", (bad,), None, "r", FOLDS["any"].result)) if node.space == "e" else bad)
    return Program(tuple(nodes), (*program.outputs, *flags), program.operands, program.params)
