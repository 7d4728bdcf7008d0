"""wgmma: products that start without a fence, and accumulators that are touched while a product is in flight."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.syntax.tree import Immediate, Instruction

MOST = 8
STATES = 20000


def is_product(ins: Instruction) -> bool:
    return ins.opcode == "wgmma" and "mma_async" in ins.mods


def unfenced(entry: Entry) -> Iterator[int]:
    """Products that some way from the kernel's start leads to without wgmma.fence."""
    graph = entry.graph
    reached: set[int] = {0}
    todo = [0] if graph.blocks else []
    while todo:
        n = todo.pop()
        for at in range(graph.blocks[n].start, graph.blocks[n].end):
            ins = entry.code[at]
            if ins.opcode == "wgmma" and "fence" in ins.mods:
                break
            if is_product(ins):
                yield at
                break
        else:
            for t in graph.blocks[n].successors:
                if t != OUT and t not in reached:
                    reached.add(t)
                    todo.append(t)


def in_flight(entry: Entry) -> Iterator[tuple[int, int]]:
    """Instruction that touches an accumulator, and the product that may still write it: the first for each product."""
    for at in entry.reachable:
        if is_product(entry.code[at]):
            touched = _touched(entry, at)
            if touched is not None:
                yield touched, at


def _touched(entry: Entry, product: int) -> int | None:
    graph, flow = entry.graph, entry.flow
    sums = set(flow.writes[product])
    todo = [(graph.block_of[product], product + 1, 0)]
    reached: set[tuple[int, int]] = set()
    while todo and len(reached) < STATES:
        n, start, committed = todo.pop()
        for at in range(start, graph.blocks[n].end):
            ins = entry.code[at]
            if ins.opcode == "wgmma":
                if "commit_group" in ins.mods:
                    committed = min(committed + 1, MOST)
                elif "wait_group" in ins.mods:
                    left = ins.operands[0].value if ins.operands and isinstance(ins.operands[0], Immediate) else 0
                    if committed > left:
                        break
            elif not sums.isdisjoint(flow.reads[at]) or not sums.isdisjoint(flow.writes[at]):
                return at
        else:
            for t in graph.blocks[n].successors:
                if t != OUT and (t, committed) not in reached:
                    reached.add((t, committed))
                    todo.append((t, graph.blocks[t].start, committed))
    return None
