"""Thousands of mutated texts, others in each run: errors of ours, findings, or kernels that run.

TRUENO_HOSTILE_SEED repeats a run; `python -m tests.hostile.ptx_mutants` makes as many as you like.
"""

import os

from hostile.many import stretch
from hostile.ptx_mutants import case, run
from seeds import fresh_seed

COUNT = 4000


def test_no_text_breaks_the_emulator():
    seed = int(os.environ.get("TRUENO_HOSTILE_SEED") or fresh_seed())
    done = stretch(case, run, range(seed << 32, (seed << 32) + COUNT))
    told = "\n".join(f"python -m tests.hostile.ptx_mutants --case {number}\n{trace}" for number, trace in done.failures)
    assert not done.failures, f"TRUENO_HOSTILE_SEED={seed}\n{told}"
    assert done.words["compiled"] > COUNT / 50 and done.words["launched"] > COUNT / 200, done.words


def test_a_case_follows_from_its_number():
    assert [case(n) for n in range(9)] == [case(n) for n in range(9)]
    assert len({case(n).text for n in range(200)}) > 150
