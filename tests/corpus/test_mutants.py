"""The mutator: its mutants differ from their origin, parse, and are wrong where it says so."""

import shutil
import subprocess

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.syntax.parse import parse

from . import sources
from .faults import FAULTS, applied
from .mutants import Mutant, confirmed, mutants, places
from .origins import Origin, of_text
from .statements import blank, entries, operands
from .traps import traps

MOST = 40
"""Mutants of a kind that are tried until one is confirmed."""


@pytest.fixture(scope="module")
def origins() -> list[Origin]:
    """The traps, and what the repository holds of compiled kernels."""
    found = [Origin(f"trap:{t.name}", t.text, t.launch.entry, t.launch) for t in traps()]
    for source, text in sources.committed():
        found += of_text(source, source, text)
    return found


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    number = fresh_seed()
    print(f"seed {number} of {request.node.name}")
    return number


def test_there_are_many_kinds():
    assert len([fault for fault in FAULTS.values() if fault.static]) >= 45
    assert all(fault.sentence.endswith(".") and fault.rules for fault in FAULTS.values())
    assert {fault.by for fault in FAULTS.values()} == {"emulator", "construction"}


def test_every_kind_fits_somewhere(origins):
    assert {fault.id for fault in FAULTS.values() if any(places(fault, o) for o in origins)} == set(FAULTS)


def test_mutants_differ_and_parse(origins, seed):
    """All of those that are drawn: the parser reads them, and only the lines around the change differ."""
    for one in mutants(origins, seed, 4):
        assert one.text != one.origin.text, one.name
        parse(one.text)
        assert entries(one.text) or one.fault.id == "hidden-entry"


@pytest.mark.parametrize("fault", [fault for fault in FAULTS.values() if fault.by == "emulator"], ids=lambda f: f.id)
def test_a_mutant_is_confirmed(origins, seed, fault):
    """One of many; the others may be in a place where they do no harm."""
    drawn = list(mutants(origins, seed, MOST, [fault.id]))
    proof = next((one.proof for one in map(confirmed, drawn) if one.proof), "")
    assert proof and proof != "by construction"


def test_the_same_seed_draws_the_same(origins):
    kinds = ["drop-barrier", "misalign-shared", "unset-register"]
    chosen = [one.text for one in mutants(origins, 7, 3, kinds)]
    assert len(chosen) == 9 and chosen == [one.text for one in mutants(origins, 7, 3, kinds)]
    assert chosen != [one.text for one in mutants(origins, 8, 3, kinds)]


def test_a_correct_kernel_is_no_mutant(origins):
    """A change without an effect has no proof."""
    fault = FAULTS["drop-barrier"]
    origin = next(o for o in origins if o.name == "trap:own-element")
    first = origin.kernel.instructions[0]
    same = Mutant(fault, origin, origin.text[: first.start] + "bar.sync 0;\n" + origin.text[first.start :], 1)
    assert confirmed(same).proof == ""
    broken = Mutant(fault, origin, origin.text.replace("ret;", "rett;"), 1)
    assert confirmed(broken).proof == "", "a text that does not parse proves nothing"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
def test_ptxas_takes_them(origins, seed):
    """None of the faults is one that an assembler finds."""
    for one in mutants(origins, seed, 1):
        target = one.text.partition(".target ")[2].split()[0].rstrip(",")
        command = ["ptxas", "-arch", target, "-o", "/dev/null", "/dev/stdin"]
        done = subprocess.run(command, input=one.text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, (one.name, done.stderr)


# ---- statements ---------------------------------------------------------------------------------

TEXT = """.version 8.0
.target sm_80 // .entry not here
/* .entry nor { here */
.extern .func (.param .b32 r) far(.param .b64 a);
.global .b8 braces[3] = {1, 2, 3};
.func near() { ret; }
.visible .entry one(.param .u64 x)
{
  .reg .pred %p<2>; .reg .b32 %r<9>;
L: // a label
  @!%p1 bra L;
  { .reg .b32 %r; shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1; }
  ld.shared.v2.u32 {%r3, %r4}, [%r5+8];
  st.shared.u32 [%r5], %r3;
}
.weak .entry two() { ret; }
"""


def test_entries_and_statements():
    one, two = entries(TEXT)
    assert (one.name, two.name) == ("one", "two")
    assert [s.kind for s in one.code] == [
        "directive", "directive", "label", "instruction", "brace", "directive", "instruction", "brace", "instruction",
        "instruction",
    ]  # fmt: skip
    branch, shuffle, load, store = one.instructions
    assert (branch.guard, branch.negated, branch.name, branch.operands) == ("%p1", True, "bra", ("L",))
    assert shuffle.writes == ["%r1", "%p1"] and shuffle.reads == ["%r2"]
    assert load.writes == ["%r3", "%r4"] and load.reads == ["%r5"]
    assert store.writes == [] and store.reads == ["%r5", "%r3"]
    assert len(one.loops) == 1 and one.inside(3) == [] and one.labels == {"L": 2}
    assert TEXT[store.start : store.end] == "st.shared.u32 [%r5], %r3;"
    assert operands("{%a, %b}, [%c, {1, 2}], 7") == ("{%a, %b}", "[%c, {1, 2}]", "7")
    assert len(blank(TEXT)) == len(TEXT) and "nor" not in blank(TEXT)


def test_a_change_of_nothing_is_the_text():
    for entry in entries(TEXT):
        assert applied(entry, []) == TEXT
