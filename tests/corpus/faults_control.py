"""Faults of loops, branches and bounds, and text that does nothing."""

import re
from collections.abc import Iterator

from .faults import Edit, Edits, after, before, fault, instead, last_return, rebuilt, without
from .statements import Entry, Loop, Statement

OPPOSITE = {"ge": "gt", "gt": "ge", "lt": "le", "le": "lt", "hs": "hi", "lo": "ls"}


def _test(entry: Entry, loop: Loop) -> Statement | None:
    """The comparison that the loop's branch back depends on, if it stands in the loop."""
    tail = entry.code[loop.tail]
    body = entry.code[loop.head : loop.tail]
    tests = [s for s in body if s.opcode == "setp" and tail.guard in s.writes]
    return tests[-1] if len(tests) == 1 and len(entry.definitions(tail.guard)) == 1 else None


def _exits(entry: Entry, loop: Loop) -> bool:
    """Whether something else leaves the loop."""
    places = range(loop.head, loop.tail)
    for k in places:
        s = entry.code[k]
        leaves = s.opcode == "bra" and entry.labels.get(s.operands[0], loop.head) not in range(loop.head, loop.tail + 1)
        if leaves or s.opcode in ("ret", "exit", "trap", "brx"):
            return True
    return False


@fault("infinite-loop")
def drop_step(entry: Entry) -> Iterator[Edits]:
    """The counter of a loop is never advanced."""
    for loop in entry.loops:
        test = _test(entry, loop)
        if test is None or _exits(entry, loop):
            continue
        body = entry.code[loop.head : loop.tail]
        for register in [o for o in test.operands[1:] if o.startswith("%")]:
            steps = [s for s in body if register in s.writes]
            own = len(steps) == 1 and register in steps[0].reads and steps[0].opcode in ("add", "sub", "shl", "shr")
            if own and any(register in s.writes for s in entry.code[: loop.head]):
                yield without(steps[0])


@fault("infinite-loop")
def constant_condition(entry: Entry) -> Iterator[Edits]:
    """The condition of a loop compares a constant, and always holds."""
    for loop in entry.loops:
        test, tail = _test(entry, loop), entry.code[loop.tail]
        if test is not None and not _exits(entry, loop):
            relation = "ne" if tail.negated else "eq"
            yield instead(test, f"mov.u32 %mut_r0, 0; setp.{relation}.u32 {test.operands[0]}, %mut_r0, 0;")


@fault("loop-branch-to-end", by="construction")
def branch_to_end(entry: Entry) -> Iterator[Edits]:
    """The branch at the end of a loop leads to the end of the kernel instead of back."""
    last = last_return(entry)
    for loop in entry.loops:
        tail = entry.code[loop.tail]
        if last is not None and tail.guard and last.start > tail.end:
            yield [*instead(tail, rebuilt(tail, _0="MUT_END")), *before(last, "\nMUT_END:")]


@fault("no-path-to-exit infinite-loop")
def no_exit(entry: Entry) -> Iterator[Edits]:
    """The kernel ends in a branch to itself instead of a return."""
    returns = [s for s in entry.instructions if s.opcode in ("ret", "exit")]
    if len(returns) == 1 and not returns[0].guard:
        yield [Edit(returns[0].start, returns[0].end, "\nMUT_LOOP:\n\tbra MUT_LOOP;")]


@fault("empty-loop", by="construction")
def empty_loop(entry: Entry) -> Iterator[Edits]:
    """A loop counts to a hundred and does nothing else."""
    last = last_return(entry)
    if last is not None:
        yield before(
            last,
            "mov.u32 %mut_r0, 0;\nMUT_LOOP:\n\tadd.u32 %mut_r0, %mut_r0, 1;\n\tsetp.lt.u32 %mut_p0, %mut_r0, 100;\n\t"
            "@%mut_p0 bra MUT_LOOP;",
        )


@fault("dead-code", by="construction")
def dead_code(entry: Entry) -> Iterator[Edits]:
    """Instructions behind an unconditional branch, which no label makes reachable."""
    for s in entry.instructions:
        if s.opcode in ("bra", "ret", "exit") and not s.guard:
            yield after(s, "mov.u32 %mut_r0, 7;\n\tadd.u32 %mut_r1, %mut_r0, 1;\n\txor.b32 %mut_r2, %mut_r1, %mut_r0;")


@fault("redundant-move", by="construction")
def redundant_move(entry: Entry) -> Iterator[Edits]:
    """A register is moved to itself."""
    for s in entry.instructions:
        if s.opcode in ("mov", "add", "shl", "mad") and len(s.writes) == 1 and not s.guard and "cc" not in s.mods:
            bits = re.search(r"\d+$", s.mods[-1])
            kind = "64" if "wide" in s.mods else bits[0] if bits else ""
            if kind in ("32", "64"):
                yield after(s, f"mov.b{kind} {s.writes[0]}, {s.writes[0]};")


@fault("missing-bounds-check")
def drop_bounds_check(entry: Entry) -> Iterator[Edits]:
    """The branch around the accesses beyond the end is missing."""
    for s in _guards_of_the_end(entry):
        yield without(s)


@fault("missing-bounds-check", static=False)
def off_by_one(entry: Entry) -> Iterator[Edits]:
    """The comparison with the end lets one thread too many pass."""
    for s in _guards_of_the_end(entry):
        test = entry.sole(s.guard)
        relation = test.mods[0] if test is not None else ""
        if test is not None and relation in OPPOSITE:
            yield instead(test, rebuilt(test, test.name.replace(f".{relation}.", f".{OPPOSITE[relation]}.", 1)))


def _guards_of_the_end(entry: Entry) -> Iterator[Statement]:
    """Branches forward to a return, under a comparison with a parameter."""
    for k, s in enumerate(entry.code):
        if s.opcode != "bra" or not s.guard or entry.inside(k):
            continue
        target = entry.labels.get(s.operands[0], 0)
        rest = [t for t in entry.code[target + 1 :] if t.kind == "instruction"]
        test = entry.sole(s.guard)
        if target > k and rest and rest[0].opcode in ("ret", "exit") and test is not None and test.opcode == "setp":
            sources = [entry.sole(o) for o in test.operands[1:] if o.startswith("%")]
            if any(d is not None and d.name.startswith("ld.param") for d in sources):
                yield s


@fault("missing-entry", by="construction")
def hidden_entry(entry: Entry) -> Iterator[Edits]:
    """The module has functions and not one entry."""
    at = entry.start + entry.header.index(".entry")
    if entry.module.count(".entry") == 1 and not re.search(r"\.(maxntid|reqntid|reqncta|explicit)", entry.header):
        yield [Edit(at, at + len(".entry"), ".func")]


@fault("placeholder-code", by="construction")
def placeholder(entry: Entry) -> Iterator[Edits]:
    """A comment says that the code is not there yet."""
    last = last_return(entry)
    if last is not None:
        for words in ("TODO: store the rest of the tile", "placeholder for the tail", "not implemented", "FIXME"):
            yield before(last, f"// {words}")


@fault("register-pressure", by="construction")
def many_registers(entry: Entry) -> Iterator[Edits]:
    """More registers are live at once than a thread has."""
    first = entry.instructions[0]
    sets = " ".join(f"mov.u32 %mut_k{k}, %clock;" for k in range(280))
    uses = " ".join(f"xor.b32 %mut_k{k + 1}, %mut_k{k}, %mut_k{k + 1};" for k in range(279))
    yield before(first, f"{sets}\n\t{uses}\n\tsetp.eq.u32 %mut_p0, %mut_k279, 77;\n\t@%mut_p0 trap;")


@fault("predicate-pressure", by="construction")
def many_predicates(entry: Entry) -> Iterator[Edits]:
    """More predicates are live at once than a thread has."""
    first = entry.instructions[0]
    sets = " ".join(f"setp.eq.u32 %mut_p{k}, %mut_r0, {k};" for k in range(24))
    uses = " ".join(f"and.pred %mut_p{k + 1}, %mut_p{k}, %mut_p{k + 1};" for k in range(23))
    yield before(first, f"mov.u32 %mut_r0, %clock; {sets}\n\t{uses}\n\t@%mut_p23 trap;")
