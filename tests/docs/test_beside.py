"""What the pages of the ops say beside a meaning: NumPy's and PyTorch's expressions give the op's values."""

import math
import secrets

import numpy as np
import pytest
import trueno
from trueno.ops import TABLE
from trueno.testing.cases import natural

from docs.writing import ops
from docs.writing.beside import BESIDE, NONE

SIZES = {
    "n": 7,
    "m": 5,
    "k": 4,
    "t": 3,
    "s": 6,
    "hq": 4,
    "hk": 2,
    "d": 8,
    "e": 5,
    "v": 9,
    "h": 6,
    "w": 7,
    "p": 2,
    "q": 3,
}
PARAMETERS = {"lerp": {"t": 0.3}, "scale": {"factor": -1.7}, "clamp": {"min": -0.5, "max": 0.4}, "topk": {"k": 3}}
"""Those that an op requires."""
SHAPES = {"convolve2d": ((6, 7), (2, 3)), "concatenate": ((3, 5), (2, 5))}


@pytest.fixture
def rng():
    seed = secrets.randbits(32)
    print("seed", seed)
    return np.random.default_rng(seed)


def operands(op, rng):
    """Random operands in float64, of the sizes above; indices are below 5."""
    if op.name == "symmetric_eigen":
        a = rng.standard_normal((5, 5))
        return [a + a.T]
    if op.name == "attention_masked":
        return [*operands(TABLE["attention"], rng), rng.standard_normal((2, 4, 3, 6))]
    shapes = SHAPES.get(op.name) or [
        (*((2,) if spec.leading and not BESIDE[op.name].one_row else ()), *(SIZES[d] for d in spec.dims))
        for spec in op.signature.inputs
    ]
    if not op.structured and not any(spec.dims for spec in op.signature.inputs):
        shapes = [(3, 11)] * len(shapes)
    return [
        rng.integers(0, 5, shape) if spec.index else natural(op, rng, shape)
        for spec, shape in zip(op.signature.inputs, shapes, strict=True)
    ]


def compared(op, result, value):
    """Within rounding; vectors of eigenvalues but for their signs."""
    results = result if isinstance(result, tuple) else (result,)
    values = value if isinstance(value, tuple) else (value,)
    for i, (one, other) in enumerate(zip(results, values, strict=True)):
        one, other = np.asarray(one), np.asarray(other)
        if op.name == "symmetric_eigen" and i:
            one, other = np.abs(one), np.abs(other)
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", [name for name, one in BESIDE.items() if {one.numpy, one.torch} != {NONE}])
def test_an_expression_gives_the_values_of_the_op(name, library, rng):
    op, expression = TABLE[name], getattr(BESIDE[name], library)
    if expression == NONE:
        pytest.skip("the page says that there is none")
    arrays = operands(op, rng)
    parameters = PARAMETERS.get(name, {})
    every = {p.name: p.default for p in op.params} | parameters
    if name == "pow":
        arrays[0] = np.abs(arrays[0])
    names = dict(zip(op.operands, arrays, strict=True))
    space = {"np": np, "math": math}
    if library == "torch":
        torch = pytest.importorskip("torch")
        names = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in names.items()}
        space |= {"torch": torch, "F": torch.nn.functional}
    value = eval(expression, space | every | names | ({"axis": 0} if name == "concatenate" else {}))
    with trueno.use("reference"):
        result = getattr(trueno, name)(*arrays, **parameters)
    compared(op, result, value)


def test_entries_are_of_ops():
    """An op needs none: it comes in with its body and its meaning, and its page then names no other library."""
    assert set(BESIDE) <= set(TABLE), "docs/writing/beside.py names what is no op"
    assert all(one.numpy and one.torch for one in BESIDE.values()), f"an op without an expression says {NONE!r}"


def test_an_entry_of_the_page_has_all_of_it():
    page = ops.family_page("normalization")
    entry = page[page.index("## softmax") : page.index("## log_softmax")]
    for part in (
        "**NumPy:** `(e := np.exp(",
        "**PyTorch:** `torch.softmax(",
        "`exp` within 1.",
        "**Backends:** simd, scalar: float32, float64;",
    ):
        assert part in entry
    assert 'title="Output"\narray([0.' in entry
    assert "wgpu: float32; cuda: float32, float64, float16, bfloat16." in entry


def test_backends_are_what_they_accept():
    assert ops._long(TABLE["symmetric_eigen"]) == ["simd, scalar, cuda: float32, float64", "wgpu: none"]
    assert "cuda: float32 (6 of 13 formats)" in ops._long(TABLE["quantize_rows"])
    assert ops._long(TABLE["lz4_pack"]) == ["simd, scalar, wgpu, cuda"]
    assert ops._short(TABLE["lz4_pack"]) == dict.fromkeys(("simd", "scalar", "wgpu", "cuda"), "yes")
