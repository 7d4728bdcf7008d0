"""Damaged text: a report, or a sentence about the text, and nothing else."""

import random
import re
from contextlib import suppress

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.render import lines, sarif
from trueno_cuda.ptx.analyze.report import report, summary
from trueno_cuda.ptx.analyze.rules import RULES, example
from trueno_cuda.ptx.syntax.errors import InternalError, PtxError

LAUNCHES = [None, (256, 1, 1), (16, 16, 1), (7, 1, 1), (32, 1, 1)]


def test_any_damage_gives_a_report():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    texts = [re.findall(r"\s+|[\w.%$:]+|.", example(r.bad), re.DOTALL) for r in RULES.values() if len(r.bad) < 2000]
    reports = []
    for _ in range(400):
        pieces = list(rng.choice(texts))
        for _ in range(rng.randrange(1, 6)):
            at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
            pieces[at] = rng.choice(["", pieces[at] * 2, pieces[other], ";", "}", "{", "@%p1", "-1", "9" * 20, "é"])
        with suppress(PtxError):
            try:
                reports.append(report("x", "".join(pieces), Launch(rng.choice(LAUNCHES)), RULES, "sm_80", real=False))
            except InternalError:
                raise AssertionError("".join(pieces)) from None
            list(lines(reports[-1], verbose=True))
    assert sarif(reports)["runs"] and summary(reports)["files"] == len(reports) > 100


@pytest.mark.parametrize("size", ["0", "-1", "-4", "3", "99999999999999999999"])
def test_a_copy_of_an_impossible_size_is_no_copy(size):
    text = example(RULES["cp-async-no-wait"].bad)
    assert text.count("[%rd1], 4;") == 1
    launch = Launch((256, 1, 1))

    def found(text):
        (entry,) = report("x", text, launch, RULES, "sm_80", real=False)["entries"]
        return {finding["rule"] for finding in entry["findings"]}

    assert "cp-async-no-wait" in found(text)
    assert "cp-async-no-wait" not in found(text.replace("[%rd1], 4;", f"[%rd1], {size};"))


def test_a_long_line_of_slashes_is_read_once():
    """Looking for comments that excuse rules took time that grew with the square of the slashes."""
    text = f"// {'/' * 400_000}\n// ptx: nothing\n{example(next(iter(RULES.values())).good)}"
    assert report("x", text, Launch(None), RULES, "sm_80", real=False)["entries"]
