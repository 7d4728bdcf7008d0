"""PTX of row programs is kept as files, so that a change of the printer shows as a diff.

`make golden` (TRUENO_GOLDEN=write) rewrites them.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from trueno.ops import TABLE

source = pytest.importorskip("trueno_cuda.rows.source", reason="trueno-cuda is not installed")
FOLDER = Path(__file__).parent / "cuda_rows"
CASES = {
    "add": ("ee", "flat256x2", np.float32, True, False),
    "add_odd": ("ee", "flat256x1", np.float32, False, False),
    "add_row_vector": ("ew", "flat256x1", np.float32, True, False),
    "neg_guarded": ("e", "flat256x1", np.float64, True, True),
    "sum": ("e", "long256x2", np.float32, True, False),
    "sum_swept": ("e", "swept256x1", np.float64, False, False),
    "argmax": ("e", "held8x1", np.float32, True, False),
    "softmax": ("e", "held256x2", np.float32, True, False),
    "softmax_warp_guarded": ("e", "held32x1", np.float32, False, True),
    "rms_norm": ("ew", "held256x4", np.float32, True, False),
    "residual_rms_norm_long": ("eew", "long256x1", np.float32, True, False),
}


@pytest.mark.parametrize("case", CASES)
def test_printed_source_is_the_golden_one(case: str) -> None:
    layout, schedule, dtype, wide, guarded = CASES[case]
    name = next(n for n in sorted(TABLE, key=len, reverse=True) if case.startswith(n))
    made = source.printed(TABLE[name], layout, (), guarded, schedule, "sm_90", dtype, wide)
    text = "\n".join(kernel.text for kernel in made)
    path = FOLDER / f"{case}.ptx"
    if os.environ.get("TRUENO_GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), "the printer changed; look at the diff, then `make golden`"


def test_every_golden_file_has_a_case() -> None:
    assert {p.name.removesuffix(".ptx") for p in FOLDER.iterdir()} == set(CASES)
