"""Invalid arguments: whatever a parameter, an axis or an operand gets, the error is ours and says which."""

from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

import numpy as np
import pytest
import trueno
from trueno.errors import DtypeError, OutOfMemory, ParameterError, ShapeError, TruenoError
from trueno.ops import TABLE
from trueno.testing.cases import keywords
from trueno.testing.layouts import user_shapes

F = np.float32


class Hostile:
    """Raises whatever is asked of it."""

    def refuse(self, *_):
        raise ZeroDivisionError("hostile")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = __repr__ = __str__ = refuse
    __float__ = __index__ = __int__ = __len__ = refuse


class Liar:
    """Answers with an invalid object."""

    def answer(self, *_):
        return "yes"

    __eq__ = __bool__ = __hash__ = __float__ = __index__ = __int__ = __repr__ = answer


class Agreeing(str):
    """A text that is equal to every text."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


GARBAGE = {
    "array": np.array([1.0, 2.0]),
    "one in an array": np.array([1.0]),
    "array of texts": np.array(["q8", "f32"]),
    "empty array": np.empty(0),
    "large whole number": 10**400,
    "larger": 10**5000,
    "negative": -(10**5000),
    "bytes": b"1",
    "bytearray": bytearray(b"1"),
    "memoryview": memoryview(b"1"),
    "complex": 1j,
    "complex64": np.complex64(1),
    "text": "no such",
    "text of a number": "1",
    "surrogate": "\ud800",
    "None": None,
    "list": [1.0],
    "set": {1},
    "dict": {},
    "type": float,
    "object": object(),
    "NaT": np.datetime64("NaT", "s"),
    "hostile": Hostile(),
    "liar": Liar(),
    "masked": np.ma.masked,
}


def operands(op):
    if not op.structured:
        return [np.full(s, 0.5, F) for s in user_shapes(op, op.layout, 3, 8)]
    static = {p.name: p.typical for p in op.static}
    sizes = {symbol: 4 for spec in op.signature.inputs for symbol in spec.dims}
    return [np.zeros(s, spec.holds(F)) for spec, s in zip(op.signature.inputs, op.held(sizes, static), strict=True)]


def parameters(op):
    along = ("axis",) if op.over and not op.structured else ()
    return [*(p.name for p in op.params), *along, *(("keepdims",) if op.reduces and not op.structured else ())]


@pytest.mark.parametrize("backend", ["reference", "scalar"])
@pytest.mark.parametrize("name", [name for name, op in TABLE.items() if parameters(op)])
def test_a_parameter_that_is_none_is_named(backend, name):
    if backend == "scalar":
        pytest.importorskip("trueno_scalar")
    op = TABLE[name]
    good = keywords(op)[0]
    with trueno.use(backend):
        for parameter in parameters(op):
            for what, value in GARBAGE.items():
                if value is None and (parameter == "axis" or op.quantized):
                    continue
                with pytest.raises(ParameterError) as caught:
                    getattr(trueno, name)(*operands(op), **good | {parameter: value})
                message = str(caught.value)
                assert message.startswith(f"{name}: ") and len(message) < 600, (what, message)
                assert parameter in message or "blocks are bytes" in message, (what, message)
                with pytest.raises(TruenoError):
                    trueno.explain(name, *operands(op), **good | {parameter: value})


@pytest.mark.parametrize("value", [Fraction(1, 2), Decimal("0.5"), np.float16(0.5), np.array(0.5), np.float64(0.5)])
def test_what_is_a_number_is_taken(value):
    assert trueno.scale(np.ones(3, F), value).tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("name", list(TABLE))
def test_an_operand_that_is_none_is_named(name):
    op = TABLE[name]
    with trueno.use("reference"):
        for k, spec in enumerate(op.signature.inputs):
            for what, value in GARBAGE.items():
                arrays = operands(op)
                arrays[k] = value
                numbers = ("array", "one in an array", "empty array", "list")
                if what in numbers or (spec.index and what in ("bytearray", "memoryview")):  # which may fit
                    continue
                with pytest.raises(TruenoError) as caught:
                    getattr(trueno, name)(*arrays, **keywords(op)[0])
                assert str(caught.value).startswith(f"{name}: ") and len(str(caught.value)) < 600, (spec.name, what)


@pytest.mark.parametrize("name", ["gelu", "convolve2d", "quant_matvec"])
def test_a_choice_is_one_of_the_table(name):
    """A plan for a value that no op takes is not kept, and a text that equals everything is not a value."""
    op = TABLE[name]
    parameter = "mode" if name == "convolve2d" else op.static[-1].name
    options = {p.name: p.typical for p in op.static}
    with pytest.raises(ParameterError, match=parameter):
        getattr(trueno, name)(*operands(op), **options | {parameter: Agreeing("nonsense")})
    with pytest.raises(ParameterError, match=parameter):
        getattr(trueno, name).plan(*operands(op), **options | {parameter: np.array(["a", "b"])})
    from trueno.dispatch.state import current

    table = getattr(current.get(), f"f4_{name}")
    before = len(table)
    for i in range(3):
        with pytest.raises(ParameterError):
            getattr(trueno, name)(*operands(op), **options | {op.static[0].name: f"nonsense {i}"})
    assert len(table) == before


def test_a_text_of_a_subclass_is_the_text():
    x = np.ones(3, F)
    for text in (np.str_("none"), Agreeing("none"), StrEnum("Kind", {"NONE": "none"}).NONE):
        np.testing.assert_array_equal(trueno.gelu(x, approximate=text), trueno.gelu(x, approximate="none"))


def test_shapes_come_before_memory():
    tall, wide = np.ones((2, 2), F), np.ones((0, 1 << 40), F)
    with pytest.raises(ShapeError, match=r"matmul: .*k.* is 0"):
        trueno.matmul(tall, wide)
    with pytest.raises(
        OutOfMemory, match=r"matmul: there is no room for c, float32 of shape \(2, 1152921504606846976\)"
    ):
        trueno.matmul(np.ones((2, 0), F), np.ones((0, 1 << 60), F))
    column, row = np.broadcast_to(F(1), (1 << 40, 1)), np.broadcast_to(F(1), (1, 1 << 40))
    with pytest.raises(OutOfMemory, match="add: there is no room for z"):
        trueno.add(column, row)


@pytest.mark.parametrize("backend", ["reference", "scalar", "simd"])
def test_a_whole_number_past_every_float(backend):
    if backend != "reference":
        pytest.importorskip(f"trueno_{backend}")
    x = np.ones(3, F)
    with (
        trueno.use(backend),
        pytest.raises(ParameterError, match=r"scale: factor is a whole number of 1329 bits, which"),
    ):
        trueno.scale(x, 10**400)
    with trueno.use(backend), pytest.raises((ParameterError, DtypeError), match=r"add: .*1329 bits"):
        trueno.add(x, 10**400)
