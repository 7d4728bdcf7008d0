"""Calls compute in the default floating-point environment, whatever the caller set, and give the caller's back."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno import floatenv
from trueno.ops import TABLE
from trueno.ops.op import Op

from tests.float_modes import LINUX, MODES, in_mode, needs_modes

SEED = fresh_seed(__name__)
HOST = ("reference", "scalar", "simd")

pytestmark = needs_modes


def operands(op: Op, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Numbers made of bits, a third of them near 0.01 and the others down to the subnormals."""
    seen = []
    for spec in op.signature.inputs:
        along = op.over is None or op.over in spec.dims
        shape = (*((2,) if spec.leading else ()), *((n,) if along else ()))
        exponent = rng.integers(0, 129, shape, dtype=np.uint32)
        if shape:
            exponent[..., ::3] = 120
        sign, digits = rng.integers(0, 2, shape, dtype=np.uint32), rng.integers(0, 2**23, shape, dtype=np.uint32)
        seen.append(np.asarray(sign << np.uint32(31) | exponent << np.uint32(23) | digits).view(np.float32))
    return seen


def called(op: Op, given: list[np.ndarray]) -> bytes:
    numbers = {p.name: 0.1 for p in op.params if p.symbolic and p.required}
    result = getattr(trueno, op.name)(*given, **numbers)
    return b"".join(np.asarray(r).tobytes() for r in (result if isinstance(result, tuple) else (result,)))


@pytest.mark.parametrize("mode", MODES)
def test_the_default_is_told_from_every_other_mode_and_set(mode: str) -> None:
    assert floatenv.standard()
    with in_mode(mode):
        assert not floatenv.standard()
        with floatenv.ieee():
            assert floatenv.standard()
            with floatenv.ieee():
                assert floatenv.standard()
        assert not floatenv.standard()
    assert floatenv.standard()


@pytest.mark.parametrize("mode", MODES)
def test_the_callers_modes_come_back_after_an_error(mode: str) -> None:
    def broken(x: float) -> float:
        assert floatenv.standard()
        raise ValueError(str(x))

    with in_mode(mode):
        with pytest.raises(ValueError, match="3"):
            floatenv.steady(broken)(3.0)
        assert not floatenv.standard()


@pytest.mark.parametrize("mode", MODES)
def test_a_steady_kernel_that_is_bound_to_shapes_is_steady(mode: str) -> None:
    def kernel(x: float) -> float:
        return x

    kernel.bind = lambda shapes: lambda x: (shapes, x, floatenv.standard())
    bound = floatenv.steady(kernel).bind(((2, 3),))
    with in_mode(mode):
        interval = bound(1.0)
    assert interval == (((2, 3),), 1.0, True)
    assert not hasattr(floatenv.steady(lambda x: x), "bind")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", HOST)
def test_every_row_op_gives_the_same_bits_in_every_mode(backend: str, mode: str) -> None:
    rng = np.random.default_rng(SEED)
    with trueno.use(backend):
        for op in TABLE.values():
            if op.structured:
                continue
            arrays = operands(op, 40, rng)
            expected = called(op, arrays)
            with in_mode(mode):
                found, kept = called(op, arrays), not floatenv.standard()
            assert found == expected, (op.name, mode, f"seed {SEED}")
            assert kept, f"{op.name} took the caller's mode away"


@pytest.mark.parametrize("backend", [*HOST, "cuda_emulated"])
def test_conversions_plans_batches_and_guards_too(backend: str) -> None:
    x = np.random.default_rng(SEED).standard_normal((4, 33)).astype(np.float32)

    def all_ways() -> list[np.ndarray]:
        batch = trueno.Batch()
        h = batch.softmax(batch.scale(batch.upload(x), 0.1))
        batch.execute()
        with trueno.JidokaGuard.parse([("nan", "stop"), ("inf", "stop")]):
            guarded = trueno.softmax(x)
        return [
            trueno.scale([0.1, 0.3, 1e-40], 0.1),
            trueno.numpy(trueno.softmax(trueno.to(x, backend))),
            trueno.softmax(x, axis=0),
            trueno.gelu(x.astype(np.float16)).astype(np.float32),
            trueno.matmul(x, x.T),
            trueno.Vector([0.1, 0.3]).norm_l2(),
            batch.read(h),
            guarded,
        ]

    with trueno.use(backend):
        expected = all_ways()
        with in_mode("up"):
            found = all_ways()
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=f"way {i}, seed {SEED}")


@pytest.mark.parametrize("mode", ["up", "zero"])
def test_a_number_that_a_batch_keeps_is_rounded_to_nearest(mode: str) -> None:
    batch = trueno.Batch("reference")
    with in_mode(mode):
        h = batch.maximum(batch.upload(np.zeros(4, np.float32)), 1.1)
    batch.execute()
    assert batch.read(h)[0] == np.float32(1.1)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.float_modes import set_mode
set_mode(sys.argv[2])
import numpy as np, trueno
x = np.frombuffer(bytes.fromhex(sys.argv[3]), np.float32)
with trueno.use(sys.argv[4]):
    results = [trueno.gelu(x), trueno.softmax(x), trueno.sin(x), trueno.exp(x), trueno.mish(x)]
set_mode("nearest")
print(b"".join(r.tobytes() for r in results).hex())
"""


@pytest.mark.parametrize("backend", HOST)
def test_a_process_that_starts_and_compiles_in_another_mode_has_the_same_constants(
    backend: str, tmp_path: Path
) -> None:
    """And what it left in the cache serves a clean process."""
    assert LINUX
    x = np.random.default_rng(SEED).standard_normal(40).astype(np.float32)
    root = Path(__file__).resolve().parents[3]
    environment = os.environ | {
        "TRUENO_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPYCACHEPREFIX": str(tmp_path / "pyc"),
    }

    def run(mode: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, str(root), mode, x.tobytes().hex(), backend],
            env=environment, capture_output=True, text=True, check=True, timeout=300,
        ).stdout  # fmt: skip

    with trueno.use(backend):
        expected = [trueno.gelu(x), trueno.softmax(x), trueno.sin(x), trueno.exp(x), trueno.mish(x)]
    wanted = b"".join(r.tobytes() for r in expected).hex()
    assert [run("up").strip(), run("nearest").strip()] == [wanted, wanted], f"seed {SEED}"
