"""The graph, data flow and levels of small kernels, against what is read off them by hand or computed by definition."""

import random

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.analyze.entry import Entry, entries
from trueno_cuda.ptx.analyze.graph import OUT, Graph
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.machine import MACHINES, occupancy
from trueno_cuda.ptx.analyze.rules import example
from trueno_cuda.ptx.analyze.uniform import BLOCK, LANE, WARP
from trueno_cuda.ptx.syntax.parse import parse


def entry(body: str, launch: Launch | None = None) -> Entry:
    return entries(parse(example(body), tolerant=True), launch)[0]


def random_graph(rng: random.Random) -> Graph:
    """A graph of branches to labels anywhere."""
    size = rng.randrange(3, 12)
    body = []
    for k in range(size):
        target = f"L{rng.randrange(size)}"
        end = rng.choice([f"@%p1 bra {target};", f"bra {target};", "ret;", "@%p1 ret;", "mov.u32 %r1, 1;"])
        body.append(f"L{k}: mov.u32 %r2, {k}; {end}")
    return Graph(parse(example("\n".join(body)), tolerant=True).functions["k"])


def reached(follow: dict[int, list[int]], start: int, without: int | None) -> set[int]:
    seen = {start} - {without}
    todo = list(seen)
    while todo:
        for t in follow.get(todo.pop(), []):
            if t not in seen and t != without:
                seen.add(t)
                todo.append(t)
    return seen


def test_dominators_are_what_every_way_passes():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(150):
        graph = random_graph(rng)
        follow = {n: graph.blocks[n].successors for n in graph.order}
        for a in graph.order:
            cut = reached(follow, 0, a)
            for b in graph.order:
                assert graph.dominates(a, b) == (b not in cut), (a, b)
                if not graph.endless and b != a:
                    ways = reached(follow, b, a)
                    assert graph.postdominates(a, b) == (OUT not in ways), (a, b)


def test_deciders():
    graph = entry("""setp.lt.u32 %p1, %r1, 1; @%p1 bra A; mov.u32 %r2, 1; bra B; A: mov.u32 %r2, 2;
B: mov.u32 %r3, 1; ret;""").graph
    assert {n: graph.all_deciders(n) for n in graph.order} == {0: set(), 1: {0}, 2: {0}, 3: set()}


def test_pressure_counts_what_is_live_at_once():
    flow = entry("""ld.param.u64 %rd1, [x]; ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4];
add.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3; ret;""").flow
    assert flow.pressure == {"b64": 1, "b32": 2}
    assert flow.peak == (2, 4)


LEVELS = {
    "mov.u32 %r1, %tid.x;": LANE,
    "mov.u32 %r1, %ctaid.x;": BLOCK,
    "mov.u32 %r2, %tid.x; shr.u32 %r1, %r2, 5;": WARP,
    "mov.u32 %r2, %tid.x; and.b32 %r1, %r2, 0;": BLOCK,
    "ld.param.u32 %r1, [n];": BLOCK,
    "mov.u32 %r1, %laneid;": LANE,
    "ld.param.u64 %rd1, [x]; ld.global.u32 %r1, [%rd1];": BLOCK,
    "ld.param.u64 %rd1, [x]; atom.global.add.u32 %r1, [%rd1], 1;": LANE,
    "mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 7; selp.u32 %r1, 1, 2, %p1;": LANE,
    "mov.u32 %r2, %tid.x; shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;": WARP,
    "mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 7; vote.sync.ballot.b32 %r1, %p1, -1;": WARP,
    "mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 7; mov.u32 %r1, 1; @%p1 mov.u32 %r1, 2;": LANE,
    "mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 7; mov.u32 %r1, 1; @%p1 bra A; mov.u32 %r1, 2; A:": LANE,
    "mov.u32 %r2, %tid.x; mov.u32 %r1, 0; A: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2; @%p1 bra A;": LANE,
    "ld.param.u32 %r2, [n]; mov.u32 %r1, 0; A: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2; @%p1 bra A;": BLOCK,
    ".local .b8 d[8]; ld.param.u32 %r2, [n]; st.local.u32 [d+4], %r2; ld.local.u32 %r1, [d+4];": BLOCK,
    ".local .b8 d[8]; mov.u32 %r2, %tid.x; st.local.u32 [d+4], %r2; ld.local.u32 %r1, [d+4];": LANE,
}


@pytest.mark.parametrize("body, level", LEVELS.items())
def test_levels(body, level):
    one = entry(f"{body} setp.eq.u32 %p7, %r1, 3; @%p7 bra END; bar.sync 0; END: ret;", Launch((256, 1, 1)))
    at = next(at for at, ins in enumerate(one.code) if ins.opcode == "setp" and ins.operands[0].name == "%p7")
    assert one.uniformity.at(one.code[at].operands[1].index, at) == level


@pytest.mark.parametrize("threads, registers, shared, fraction, limit", [
    (256, 32, 0, 1.0, "threads"), (256, 64, 0, 0.5, "registers"), (256, 255, 0, 0.125, "registers"),
    (64, 32, 0, 1.0, "blocks"), (32, 16, 0, 0.5, "blocks"), (256, 32, 48 << 10, 0.5, "shared memory"),
    (1024, 64, 0, 0.5, "registers"),
])  # fmt: skip
def test_occupancy(threads, registers, shared, fraction, limit):
    """By hand, from what a multiprocessor of compute capability 9.0 has: 65 536 registers, 64 warps, 32 blocks."""
    result = occupancy(MACHINES["sm_90"], threads, registers, shared)
    assert (result.fraction, result.limit) == (fraction, limit)
