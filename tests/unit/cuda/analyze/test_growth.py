"""Texts of many branches and loops: the steps of the graph's analyses grow with the text, and what ends early is named.

Steps are counted, and no time is measured.
"""

import itertools
import random
from functools import partial
from typing import Any

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.analyze import dataflow, graph, orders, races, uniform
from trueno_cuda.ptx.analyze.entry import Entry, entries
from trueno_cuda.ptx.analyze.graph import OUT, Graph
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.report import report
from trueno_cuda.ptx.analyze.rules import RULES, example
from trueno_cuda.ptx.analyze.rules.barrier_branches import Ways
from trueno_cuda.ptx.syntax.parse import parse


def nested(count: int) -> str:
    """Loops within each other."""
    heads = [f"L{k}: add.u32 %r1, %r1, 1;" for k in range(count)]
    return "\n".join([*heads, *(f"setp.lt.u32 %p1, %r1, {k}; @%p1 bra L{k};" for k in reversed(range(count)))])


def chained(count: int) -> str:
    """Loops behind each other, of which each branches into the one before."""
    return "\n".join(
        f"L{k}: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, {k}; @%p1 bra L{max(k - 1, 0)};" for k in range(count)
    )


def forward(count: int) -> str:
    return "\n".join(f"setp.lt.u32 %p1, %r1, {k}; @%p1 bra L{k}; add.u32 %r1, %r1, 1; L{k}:" for k in range(count))


def exits(count: int) -> str:
    return "\n".join(f"setp.lt.u32 %p1, %r1, {k}; @%p1 bra END; add.u32 %r1, %r1, 1;" for k in range(count)) + "END:"


def barriers(count: int) -> str:
    ifs = [f"setp.lt.u32 %p1, %r1, {k}; @%p1 bra L{k}; bar.sync 0;" for k in range(count)]
    return "mov.u32 %r1, %tid.x;" + "\n".join([*ifs, *(f"L{k}: add.u32 %r2, %r2, 1;" for k in reversed(range(count)))])


TEXTS = [nested, chained, forward, exits, barriers]


def entry(body: str) -> Entry:
    return entries(parse(example(f"{body} ret;"), tolerant=True))[0]


def looks(monkeypatch: pytest.MonkeyPatch, body: str) -> int:
    """How often all rules look at the edges of the graph."""
    count = itertools.count()

    class Counted(graph.Block):
        def __getattribute__(self, name: str) -> Any:
            if name in ("predecessors", "successors"):
                next(count)
            return super().__getattribute__(name)

    monkeypatch.setattr(graph, "Block", Counted)
    report("x", example(f"{body} ret;"), Launch(), RULES, "sm_80", real=False)
    return next(count)


@pytest.mark.parametrize("text", TEXTS)
def test_looks_at_edges_grow_with_the_text_or_end(monkeypatch, text):
    few, many = looks(monkeypatch, text(150)), looks(monkeypatch, text(600))
    limited = dataflow.EFFORT + graph.EFFORT + Ways(entry("")).steps
    assert many <= 6 * few or few * 4 < many <= 2 * limited


def test_levels_take_one_look_at_each_branch_that_falls(monkeypatch):
    """Each block went through all branches that decide it."""
    calls = itertools.count()
    inner = uniform.Uniformity.decision

    def counted(self: uniform.Uniformity, branch: int) -> int:
        next(calls)
        return inner(self, branch)

    monkeypatch.setattr(uniform.Uniformity, "decision", counted)
    body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 7;" + "@%p1 bra END; add.u32 %r2, %r2, 1;\n" * 500 + "END:"
    assert entry(body).uniformity.regions.count(uniform.LANE) == 500
    assert next(calls) <= 2 * 501


@pytest.mark.parametrize("text", TEXTS)
def test_blocks_of_loops_are_listed_once(text):
    loops = entry(text(300)).graph.loops
    assert len(loops.body(loops.heads[-1])) <= len(loops.inner) if loops.heads else not loops.inner
    assert len(loops._listed[0]) == len(loops.inner) == len(set(loops._listed[0]))


def random_graph(rng: random.Random) -> Graph:
    size = rng.randrange(3, 14)
    ends = ["@%p1 bra L{};", "bra L{};", "ret;", "@%p1 ret;", "@%p1 bra L{};", "mov.u32 %r1, 1;"]
    body = [f"L{k}: mov.u32 %r2, {k}; {rng.choice(ends).format(rng.randrange(size))}" for k in range(size)]
    return Graph(parse(example("\n".join(body)), tolerant=True).functions["k"])


def bodies(one: Graph) -> dict[int, set[int]]:
    """The natural loops by definition."""
    result: dict[int, set[int]] = {}
    for n in one.order:
        for head in one.blocks[n].successors:
            if head != OUT and one.dominates(head, n):
                body, todo = result.setdefault(head, {head}), [n]
                while todo:
                    at = todo.pop()
                    if at not in body:
                        body.add(at)
                        todo += [p for p in one.blocks[at].predecessors if p in one.reachable]
    return result


def test_loops_are_those_of_the_definition():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(300):
        one = random_graph(rng)
        loops, expected = one.loops, bodies(one)
        assert loops.heads == list(expected)
        for head, body in expected.items():
            assert set(loops.body(head)) == body and loops.size(head) == len(body)
            assert all(loops.has(head, n) == (n in body) for n in one.order)
        for n in one.order:
            around = [head for head, body in expected.items() if n in body]
            assert loops.around(n) == len(around)
            after = one.blocks[n].successors
            assert loops.left(n, after) == min(sum(t in expected[h] for h in around) for t in after)
            for other in one.order:
                both = [head for head in around if other in expected[head]]
                assert loops.common(n, other) == min(both, key=lambda head: len(expected[head]), default=None)


def test_levels_are_those_of_all_deciders():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(400):
        levels = rng.choices(["%tid.x", "%warpid", "%ctaid.x"], k=3)
        size = rng.randrange(3, 12)
        body = [f"mov.u32 %r{k + 1}, {name}; setp.lt.u32 %p{k + 1}, %r{k + 1}, 7;" for k, name in enumerate(levels)]
        for k in range(size):
            end = rng.choice(["@%p{p} bra L{t};", "bra L{t};", "@%p{p} ret;", "@%p{p} bra L{t};"])
            body.append(f"L{k}: mov.u32 %r9, {k}; " + end.format(p=rng.randrange(1, 4), t=rng.randrange(size)))
        one = entry("\n".join(body))
        for n in one.graph.order:
            decisions = [one.uniformity.decision(b) for b in one.graph.all_deciders(n)]
            assert one.uniformity.regions[n] == min(decisions, default=uniform.BLOCK), "\n".join(body)


def test_parts_without_a_way_out():
    follow = [[1, 2], [3], [4], [3], [5], [4], [6]]
    assert orders.sinks(list(range(7)), follow) == [{3}, {4, 5}, {6}]


def test_a_report_says_what_ended_early(monkeypatch):
    monkeypatch.setattr(graph, "EFFORT", 50)
    monkeypatch.setattr(races, "Effort", partial(races.Effort, pairs=3))
    store = "mov.u32 %r3, s; st.shared.u32 [%r3], %r1; ld.shared.u32 %r4, [%r3+4];" * 5
    (one,) = report("x", example(f"{barriers(40)} {store} ret;"), Launch(), RULES, "sm_80", real=False)["entries"]
    notes = " ".join(one["notes"])
    assert "the branches are too intricate" in notes and "too intricate for missing-barrier" in notes


def test_a_report_on_usual_code_says_nothing_of_that():
    for text in TEXTS:
        (one,) = report("x", example(f"{text(5)} ret;"), Launch((64, 1, 1)), RULES, "sm_80", real=False)["entries"]
        assert not one["notes"]
