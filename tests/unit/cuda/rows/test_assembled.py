"""ptxas takes every kernel that is printed, and spills nothing in the common ones."""

from typing import Any

import numpy as np
import pytest
from trueno.ops import TABLE
from trueno_cuda.rows.rowprogram import refusal
from trueno_cuda.rows.source import is_flat, printed
from unit.cuda.ptx.assembler import assembled
from unit.cuda.rows.calls import key

COMMON = {
    "add": "flat256x2", "gelu": "flat256x4", "softmax": "held1024x8", "log_softmax": "held256x8",
    "layer_norm": "held1024x8", "rms_norm": "held256x8", "residual_rms_norm": "held512x4", "sum": "long256x4",
    "argmax": "long256x4", "sum_kahan": "long256x4", "correlation": "held1024x4", "zscore": "swept1024x4",
}  # fmt: skip
ROWS = [o.name for o in TABLE.values() if not o.structured]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", COMMON)
def test_common_kernels_spill_nothing(name: str, arch: str) -> None:
    for wide in (True, False):
        for source in printed(
            TABLE[name], TABLE[name].layout, key(name).static, schedule=COMMON[name], arch=arch, wide=wide
        ):
            assert assembled(source).spilled == 0, source.name


@pytest.mark.slow
@pytest.mark.parametrize("name, dtype", [(n, np.float32) for n in ROWS] + [(n, np.float64) for n in COMMON])
def test_ops_assemble_under_every_schedule(name: str, dtype: Any) -> None:
    """What tests/golden/cuda/test_ptxas.py leaves out: guarded kernels of the schedules that are not the usual one."""
    call = key(name, dtype=dtype)
    if refusal(call) is None and not is_flat(call.op.program(call.layout, **dict(call.static))):
        for schedule in ("held256x4", "swept", "long"):
            for kernel in printed(call.op, call.layout, call.static, True, schedule, dtype=dtype):
                assembled(kernel)


def test_equal_programs_print_equally() -> None:
    texts = [printed(TABLE["softmax"], "e", schedule="held256x4")[0].text for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[0] == "// softmax_held256x4_v4_f32"
