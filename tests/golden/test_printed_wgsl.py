"""Printed shaders are kept as files, so that a change of the printer shows as a diff.

`make golden` (TRUENO_GOLDEN=write) rewrites them.
"""

import os
from pathlib import Path

import pytest

from trueno.ops import TABLE

source = pytest.importorskip("trueno_wgpu.rows.source", reason="trueno-wgpu is not installed")
FOLDER = Path(__file__).parent / "wgpu"
CASES = {
    "add": ("ee", "flat", False, ()),
    "add_in_place": ("ee", "flat", False, (0, 1, 0)),
    "add_row_vector": ("ew", "flat", False, ()),
    "gelu": ("e", "flat", False, ()),
    "gelu_guarded": ("e", "flat", True, ()),
    "sum": ("e", "rows256", False, ()),
    "sum_long": ("e", "long", False, ()),
    "argmax": ("e", "rows64", False, ()),
    "softmax": ("e", "rows64", False, ()),
    "softmax_narrow_guarded": ("e", "rows8", True, ()),
    "layer_norm_long": ("eww", "long", False, ()),
    "residual_rms_norm": ("eew", "rows256", False, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_printed_source_is_the_golden_one(case: str) -> None:
    layout, schedule, guarded, alias = CASES[case]
    name = next(n for n in sorted(TABLE, key=len, reverse=True) if case.startswith(n))
    op = TABLE[name]
    static = tuple((p.name, p.default) for p in op.static)
    text = source.printed(op, layout, static, guarded, schedule, alias)
    path = FOLDER / f"{case}.wgsl"
    if os.environ.get("TRUENO_GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), "the printer changed; look at the diff, then `make golden`"


def test_every_golden_file_has_a_case() -> None:
    assert {p.name.removesuffix(".wgsl") for p in FOLDER.iterdir()} == set(CASES)
