"""The rules of `trueno ptx` against the corpus: silent on what is right, and right about faults that a text shows.

`python -m tests.corpus measure --analyzer tests.corpus.ours:analyzer` measures all of it.
"""

from itertools import islice

import pytest
from seeds import fresh_seed

from .faults import FAULTS
from .measure import Judge, correct, silence
from .mutants import mutants
from .origins import launched, origins
from .ours import analyzer
from .sources import committed
from .statements import entries
from .traps import traps

BUILT = [name for name, fault in FAULTS.items() if fault.by == "construction" and fault.static]
"""Faults that need no run to be confirmed."""
PARTLY = {"narrow-count", "hidden-entry", "branch-to-end", "plain-for-atomic", "loaded-address", "stride-lanes"}
"""Of those the rules find some: a narrow load may be meant, a function may be one, a loop may be left, and where a row
begins may depend on a parameter."""


@pytest.mark.parametrize("trap", traps(), ids=lambda trap: trap.name)
def test_traps_are_silent(trap):
    assert not silence(analyzer, trap).wrong


COMMITTED = dict(committed())


@pytest.mark.parametrize("stem", COMMITTED)
def test_what_nvcc_compiled_is_silent(stem):
    text = COMMITTED[stem]
    known = {entry.name: one for entry in entries(text) if (one := launched(stem, entry.name)) is not None}
    row = correct(analyzer, stem, text, known)
    assert row.entries and not row.alarms and not row.loud


@pytest.mark.parametrize("name", [name for name in BUILT if name not in PARTLY])
def test_faults_are_found(name):
    seed = fresh_seed()
    print(f"seed {seed}")
    judge = Judge(analyzer)
    tried = list(islice(mutants(origins(("sm_80",)), seed, 3, [name]), 3))
    assert tried
    assert all(judge.verdict(mutant).right for mutant in tried)
