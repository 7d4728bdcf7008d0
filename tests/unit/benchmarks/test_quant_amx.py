"""The race of int8 tiles against the vector kernel runs anywhere, over the emulated tiles, and checks its results."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno_simd.llvm import amx

from benchmarks import quant_amx


@pytest.mark.parametrize("name", ["q8_0", "q4_k"])
def test_a_race_says_time_and_ratio(name):
    words = quant_amx.race(name, 17, 64, 256, amx.EMULATED, 1, 0.0).split()
    assert words[1] == "us" and words[3] == "Tops/s" and words[4].endswith("x") and float(words[4][:-1]) > 0


def test_a_wrong_result_is_an_error(monkeypatch):
    def wrong(name, tiles):
        return lambda x, w, out: out.fill(1) or 0

    monkeypatch.setattr(quant_amx.product, "tiled", wrong)
    with pytest.raises(AssertionError, match="differ"):
        quant_amx.race("q8_0", 17, 64, 256, amx.EMULATED, 1, 0.0)


def test_calls_take_turns():
    order = []
    times = quant_amx.turns([lambda: order.append(0), lambda: order.append(1)], 0.0)
    assert len(times) == 2 and all(isinstance(each, np.ndarray) and len(each) == 5 for each in times)
    assert order == [0, 1, 1, 0] * 2 + [0, 1]


def test_without_amx_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(quant_amx.amx, "available", lambda *_: False)
    monkeypatch.setattr("sys.argv", ["quant_amx"])
    with pytest.raises(SystemExit, match="--emulated"):
        quant_amx.main()
    assert "AMX with int8: no" in capsys.readouterr().out
