"""A loop's closing branch that goes to its end."""

import re
from bisect import bisect_left
from collections.abc import Iterator

from trueno_cuda.ptx.analyze.effects import label_of
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.graph import OUT

LOOP = re.compile(r"(?i)(^|_|\b)(loop|while|for)(?!.*(end|exit|done|after))")
DEBUGGING = re.compile(r"(?i)(tmp|func_begin|func_end|debug|info|end|exit|done)")
"""Labels that tables for debuggers name, or that stand at the end of something."""


def check(entry: Entry) -> Iterator[Found]:
    graph = entry.graph
    for n in graph.order:
        if _advances_in_vain(entry, n):
            at = graph.blocks[n].end - 1
            yield (
                at,
                "a counter is advanced ahead of this branch, which leads to the kernel's end, and nothing reads it",
            )
    yield from _abandoned(entry)
    onward = [n for n in graph.order if graph.last(n).opcode == "bra" and graph.last(n).guard is None]
    onward = [n for n in onward if graph.blocks[n].successors[0] == n + 1]
    for label, place in graph.labels.items():
        name = label.split("#")[0]
        if not LOOP.search(name) or place >= len(graph.code):
            continue
        head = graph.block_of[place]
        if head not in graph.reachable or any(p >= head for p in graph.blocks[head].predecessors):
            continue
        for n in onward:
            if n >= head and graph.dominates(head, n) and _left_by_branch(entry, head, n, n + 1):
                yield graph.blocks[n].end - 1, f"this branch goes to the end of the loop at {name}, not to its start"
                break


def _abandoned(entry: Entry) -> Iterator[Found]:
    """Labels that nothing branches to, where a branch behind them leads to the kernel's end and nowhere else."""
    graph = entry.graph
    named = {name for ins in entry.code if ins.opcode in ("bra", "brx") for name in label_of(ins)}
    guarded = [n for n in range(len(graph.blocks)) if graph.last(n).opcode == "bra" and graph.last(n).guard is not None]
    reachable = [n for n in guarded if n in graph.reachable]
    leaving = [n for n in guarded if _leaves(entry, n)]
    for label, place in graph.labels.items():
        if label in named or DEBUGGING.search(label) or place >= len(graph.code):
            continue
        head = graph.block_of[place]
        if graph.blocks[head].start != place or head == 0 or _returns(entry, head):
            continue
        if head in graph.reachable:
            behind = (n for n in leaving[bisect_left(leaving, head) :] if graph.dominates(head, n))
        elif LOOP.search(label):
            k = bisect_left(reachable, head)
            behind = (n for n in reachable[k : k + 1] if _leaves(entry, n))
        else:
            continue
        for n in behind:
            if graph.blocks[n].successors[0] > head:
                name = label.split("#")[0]
                yield graph.blocks[n].end - 1, f"nothing branches to {name}, and this branch behind it leads to the end"
                break


def _leaves(entry: Entry, block: int) -> bool:
    """Whether a block's branch leads to a return."""
    graph = entry.graph
    target = graph.blocks[block].successors[0]
    return target != OUT and graph.code[graph.blocks[target].start].opcode in ("ret", "exit")


def _returns(entry: Entry, head: int) -> bool:
    """Whether a way leads from a block back to it."""
    return entry.graph.loops.inner.get(head) == head


def _advances_in_vain(entry: Entry, block: int) -> bool:
    """Whether a guarded branch to the end follows the step of a counter that is not read any more."""
    graph, flow = entry.graph, entry.flow
    last, after = graph.last(block), graph.blocks[block].successors
    if last.opcode != "bra" or last.guard is None or OUT in after[:1]:
        return False
    first = graph.blocks[after[0]]
    if graph.code[first.start].opcode not in ("ret", "exit") or after[0] <= block:
        return False
    start, end = graph.blocks[block].start, graph.blocks[block].end
    for at in range(start, end):
        ins = graph.code[at]
        if ins.opcode not in ("add", "sub", "mov", "shl", "shr") or ins.guard is not None or len(flow.writes[at]) != 1:
            continue
        r = flow.writes[at][0]
        again = len(flow.definitions[r]) > 1 and any(use < at for use in flow.uses[r])
        if again and not flow.live_out[block] >> r & 1 and not any(r in flow.reads[k] for k in range(at + 1, end)):
            return True
    return False


def _left_by_branch(entry: Entry, head: int, end: int, target: int) -> bool:
    """Whether a guarded branch between two blocks goes where an unguarded one behind them goes too."""
    graph = entry.graph
    return any(
        graph.last(n).opcode == "bra" and graph.last(n).guard is not None and graph.blocks[n].successors[0] == target
        for n in range(head, end)
    )


RULE = Rule(
    "loop-branch-to-end", "medium", "medium",
    "A label is named as a loop's, nothing branches back to it, and the branch behind the body goes to the place that "
    "the loop's condition leaves for; or a counter is advanced for a round that the branch to the end prevents; or "
    "nothing branches to a label, and a branch behind it leads to the end.",
    "The body runs once.",
    "Branch to the loop's first label.",
    bad="""ld.param.u64 %rd1, [x]; mov.u32 %r1, 0;
LOOP: setp.ge.u32 %p1, %r1, 9; @%p1 bra END; st.global.u32 [%rd1], %r1; add.u32 %r1, %r1, 1; bra END;
END: ret;""",
    good="""ld.param.u64 %rd1, [x]; mov.u32 %r1, 0;
LOOP: setp.ge.u32 %p1, %r1, 9; @%p1 bra END; st.global.u32 [%rd1], %r1; add.u32 %r1, %r1, 1; bra LOOP;
END: ret;""",
    check=check,
)  # fmt: skip
