"""Texts of the builder's example kernels are kept as files, so that a change of the builder shows as a diff.

`make golden` (TRUENO_GOLDEN=write) rewrites them.
"""

import os
from pathlib import Path

import pytest

pytest.importorskip("trueno_cuda.ptx", reason="trueno-cuda is not installed")

from unit.cuda.ptx.examples import ARCHES, CONSTANTS, EXAMPLES

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_is_the_golden_one(name: str) -> None:
    arch = "sm_90" if "sm_90" in ARCHES[name] else "sm_90a"
    text = EXAMPLES[name].build(arch, **CONSTANTS.get(name, {})).text
    path = FOLDER / f"{name}.{arch}.ptx"
    if os.environ.get("TRUENO_GOLDEN") == "write":
        path.write_text(text, "ascii")
    assert text == path.read_text("ascii"), "the builder changed; look at the diff, then `make golden`"


def test_every_golden_file_has_a_case() -> None:
    assert {p.name.split(".")[0] for p in FOLDER.glob("*.ptx")} == set(EXAMPLES)
