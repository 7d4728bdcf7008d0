"""The kit on wgpu, for a sample of ops: each program shape, each family, and every kernel that was written by hand.

`tests/conformance/test_ops.py` judges what is available automatically, and software that emulates one is used only when
it is named.  So this names it, in a child process.  `TRUENO_WGPU_ADAPTER=software trueno conformance wgpu` judges
every op, with every case, in some minutes.
"""

import json
import os
import subprocess

import pytest

pytest.importorskip("wgpu")
from trueno.cli.conformance import arguments
from trueno.ops import TABLE
from trueno.programs.lower import lower
from trueno.programs.program import FOLDS
from trueno_wgpu.kernels import KERNELS

CHOSEN = ("gelu", "pow", "fma", "sin", "ln", "rms_norm", "normalize", "zscore", "sum_kahan", "argmin", "covariance")
"""Ops whose numbers are the hard ones; the rest of the sample follows from the table."""
NO_BACKEND = 4
"""pytest's code for options that it cannot use: a backend that is not available."""


def program_shape(name):
    """Kinds of operands and results, folds, and passes: what decides what the printer writes."""
    plan = lower(TABLE[name].program(), "memory")
    nodes = plan.program.nodes
    kinds = "".join(kind for _, kind in plan.program.operands)
    results = "".join("e" if nodes[o].space == "e" else "r" for o in plan.program.outputs)
    return kinds, results, frozenset(n.kind for n in nodes if n.kind in FOLDS), len(plan.passes)


def sample():
    """The chosen ops, the first op of each program shape that these lack, and what has a kernel written by hand."""
    first = {program_shape(name): name for name in CHOSEN}
    for name, op in TABLE.items():
        if not op.structured:
            first.setdefault(program_shape(name), name)
    return list(dict.fromkeys([*CHOSEN, *first.values(), *KERNELS]))


def _judged(path, word):
    """The kit's process on the adapter that `word` names, with the report at `path`."""
    environment = {k: v for k, v in os.environ.items() if k not in ("TRUENO_BACKEND", "FORCE_CPU")}
    return subprocess.run(
        arguments("wgpu", str(path), ",".join(sample()), "float32", quick=True, seed=0, chosen=""),
        env=environment | {"TRUENO_WGPU_ADAPTER": word}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_wgpu_conforms(tmp_path):
    """On the adapter that a setting names, else the GPU's, else software's; skipped where there is none.

    Unless REQUIRE_WGPU is set, as it is in CI: then that fails.
    """
    path = tmp_path / "report.json"
    wanted = os.environ.get("TRUENO_WGPU_ADAPTER", "")
    for word in [wanted] if wanted else ["", "software"]:
        done = _judged(path, word)
        if done.returncode != NO_BACKEND:
            break
    said = f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    if done.returncode == NO_BACKEND and not os.environ.get("REQUIRE_WGPU"):
        pytest.skip(f"no adapter for WebGPU: {said[-400:]}")
    assert done.returncode == 0, said
    (report,) = json.loads(path.read_text())["backends"]
    print(report["devices"], done.stdout.splitlines()[-1])
    assert {(row["op"], row["dtype"]): row["verdict"] for row in report["ops"]} == {
        (name, "float32"): "pass" for name in sample()
    }
    assert not report["failures"] and report["counts"]["failed"] == 0
