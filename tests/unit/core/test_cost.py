"""The cost model: work from the key alone, classes from programs, predictions that move as they should."""

import math

import numpy as np
import pytest
from trueno.discovery.protocol import Call, Rates
from trueno.ops import TABLE
from trueno.programs.program import ELEMENTS, FOLDS
from trueno.select import calibration, cost
from trueno.select.predict import predict

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
PLAIN = Rates(1e-6, 1e9, 1e9)


@pytest.fixture(autouse=True)
def nothing_measured():
    calibration.hold([])
    yield
    calibration.forget()


def call(name, sizes, rank=None, dtype=F4, layout=None, **more):
    op = TABLE[name]
    rank = rank or max(len(op.signature.inputs[0].dims), 1)
    more.setdefault("static", tuple((p.name, p.typical) for p in op.static))
    return Call(op, dtype, layout or op.layout, rank, sizes, **more)


def near(found, wanted):
    return found == pytest.approx(wanted, rel=1e-6)


def test_a_size_class_stands_for_its_middle():
    assert cost.elements(0) == 0
    assert cost.elements(1) == 1
    for size in range(2, 40):
        assert 2 ** (size - 1) <= cost.elements(size) < 2**size


def test_row_programs_read_each_operand_once():
    n = cost.elements(20)
    work = cost.work(call("add", (20,)))
    assert work == (n, 12 * n, 3, 12 * n, n)
    assert cost.work(call("add", (20,), dtype=F8)).bytes == 24 * n
    scalar = cost.work(call("add", (20,), layout="eu"))
    assert near(scalar.bytes, 8 * n + 4)


def test_rows_are_as_many_as_elements_allow():
    n = cost.elements(24)
    work = cost.work(call("argmax", (24,), rank=2))
    assert work.elements == n
    assert near(work.bytes, 4 * n + 8 * n / cost.LONGEST_ROW)  # positions are int64
    one = cost.work(call("argmax", (24,), rank=1))
    assert near(one.bytes, 4 * n + 8)


def test_products_of_equal_sizes_are_square():
    n = math.sqrt(cost.elements(20))
    assert near(cost.work(call("matmul", (20, 20))).flops, 2 * n**3)
    assert near(cost.work(call("matmul", (20, 20))).bytes, 4 * 3 * n**2)


@pytest.mark.parametrize("name, shapes", [
    ("matmul", ((700, 300), (300, 900))),
    ("matmul", ((96, 96), (96, 12))),
    ("matvec", ((700, 3000), (3000,))),
    ("vecmat", ((3000,), (3000, 48))),
    ("outer", ((700,), (50,))),
    ("transpose", ((700, 600),)),
    ("batched_matmul", ((8, 12, 48, 48), (8, 12, 48, 48))),
    ("batched_matmul", ((48, 48), (48, 48))),
    ("convolve2d", ((700, 800), (5, 5))),
    ("symmetric_eigen", ((90, 90),)),
])  # fmt: skip
def test_structured_work_is_near_the_truth(name, shapes):
    """Extents are guessed from size classes, of which each may be 1.5 times off: within a factor, not exact."""
    op = TABLE[name]
    sizes = tuple(math.prod(s).bit_length() for s in shapes)
    work = cost.work(call(name, sizes, rank=len(shapes[0])))
    symbols, leading = op.signature.bind(name, shapes)
    true = op.flops(symbols, math.prod(leading))
    if name == "batched_matmul":
        assert true / 3 <= work.flops <= 6 * true  # how many matrices there are, sizes do not say
    else:
        assert true / 3 <= work.flops <= 3 * true
    results = [math.prod(s) for s in op.result_shapes(shapes, {p.name: p.typical for p in op.static})]
    arrays = sum(map(math.prod, shapes)) + sum(results)
    assert arrays * 4 / 3 <= work.moved <= arrays * 4 * 3
    assert work.arrays == len(shapes) + len(results)
    largest = max(*map(math.prod, shapes), *results)
    assert largest / 3 <= work.elements <= largest * 3


def test_blocks_are_counted_as_elements_and_moved_as_bytes():
    n, k = 4096, 11008
    rows = n * k * 4.5 / 8
    work = cost.work(call("quant_matvec", (int(rows).bit_length(), k.bit_length())))
    assert 2 * n * k / 2 <= work.flops <= 2 * n * k * 2
    assert rows / 2 <= work.bytes <= rows * 2
    whole = cost.work(call("dequantize", (int(rows).bit_length(),)))
    assert near(whole.bytes, whole.elements * (4 + 4.5 / 8))
    packed = cost.work(call("quantize_rows", ((n * k).bit_length(),)))
    assert near(packed.bytes, packed.elements * (4 + 4.5 / 8))


def test_a_lookup_reads_only_what_it_looks_up():
    few = cost.work(call("embedding_lookup", (25, 4)))
    assert few.bytes < few.moved / 100
    assert few.moved >= 4 * cost.elements(25)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_op_has_work_at_every_size(name):
    op = TABLE[name]
    count = len(op.signature.inputs) if op.structured else 1
    last = (0.0, 0.0)
    for size in (0, 1, 2, 5, 10, 20, 30, 40):
        work = cost.work(call(name, (size,) * count))
        assert all(math.isfinite(v) and v >= 0 for v in work)
        assert (work.flops, work.bytes) >= last
        last = work.flops, work.bytes
        assert cost.band(call(name, (size,) * count)) in cost.BANDS
    assert last[1] > 0


def test_one_size_serves_all_operands():
    """A key may hold the first operand's size only."""
    assert cost.work(call("matmul", (20,))) == cost.work(call("matmul", (20, 20)))


def test_classes_are_few_and_follow_the_program():
    classes = {name: cost.op_class(op) for name, op in TABLE.items()}
    assert classes["add"] == "elementwise plain"
    assert classes["pow"] == "elementwise pow"
    assert classes["gelu"] == classes["exp"] == "elementwise exp"
    assert classes["ln"] == "elementwise log"
    assert classes["sum"] == classes["mean"] == classes["norm_l2"] == "fold plain"  # a root a row is not heavy
    assert classes["argmax"] == "fold position"
    assert classes["softmax"] == "row exp"
    assert classes["layer_norm"] == "row plain"
    assert classes["matmul"] == "matmul"
    forms = {c.split()[0] for name, c in classes.items() if not TABLE[name].structured}
    assert forms <= {"elementwise", "fold", "row"}
    assert len({c for name, c in classes.items() if not TABLE[name].structured}) <= 12


def test_groups_name_kinds_that_exist():
    assert set(cost.GROUPS) <= ELEMENTS.keys() | FOLDS.keys()


def test_bands_cover_every_size():
    assert list(cost.BANDS.values()) == sorted(cost.BANDS.values())
    found = [cost.band(call("add", (size,))) for size in range(1, 60)]
    assert list(dict.fromkeys(found)) == list(cost.BANDS)


def test_prediction_is_launch_and_the_larger_bound():
    n = cost.elements(20)
    assert near(predict(call("add", (20,)), "x", Rates(1e-6, 1e9, 1e15)).seconds, 1e-6 + n / 1e9)
    assert near(predict(call("add", (20,)), "x", Rates(1e-6, 1e15, 1e9)).seconds, 1e-6 + 12 * n / 1e9)
    assert predict(call("add", (20,)), "x", PLAIN).source == "declared"


def test_a_link_is_paid_for_host_arrays_only():
    linked, n = Rates(1e-6, 1e12, 1e12, 1e-5, 1e9), cost.elements(20)
    here = predict(call("add", (20,)), "x", linked).seconds
    there = predict(call("add", (20,), residency="x"), "x", linked).seconds
    assert near(here - there, 3e-5 + 12 * n / 1e9)


def test_measured_speeds_go_before_declared_ones():
    row = calibration.Row("x", "elementwise plain", "float32", "large", Rates(0.5, 1e9, 1e9), 3, 0.0, "2026-01-01")
    calibration.hold([row])
    estimate = predict(call("add", (20,)), "x", PLAIN)
    assert estimate.source == "measured"
    assert estimate.seconds > 0.5
    assert predict(call("add", (20,)), "y", PLAIN).source == "declared"
    assert predict(call("add", (20,), dtype=F8), "x", PLAIN).source == "declared"
    assert predict(call("add", (20,)), "x", Rates(-1, 0, 0)).source == "measured"  # what is declared is not needed


@pytest.mark.parametrize("rates, said", [
    (Rates(math.nan, 1, 1), "launch_s is nan"),
    (Rates(-1e-6, 1, 1), "launch_s is -1e-06"),
    (Rates(math.inf, 1, 1), "launch_s is inf"),
    (Rates(0, 0, 1), "flops is 0"),
    (Rates(0, math.inf, 1), "flops is inf"),
    (Rates(0, 1, -5), "bytes is -5"),
    (Rates(0, 1, math.nan), "bytes is nan"),
    (Rates(0, "fast", 1), "flops is 'fast'"),
    (Rates(0, True, 1), "flops is True"),
    (Rates(0, 1, 1, math.inf), "link_s is inf"),
    (Rates(0, 1, 1, 0, 0), "link_bytes is 0"),
    (None, "returned NoneType"),
    ((1, 2, 3), "returned tuple"),
])  # fmt: skip
def test_bad_speeds_are_a_sentence(rates, said):
    with pytest.raises(ValueError, match=r"^liar: rates") as error:
        predict(call("add", (20,)), "liar", rates)
    assert said in str(error.value)
    assert "it must be" in str(error.value)


def test_good_speeds_are_taken():
    assert cost.refuse(Rates(0, 1e9, 1e9)) == ""
    assert cost.refuse(Rates(0, np.float64(1e9), np.float32(1e9), 1e-6, math.inf)) == ""
