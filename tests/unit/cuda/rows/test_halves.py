"""Row programs on 16-bit floats: computed in float32 from what memory holds, rounded once, under every schedule."""

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.judge.bound import bound, judge
from trueno.ops import TABLE
from trueno.programs.lower import lower
from trueno.testing.halves import declare, rounded_bound
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.rows.accuracy import ACCURACY
from trueno_cuda.rows.source import printed
from unit.cuda.ptx.assembler import assembled
from unit.cuda.rows.calls import key, run

DEVICE = Emulator("sm_90")
NAMES = ("float16", "bfloat16")
FLAT = ("gelu", "add", "signum")
FOLDING = ("softmax", "layer_norm", "residual_rms_norm", "minmax_normalize", "argmax", "sum", "variance")


def operands(rng, op, dtype, rows, n):
    shapes = {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}
    return [rng.standard_normal(shapes[kind]).astype(dtype) for kind in op.layout]


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("shape, schedules", [
    ((3, 37), ("flat", "held32", "held8x4", "swept64x1", "long64x1")),
    ((2, 1032), ("flat64x2", "held128", "swept128x2", "long64x2c2")),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", [*FLAT, *FOLDING])
def test_every_schedule(name, shape, schedules, dtype):
    declare(dtype)
    seed = fresh_seed()
    print(f"seed {seed}")
    op, T = TABLE[name], np.dtype(dtype)
    arrays = operands(np.random.default_rng(seed), op, T, *shape)
    params = [p.typical for p in op.params if p.symbolic]
    for schedule in (s for s in schedules if s.startswith("flat") == (name in FLAT)):
        call = key(op, dtype=T)
        got = run(DEVICE, call, arrays, params, schedule)
        wide = [x.astype(np.float32) for x in arrays]
        program = call.op.program(call.layout, **dict(call.static))
        for out, one in zip(got, bound(program, wide, params, np.dtype(np.float32), ACCURACY), strict=True):
            verdict = judge(out.reshape(one.value.shape), rounded_bound(one, T))
            assert verdict, f"{name} {schedule}: {verdict}"
            assert out.dtype == (np.int64 if name == "argmax" else T)


def test_nothing_is_read_back_from_what_was_rounded():
    """Programs that would keep values in a result, or read a result again."""
    found = 0
    for op in (op for op in TABLE.values() if not op.structured):
        usual, narrow = (lower(op.program(), residence) for residence in ("memory", "narrow"))
        found += any(isinstance(s, int) for sweep in usual.passes for _, s in sweep.loads)
        assert all(isinstance(s, str) for sweep in narrow.passes for _, s in sweep.loads)
        outputs = dict(enumerate(narrow.program.outputs))
        assert all(outputs[k] == i for sweep in narrow.passes for k, i in sweep.stores)
        assert len(narrow.passes) == len(usual.passes)
    assert found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize(
    "name, schedule", [("gelu", ""), ("softmax", "held256x4"), ("layer_norm", "swept"), ("sum", "long")]
)
def test_ptxas_takes_them(name, schedule, dtype, arch):
    declare(dtype)
    op = TABLE[name]
    static = tuple((p.name, p.default) for p in op.static)
    for source in printed(op, op.layout, static, schedule=schedule, arch=arch, dtype=dtype):
        assert assembled(source).spilled == 0
