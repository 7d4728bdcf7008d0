"""Every op has someone to be compared with, and everyone computes the same."""

import numpy as np
import pytest
import trueno
from trueno.ops import TABLE

from benchmarks.compare import OURS, ours, results, ways, wrong
from benchmarks.inputs import Arena, complete, kind, values, variants
from benchmarks.peers import FAMILIES, PEERS, peers_of, torch
from benchmarks.timing import bind

COMPARED = [op for op in TABLE.values() if op.family in FAMILIES]
CASES = [(op, given) for op in COMPARED for given in variants(op)]
NAMES = [" ".join([op.name, *(str(v) for v in given.values())]) for op, given in CASES]


@pytest.fixture(autouse=True)
def _on_the_reference():
    """Numerics only: what the op means, with nothing to compile."""
    with trueno.use("reference"):
        yield


@pytest.mark.parametrize("op", COMPARED, ids=lambda op: op.name)
def test_every_op_has_a_numpy_peer(op):
    assert peers_of(op).numpy


def test_every_peer_is_of_an_op():
    assert set(PEERS) <= set(TABLE)


@pytest.mark.parametrize("shape", [(1000,), (7, 1000)], ids=["one row", "rows"])
@pytest.mark.parametrize("op, given", CASES, ids=NAMES)
def test_peers_compute_what_we_do(op, given, shape):
    arena = Arena(shape)
    operands = arena.operands(op)
    out = arena.out(op, operands, given)
    calls = ways(op, operands, given, out, arena)
    assert any(name.startswith("numpy") for name in calls) or op.name == "gelu", "no NumPy way applies"
    if torch is not None and op.name in PEERS:  # of what bears an op's name PyTorch may have nothing
        assert any(name.startswith("torch") for name in calls), "no PyTorch way applies"
    calls[OURS] = ours(op, operands, given, out)
    before = [x.copy() for x in operands]
    assert wrong(op, operands, out, calls) == []
    assert all(np.array_equal(a, b) for a, b in zip(before, operands, strict=True)), "a peer wrote into an operand"


MATRIX = {
    "matmul": ((8, 9), (9, 7)),
    "matvec": ((8, 9), (9,)),
    "vecmat": ((9,), (9, 7)),
    "batched_matmul": ((2, 3, 8, 9), (2, 3, 9, 7)),
    "transpose": ((8, 9),),
    "outer": ((8,), (9,)),
    "convolve2d": ((12, 13), (3, 3)),
}


@pytest.mark.parametrize("name", MATRIX)
def test_matrix_peers_compute_what_we_do(name):
    op, arena = TABLE[name], Arena((1,))
    operands = tuple(values(("uniform", 0.1, 1.1), shape, i) for i, shape in enumerate(MATRIX[name]))
    keywords = variants(op)[0]
    out = arena.out(op, operands, keywords)
    calls = {OURS: ours(op, operands, keywords, out), **ways(op, operands, keywords, out, arena)}
    assert wrong(op, operands, out, calls) == []


def test_lookup_peers_compute_what_we_do():
    op, arena = TABLE["embedding_lookup"], Arena((1,))
    operands = values(("normal", 0.0, 1.0), (10, 4)), np.array([3, 0, 9, 3])
    out = arena.out(op, operands, {})
    calls = {OURS: ours(op, operands, {}, out), **ways(op, operands, {}, out, arena)}
    assert wrong(op, operands, out, calls) == []


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
def test_attention_peers_compute_what_we_do():
    """A parameter that the op gets does not leave it alone: its default is what peers compute."""
    op, arena = TABLE["attention"], Arena((1,))
    operands = tuple(values(("normal", 0.0, 1.0), (6, heads, 8), i) for i, heads in enumerate((4, 2, 2)))
    out = arena.out(op, operands, {"causal": True})
    calls = ways(op, operands, complete(op, {"causal": True}), out, arena)
    assert list(calls) == ["torch"]
    calls[OURS] = ours(op, operands, {"causal": True}, out)
    assert wrong(op, operands, out, calls) == []


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
def test_peers_are_found_by_name_and_alias_where_nobody_wrote_a_row():
    op, arena = TABLE["ln"], Arena((7, 1000))
    assert op.name not in PEERS and "log" in op.aliases
    operands = arena.operands(op)
    out = arena.out(op, operands, {})
    calls = ways(op, operands, {}, out, arena)
    for name, call in calls.items():
        out.fill(0)
        call()
        np.testing.assert_allclose(out, np.log(operands[0]), rtol=1e-5, atol=1e-6, err_msg=f"{name} writes elsewhere")
    assert list(calls) == ["numpy", "torch"]


def test_a_wrong_peer_is_caught():
    op, arena = TABLE["exp"], Arena((1000,))
    operands = arena.operands(op)
    out = arena.out(op, operands, {})
    calls = {OURS: ours(op, operands, {}, out), "numpy": bind(np.exp2, *operands, out=out), "idle": lambda: None}
    assert wrong(op, operands, out, calls) == ["numpy", "idle"]


def test_a_wrong_position_is_caught():
    op, arena = TABLE["argmax"], Arena((5, 100))
    operands = arena.operands(op)
    out = arena.out(op, operands, {})
    calls = {OURS: ours(op, operands, {}, out), "numpy": bind(np.argmin, *operands, axis=-1, out=out)}
    assert wrong(op, operands, out, calls) == ["numpy"]


def test_results_that_are_returned_count_when_out_was_not_written():
    out = np.zeros(3, np.float32)
    assert results(lambda: np.ones(3), out)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("op", COMPARED, ids=lambda op: op.name)
def test_inputs_lie_in_the_domain(op):
    low, high = op.domain or (-np.inf, np.inf)
    x = values(kind(op), (1000,))
    assert x.dtype == np.float32
    assert x.min() > low
    assert x.max() < high


def test_parameters_are_complete_and_in_order():
    assert complete(TABLE["clamp"], {"max": 2.0, "min": 1.0}) == {"min": 1.0, "max": 2.0}
    assert list(complete(TABLE["gelu"], {})) == ["approximate"]
    assert [v.get("approximate") for v in variants(TABLE["gelu"])] == [None, "none"]
