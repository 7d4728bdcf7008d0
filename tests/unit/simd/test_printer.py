"""Programs that no op of the table has, and that chains of them do: the printer takes those, too."""

import zlib

import numpy as np
import pytest
from trueno.batch.merged import Part, Recipe, merged
from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import bound, judge

pytest.importorskip("numba")

from trueno_simd.backend import SimdBackend
from trueno_simd.rows.rowprogram import compiled

ACCURACY: Accuracy = SimdBackend().accuracy
COLUMN_FIRST = Recipe(
    "re", 0, (Part("add", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("softmax", (("v", 0, 0),), (), ())),
    ((1, 0, "e"),), rows=True,
)  # fmt: skip
"""softmax(column + x): the program's first node is one value a row."""
NOTHING_FILLS = Recipe(
    "rw", 0, (Part("mul", (("x", 0, 0), ("x", 1, 0)), (), ()), Part("sum", (("v", 0, 0),), (), ())),
    ((1, 0, "r"),), rows=True,
)  # fmt: skip
"""sum(column · w): no operand and no result has an element for each of the program's."""


@pytest.fixture
def rng(request):
    seed = zlib.crc32(request.node.name.encode())
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def check(recipe, kinds, operands, out, parallel):
    """Run a recipe's kernel, and judge it by the program's own bound."""
    op = merged(recipe)
    kernel = compiled(op, "float32", kinds, 2, (), parallel, False)
    assert kernel(*operands, out) == 0
    (allowed,) = bound(op.program(kinds), operands, (), np.float32, ACCURACY)
    verdict = judge(out, allowed)
    assert verdict.ok, str(verdict)
    assert kernel(*operands, np.empty((*out.shape[:-1], out.shape[-1] + 1), out.dtype)) == -1


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("n", [5, 100])
def test_a_row_value_may_come_first(n, parallel, rng):
    """Rows of 5 are taken 64 at a time, where the tile has an argument that says at which row it begins."""
    column, x = rng.standard_normal(200).astype("f4"), rng.standard_normal((200, n)).astype("f4")
    check(COLUMN_FIRST, "re", (column, x), np.empty_like(x), parallel)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("n", [5, 100])
def test_a_fold_over_what_no_operand_fills(n, parallel, rng):
    column, w = rng.standard_normal(200).astype("f4"), rng.standard_normal(n).astype("f4")
    check(NOTHING_FILLS, "rw", (column, w), np.empty(200, "f4"), parallel)
