"""Texts that were made to be slow: the analyzer repeats no search and no comparison for each pair of what they have.

A test counts calls of what is repeated most often, and measures no time.
"""

from functools import partial
from types import ModuleType
from typing import Any

import pytest
from trueno_cuda.ptx.analyze import copies, graph, races
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.report import report
from trueno_cuda.ptx.analyze.rules import RULES

HEAD = """.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .pred %p<4>;
.shared .align 16 .b8 s[65536];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; ld.param.u64 %rd1, [x]; setp.eq.u32 %p1, %r1, 7;
"""


class Calls:
    """How often a function is called."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: ModuleType | type, name: str) -> None:
        self.count = 0
        inner = getattr(owner, name)

        def counted(*args: Any, **named: Any) -> Any:
            self.count += 1
            return inner(*args, **named)

        patch.setattr(owner, name, counted)


def lines(body: str, rule: str, block: tuple[int, int, int] | None = None) -> int:
    """How many lines a rule reports."""
    (entry,) = report("x", f"{HEAD}{body}\nret;\n}}", Launch(block), RULES, "sm_80", real=False)["entries"]
    return len({f["line"] for f in entry["findings"] if f["rule"] == rule})


def pairs(count: int, step: int) -> str:
    """Stores, each with a load of what another warp stores, and no barrier."""
    parts = (f"st.shared.u32 [%r4+{step * k}], %r1;\nld.shared.u32 %r6, [%r5+{step * k}];" for k in range(count))
    return "\n".join(parts)


@pytest.mark.parametrize("block", [None, (256, 1, 1)])
@pytest.mark.parametrize("step", [0, 4])
def test_accesses_at_equal_distances_are_compared_once(monkeypatch, step, block):
    spread, passed = Calls(monkeypatch, races, "_spread"), Calls(monkeypatch, Entry, "synchronizes")
    body = pairs(200, step)
    assert lines(body, "missing-barrier", block) >= 298
    # Two blocks, three distances at which threads may lie apart, two accesses; and each access passes those behind it.
    assert spread.count <= 2 * 3 * 2 * 400
    assert passed.count <= 12 * 400 * 400


def test_comparing_ends_with_what_it_may_cost(monkeypatch):
    monkeypatch.setattr(races, "Effort", partial(races.Effort, pairs=1000))
    passed = Calls(monkeypatch, Entry, "synchronizes")
    assert lines(pairs(300, 0), "missing-barrier", (256, 1, 1)) >= 500
    assert passed.count < 20_000  # two of the 600 accesses follow all that are behind them; 60 000 if all do


def test_a_search_ends_with_what_it_may_cost(monkeypatch):
    monkeypatch.setattr(races, "Effort", partial(races.Effort, steps=5000))
    spread = Calls(monkeypatch, races, "_spread")
    assert lines(pairs(300, 4), "missing-barrier", (256, 1, 1))
    assert spread.count <= 2 * 5000 / 256


def test_copies_that_are_in_flight_share_a_search(monkeypatch):
    steps = Calls(monkeypatch, copies, "_after")
    count = 100
    body = [f"cp.async.ca.shared.global [%r4+{16 * k}], [%rd1+{16 * k}], 16;" for k in range(count)]
    body += ["cp.async.commit_group;"] + [f"ld.shared.u32 %r6, [%r5+{16 * k}];" for k in range(count)]
    assert lines("\n".join(body), "cp-async-no-wait") == count
    assert steps.count <= 2 * 2 * 2 * count * 2 * count  # two rules, two blocks, with a barrier and without


def test_reads_of_one_register_share_a_search(monkeypatch):
    """Each search for the writes that reach a block went back to the top."""
    count = 600
    body = "mov.u32 %r6, 1; @%p1 mov.u32 %r6, 2;\n"
    body += "\n".join(f"@%p1 bra L{k};\nadd.u32 %r7, %r6, 1;\nL{k}:" for k in range(count))

    class Counted(graph.Block):
        looks = 0

        def __getattribute__(self, name):
            Counted.looks += name == "predecessors"
            return super().__getattribute__(name)

    monkeypatch.setattr(graph, "Block", Counted)
    lines(body, "missing-barrier")
    assert 0 < Counted.looks < 50 * count


def test_labels_that_nothing_names_are_not_each_followed_to_the_end(monkeypatch):
    last = Calls(monkeypatch, graph.Graph, "last")
    count = 500
    lines("\n".join(f"LOOP{k}: @%p1 bra LOOP0; setp.eq.u32 %p1, %r1, {k};" for k in range(count)), "loop-branch-to-end")
    assert last.count < 50 * count


@pytest.mark.parametrize("size", [0, -4, 3, 1 << 40])
def test_a_copy_of_no_possible_size_is_no_access(size):
    body = f"cp.async.ca.shared.global [%r4], [%rd1], {size};\nld.shared.u32 %r6, [%r4];\nst.shared.u32 [%r4], %r6;"
    assert not lines(body, "cp-async-no-wait")


@pytest.mark.parametrize("size", [(1 << 31) - 1, 1 << 40])
def test_a_variable_larger_than_any_shared_memory_is_not_walked(size):
    """Following its words took gigabytes, or a MemoryError."""
    text = f"{HEAD}{pairs(1, 0)}\nret;\n}}".replace("65536", str(size))
    (entry,) = report("x", text, Launch(None), RULES, "sm_80", real=False)["entries"]
    assert "missing-barrier" in {f["rule"] for f in entry["findings"]}
