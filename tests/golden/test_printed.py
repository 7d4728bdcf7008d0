"""Printed kernels are kept as files, so that a change of the printer shows as a diff.

`make golden` (TRUENO_GOLDEN=write) rewrites them.
"""

import os
from pathlib import Path

import pytest

from trueno.ops import TABLE

source = pytest.importorskip("trueno_simd.rows.source", reason="trueno-simd is not installed")
FOLDER = Path(__file__).parent / "simd"
CASES = {
    "add": ("ee", 1, False, False),
    "add_row_vector": ("ew", 2, True, False),
    "gelu": ("e", 1, True, False),
    "gelu_guarded": ("e", 1, False, True),
    "sum": ("e", 1, True, False),
    "argmax_across": ("e", 3, True, False),
    "softmax_across": ("e", 3, False, False),
    "argmax": ("e", 2, False, False),
    "softmax": ("e", 2, True, False),
    "layer_norm": ("eww", 2, False, False),
    "residual_rms_norm": ("eew", 2, False, False),
    "log_softmax_guarded": ("e", 1, True, True),
}


@pytest.mark.parametrize("case", CASES)
def test_printed_source_is_the_golden_one(case: str) -> None:
    layout, rank, parallel, guarded = CASES[case]
    name = next(n for n in sorted(TABLE, key=len, reverse=True) if case.startswith(n))
    op = TABLE[name]
    static = tuple((p.name, p.default) for p in op.static)
    text = source.printed(op, "float32", layout, rank, static, parallel, guarded, block=4096)
    path = FOLDER / f"{case}.py.txt"
    if os.environ.get("TRUENO_GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), "the printer changed; look at the diff, then `make golden`"


def test_every_golden_file_has_a_case() -> None:
    assert {p.name.removesuffix(".py.txt") for p in FOLDER.iterdir()} == set(CASES)
