"""The conformance kit: is this backend correct?

    trueno conformance NAME
    python -m pytest -p trueno.testing.plugin --pyargs trueno.testing --trueno-backend NAME

runs all tests on an installed backend: manifest, probes, kernels, values, rates, threads.  In your own test
module, `from trueno.testing.suites import *` and `BACKEND = "NAME"` run the same, and `assert_op` judges one call.
Nothing here but `plugin`, `conformance` and `suites` needs pytest.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import EXACT, Bound, Verdict, bound, judge
from trueno.judge.structured import judge_structured, structured_bound
from trueno.ops import ALIASES, TABLE
from trueno.testing.case import Case
from trueno.testing.cases import cases
from trueno.testing.checks import CHECKS, Report, check_values
from trueno.testing.expected import expected, verdict


def assert_op(name: str, operands: Sequence[Any], got: Any, accuracy: Accuracy = EXACT, **kwargs: Any) -> Verdict:
    """Assert that `got` is a correct result of op `name` for `operands`; AssertionError says where it is not.

    The tolerance follows from the op's program and `accuracy`; you need not choose one.
    """
    op = TABLE[ALIASES.get(name, name)]
    dtype = next(np.asarray(x).dtype for s, x in zip(op.signature.inputs, operands, strict=True) if not s.type)
    results = got if isinstance(got, tuple) else (got,)
    judged = verdict(op, operands, kwargs, dtype, results, accuracy)
    if not judged.ok:
        raise AssertionError(f"{op.name}: {judged}")
    return judged


__all__ = [
    "CHECKS",
    "EXACT",
    "Bound",
    "Case",
    "Report",
    "Verdict",
    "assert_op",
    "bound",
    "cases",
    "check_values",
    "expected",
    "judge",
    "judge_structured",
    "structured_bound",
    "verdict",
]
