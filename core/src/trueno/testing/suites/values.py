"""Every op through its public function: values within their bounds, and the conventions of the API."""

import pytest

from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select.cost import op_class
from trueno.testing.case import Case
from trueno.testing.checks import CHECKS, check_values
from trueno.testing.suites.rows import none_of, quick, skip_rejected, tell

FEW = ("one row of 7", "one row of 1023", "kinds, 7 long", "kinds, 65 long", "3-D", "backwards", "unaligned", "0-d")
FEWER_MANNERS = ("out", "bad_out", "guard", "resident")


def test_values(
    op: Op, backend: str, dtype: str, seed: int, every_layout: bool, request: pytest.FixtureRequest
) -> None:
    """Every value within its bound; operands unchanged; types, dtypes and shapes correct."""
    skip_rejected(op, backend, dtype)
    few = quick(request)
    chosen = _one_of_the_few if few else None
    wrong = []
    try:
        report = check_values(op, backend, dtype, seed, long=not few, every_layout=every_layout, chosen=chosen)
        tell(request, "values", report)
    except AssertionError as error:
        wrong.append(str(error))
    none_of(wrong)


def _stands_for_its_class(op: Op) -> bool:
    return not op.structured and next(o for o in TABLE.values() if op_class(o) == op_class(op)) is op


def _one_of_the_few(case: Case) -> bool:
    one_a_layout = case.label.startswith("layout ") and (case.label.endswith("square") or "u" in case.label[7:])
    return case.op.structured or case.label in FEW or one_a_layout


def test_manners(
    op: Op, backend: str, dtype: str, seed: int, every_layout: bool, request: pytest.FixtureRequest
) -> None:
    """out= in every variant, axis=, guards, batches, aio; the first error of every check is listed.

    A fused chain is a separate kernel: if layouts are spared, one op of each class is tried in one.
    """
    skip_rejected(op, backend, dtype)
    wrong = []
    for name, check in CHECKS.items():
        if name != "values" and (name in FEWER_MANNERS or not quick(request)):
            try:
                more = {"fused": every_layout or _stands_for_its_class(op)} if name == "batch" else {}
                check(op, backend, dtype, seed, **more)
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
    none_of(wrong)
