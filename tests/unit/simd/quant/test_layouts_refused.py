"""A format whose layout the vectors cannot take is refused with a message, when its kernel is made."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="needs llvmlite")
from trueno.errors import KernelError
from trueno.formats import FORMATS
from trueno.formats.table import Plane
from trueno_simd.kernels.quant.quantize.store import codes_of
from unit.simd.structured import structured_kernel


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> str:
    """q5_0 with eight neighbouring codes together, where a vector takes sixteen."""
    f = FORMATS["q5_0"]
    monkeypatch.setitem(FORMATS, "narrow", replace(f, name="narrow", planes=(Plane("qs", 4, run=8), f.planes[1])))
    return "narrow"


def test_encoding_is_refused(narrow: str) -> None:
    with pytest.raises(KernelError, match=r"narrow: vectors take planes .* qs has 4 bits at a run of 8"):
        codes_of(narrow)


@pytest.mark.parametrize("op", ["dequantize", "quantize_rows"])
def test_so_are_the_ops(narrow: str, op: str) -> None:
    f = FORMATS[narrow]
    numbers, blocks = np.zeros((1, f.elements), np.float32), np.zeros((1, f.nbytes), np.uint8)
    given = (blocks, numbers) if op == "dequantize" else (numbers, blocks)
    with pytest.raises(Exception, match="at a run of 8"):
        structured_kernel(op, format=narrow)(*given)
