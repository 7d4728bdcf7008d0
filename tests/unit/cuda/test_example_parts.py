"""What the examples of CUDA share: a wrong result ends them, and what is printed is what was read or counted."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import trueno
import trueno_cuda
from trueno_cuda.device.hardware.monitor import Reading

FOLDER = Path(__file__).parents[3] / "examples/cuda"


def example(name: str) -> ModuleType:
    spec = spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("value", [1.2, np.nan, np.inf, -np.inf])
def test_a_result_beyond_the_bound_ends_a_program(value, capsys):
    measure = example("measure")
    wanted, bound = np.ones((2, 3)), np.full((2, 3), 0.1)
    measure.check("all of it", np.full((2, 3), 1.05, np.float32), wanted, bound)
    assert "error 0.05, 0.1 allowed: right" in capsys.readouterr().out
    got = np.ones((2, 3), np.float32)
    got[1, 2] = value
    with pytest.raises(SystemExit) as ended:
        measure.check("all of it", got, wanted, bound)
    assert ended.value.code == 1 and "0.1 allowed: WRONG" in capsys.readouterr().out


def test_reports_are_those_of_the_launches_inside():
    device = trueno.backends()["cuda_emulated"].load().device
    x = trueno.to(np.arange(1000, dtype=np.float32), "cuda_emulated")
    trueno.relu(x)
    with device.reports() as outer:
        trueno.relu(x)
        with device.reports() as inner:
            trueno.sum(x)
    trueno.relu(x)
    (report,) = outer
    assert report.kernel.startswith("relu_") and report.bytes["global read"] == report.bytes["global written"] == 4000
    assert inner and all(one.kernel.startswith("sum_") for one in inner)


def test_the_monitor_prints_what_can_be_read(monkeypatch, capsys):
    show = example("cuda_monitor").show
    reading = Reading("GPU X", "driver 1", 3 << 30, 12 << 30, gpu_load=87, memory_load=40, power=100.0, power_limit=400)
    monkeypatch.setattr(trueno_cuda, "monitor", lambda: reading)
    show("idle")
    out = capsys.readouterr().out
    assert out.startswith("idle: GPU X, 3.0 of 12.0 GiB") and "3.00 of 12.00 GiB, 25%" in out
    assert "a kernel ran 87 % of the time, memory was accessed 40 %" in out and "100 of 400 W" in out
    monkeypatch.setattr(trueno_cuda, "monitor", lambda: Reading("GPU X", "driver 1"))
    show("later")
    assert capsys.readouterr().out == "later: GPU X\n"
