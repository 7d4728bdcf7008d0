"""Rows of equal numbers in printed WGSL: rows in a group, and such as are taken in chunks."""

import pytest
from unit import constant_rows

pytest.importorskip("wgpu")


def test_constant_rows_are_exact(chosen: None) -> None:
    constant_rows.check("wgpu", "float32", (3, 130, 4099), ((5,),))
