"""Rows of equal numbers in printed WGSL: rows in a group, and such as are taken in chunks."""

import pytest
import trueno
from unit import constant_rows

pytest.importorskip("wgpu")
from trueno.discovery import registry


def test_constant_rows_are_exact(word: str) -> None:
    registry.entries()
    trueno.settings.override("TRUENO_WGPU_ADAPTER", word or None)
    try:
        constant_rows.check("wgpu", "float32", (3, 130, 4099), ((5,),))
    finally:
        trueno.settings.override("TRUENO_WGPU_ADAPTER", None)
