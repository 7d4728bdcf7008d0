"""What brings new tokens into a cache, as one kernel: queries and keys turn, and keys and values are stored.

    q = rope(q, positions)      keys = kv_cache_scatter(keys, rope(k, positions), slots)
                                values = kv_cache_scatter(values, v, slots)

For a few tokens each of the four moves some kilobytes, so that together they take the time of one launch.  The turned
keys are stored in the cache alone.  Steps are joined where the four follow one another on a device, and a backend takes
the `SharedOp`; on the host a call costs less than a kernel's own work, and the cache's checks stay where they are.
"""

from collections.abc import Sequence

from trueno.batch.shared import Accept, together
from trueno.batch.step import Step
from trueno.ops.shared import TOKENS, SharedOp

ROPE, SCATTER = dict.fromkeys(TOKENS)


def bring(steps: list[Step], results: set[int], refusal: Accept) -> list[Step]:
    """The steps, with those that bring tokens into a cache as one step each; `results` are the values to compute."""
    readers: dict[int, int] = {}
    for step in steps:
        for v, _ in step.reads:
            readers[v] = readers.get(v, 0) + 1
    made: list[Step] = []
    at = 0
    while at < len(steps):
        members = _ordered(steps[at : at + len(TOKENS)], readers, results)
        if members is None:
            made.append(steps[at])
            at += 1
            continue
        kept = {v for step in (members[0], *members[2:]) for v, _ in step.makes}
        whole = together(members, kept)
        if reason := refusal(whole, members):
            for step in members[1:]:
                step.apart.setdefault(step.ops[0], reason)
            made += steps[at : at + len(TOKENS)]
        else:
            whole.apart.clear()  # they said why each stands alone
            made.append(whole)
        at += len(TOKENS)
    return made


def _ordered(window: Sequence[Step], readers: dict[int, int], results: set[int]) -> list[Step] | None:
    """These steps as `TOKENS`; None if they are anything else."""
    if any(step.call is None or isinstance(step.op, SharedOp) for step in window):
        return None
    ropes, writes = ([step for step in window if step.op.name == name] for name in (ROPE, SCATTER))
    if (len(ropes), len(writes)) != (2, 2):
        return None
    for queries, keys in (ropes, ropes[::-1]):
        (turned,) = keys.makes
        for into, values in (writes, writes[::-1]):
            own = turned[0] not in results and readers[turned[0]] == 1
            if into.reads[1] == turned and values.reads[1] != turned and own and _alike(queries, keys, into, values):
                return [queries, keys, into, values]
    return None


def _alike(queries: Step, keys: Step, into: Step, values: Step) -> bool:
    """Whether both ropes turn by the same angles, and both writes go to the same slots of two caches."""
    same = all(
        a.call and b.call and a.call.static == b.call.static and a.params == b.params and a.reads[at] == b.reads[at]
        for a, b, at in ((queries, keys, 1), (into, values, 2))
    )
    apart = into.reads[0] != values.reads[0] and queries.makes[0] != values.reads[1]
    return same and apart and len({step.entry.dtype for step in (queries, keys, into, values)}) == 1
