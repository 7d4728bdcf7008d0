"""The gate about PTX that compiles and runs."""

import json
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trueno_cuda.catalogue import registry
from trueno_cuda.ptx.analyze.assembled import assembled, ptxas

KERNELS = ("add", "softmax", "rms_norm", "rope", "transpose", "matmul", "quant_rows_q4_k")
LEAST = 10.0
"""Tokens per second on a GPU."""
ENGINE, SHAPE, TOKENS = "examples.qwen2", "0.5b", 64
PROGRAM = f"import runpy, sys; sys.argv[0] = 'engine'; runpy.run_module({ENGINE!r}, run_name='__main__')"


def ptx_compiles_and_runs(m: Any) -> None:
    """Print seven kernels, run their samples on the emulator, assemble them with ptxas, and compare with NumPy.

    Each sample's oracle is float64. ptxas is used where it is installed. On a GPU the example engine also decodes 64
    tokens with a model of 24 layers in Q4_K (random weights), and must reach 10 tokens per second; elsewhere, or
    outside of a clone, the gate reports why no tokens were counted.
    """
    m.note(kernels=list(KERNELS), ptxas="installed" if ptxas() else "not installed")
    registers: dict[str, int] = {}
    elements, instructions, worst = 0, 0, 0.0
    for name in KERNELS:
        entry = registry.find(name)
        run = registry.run(entry, seed=int(np.random.default_rng().integers(1 << 31)))
        for kernel in run.kernels:
            figures, reason = assembled(kernel.text, kernel.arch)
            m.need(figures or not ptxas(), f"{kernel.name}: {reason}")
            registers[name] = max((one.registers for one in figures.values()), default=0)
        wrong = [f"{r.name}: {r.wrong} of {r.elements} elements" for r in run.results if not r.good]
        findings = [str(f) for report in run.reports for f in report.findings]
        elements += sum(r.elements for r in run.results)
        instructions += sum(sum(report.instructions.values()) for report in run.reports)
        worst = max([worst, *(r.error for r in run.results)])
        m.need(run.good, f"{name} is wrong on the emulator: {'; '.join([*wrong, *findings]) or 'it did not complete'}")
    m.note(registers=registers, instructions_emulated=instructions, elements_compared=elements)
    m.note(worst_error_in_units_of_the_bound=round(worst, 3))
    speed = tokens_per_second(m)
    m.note(tokens_per_second=speed)
    m.need(isinstance(speed, str) or speed > LEAST, f"the engine decodes {speed} tokens/s, and {LEAST:g} is the least")


def tokens_per_second(m: Any, backend: str = "cuda", shape: str = SHAPE) -> float | str:
    """Tokens per second of the example engine; a sentence where it cannot run."""
    trueno: Any = import_module("trueno")  # through the public API
    entry = trueno.backends()[backend]
    if not entry.available:
        return f"not measured: {entry.reason.partition('. Install')[0]}"
    if m.python(f"import {ENGINE}").code:
        return f"not measured: there is no module {ENGINE} here; run it in a clone of the project"
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.gguf")
        words = ["bench", path, "--backend", backend, "--prompt", "0", "--generate", str(TOKENS), "--json"]
        for command in (["synthesize", path, "--shape", shape], words):
            answer = m.python(PROGRAM, *command)
            m.need(answer.code == 0, f"the engine's {command[0]} ended with {answer.code}: {answer.err.strip()[-200:]}")
    (record,) = json.loads(answer.out)
    return round(float(record["avg_ts"]), 1)


GATES = {"F-TRUENO-004": ptx_compiles_and_runs}
