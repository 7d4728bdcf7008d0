"""Tracing and lowering: what a body becomes, what it may not do, and that no pass loses or invents a value."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trueno.ops import TABLE, activations
from trueno.ops.op import ALIASES, op
from trueno.programs import language as lang
from trueno.programs.evaluate import evaluate
from trueno.programs.lower import lower
from trueno.programs.program import FOLDS
from trueno.programs.trace import trace

RESIDENCES = ("registers", "cache", "memory")


def program(body, operands="x:e", params=""):
    pairs = [tuple(o.split(":")) for o in operands.split()]
    return trace(body, pairs, params.split(), {})


def kinds(traced):
    return [n.kind for n in traced.nodes]


# ---- what Python would decide at trace time is refused ---------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x if x > 0 else -x,
        lambda x: x and 1.0,
        lambda x: 0 < x < 1,
        lambda x: max(x, 0.0),
        lambda x: min(x, x + 1),
        lambda x: sum(x),
        lambda x: len(x),
        lambda x: [1, 2, 3][x],
        lambda x: float(x),
        lambda x: math.exp(x),
        lambda x: list(x),
        lambda x: lang.where(not (x > 0), x, -x),
    ],
)
def test_python_may_not_look_at_a_symbol(body):
    with pytest.raises(TypeError, match="symbol"):
        program(body)


def test_the_refusal_says_what_to_write():
    with pytest.raises(TypeError, match=r"where\(c, a, b\)"):
        program(lambda x: 1.0 if x > 0 else 0.0)


@pytest.mark.parametrize("other", ["1", None, True, [1.0]])
def test_only_symbols_and_numbers_are_values(other):
    with pytest.raises(TypeError):
        program(lambda x: x + other)
    with pytest.raises(TypeError):
        program(lambda x: lang.maximum(x, other))


def test_a_numpy_scalar_does_not_make_an_object_array():
    traced = program(lambda x: np.float64(2) * x)
    assert kinds(traced) == ["leaf", "const", "mul"]


def test_a_function_needs_a_symbol():
    with pytest.raises(TypeError, match="at least one symbol"):
        program(lambda x: lang.exp(1.0))


@pytest.mark.parametrize("fold", FOLDS)
def test_folding_a_row_value_is_an_error(fold):
    word = getattr(lang, fold)
    with pytest.raises(TypeError, match="is one value per row already"):
        program(lambda x: word(lang.sum(x)))
    with pytest.raises(TypeError, match="is one value per row already"):
        program(lambda x, s: x * word(s), "x:e s:r")
    with pytest.raises(TypeError, match="is one value per row already"):
        program(lambda x, p: x * word(p), params="p")


# ---- nodes -----------------------------------------------------------------------------------------


def test_equal_nodes_are_one():
    traced = program(lambda x: lang.exp(x - lang.max(x)) / lang.sum(lang.exp(x - lang.max(x))))
    assert kinds(traced) == ["leaf", "max", "sub", "exp", "sum", "div"]


def test_order_of_commuting_arguments_does_not_matter():
    a = program(lambda x, y: (x + y) * (y * x), "x:e y:e")
    b = program(lambda x, y: (y + x) * (x * y), "x:e y:e")
    assert a.key == b.key
    assert a.key != program(lambda x, y: (x - y) * (y * x), "x:e y:e").key


def test_names_do_not_enter_the_key_but_kinds_do():
    a = program(lambda x, p: x * p, params="p")
    b = trace(lambda left, factor: left * factor, [("left", "e")], ["factor"], {})
    assert a.key == b.key
    assert a.key != program(lambda x, p: x * p, "x:r", params="p").key


def test_spaces_hoist_what_is_constant_on_a_row():
    traced = program(lambda x, w, s, p: (x * w) * (1.0 / lang.sum(x)) * (p * 2.0) + s, "x:e w:w s:r", "p")
    space = {n.kind: n.space for n in traced.nodes}
    assert space["div"] == "r"
    assert [n.space for n in traced.nodes if n.kind == "mul"].count("u") == 1
    assert traced.nodes[traced.outputs[0]].space == "e"


def test_unused_operands_and_dead_nodes_leave_no_node():
    traced = program(lambda x, y: (lang.exp(y), x + 1.0)[1], "x:e y:e")
    assert kinds(traced) == ["leaf", "const", "add"]
    assert traced.operands == (("x", "e"), ("y", "e"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda x: x * 1.0, ["leaf"]),
        (lambda x: 1.0 * x, ["leaf"]),
        (lambda x: x / 1.0, ["leaf"]),
        (lambda x: x**2, ["leaf", "mul"]),
        (lambda x: x / 4.0, ["leaf", "const", "mul"]),
        (lambda x: x + (lang.exp(x) * 0.0 + (2.0 * 3.0)), ["leaf", "exp", "const", "mul", "const", "add", "add"]),
        (lambda x: lang.where(x != x, 0.0, x), ["leaf", "isnan", "const", "where"]),
    ],
)
def test_rewrites_that_hold_for_every_value(body, expected):
    assert kinds(program(body)) == expected


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (lambda x: x + 0.0, "add"),  # −0 + 0 is 0
        (lambda x: x - 0.0, "sub"),
        (lambda x: x * 0.0, "mul"),  # Inf · 0 is NaN
        (lambda x: x - x, "sub"),  # Inf − Inf
        (lambda x: x / x, "div"),
        (lambda x: x / 3.0, "div"),  # 1/3 is rounded
        (lambda x: x / 6.0, "div"),
        (lambda x: x**0.5, "pow"),  # (−0)^½ is 0, √−0 is −0
        (lambda x: -(0.0 - x), "sub"),
        (lambda x: lang.exp(lang.log(x)), "log"),
        (lambda x: lang.where(x > x, 1.0, 0.0), "gt"),
        (lambda x: lang.maximum(x, x), "maximum"),
    ],
)
def test_rewrites_that_assume_finite_values_are_not_made(body, kept):
    assert kept in kinds(program(body))


def test_the_two_zeros_are_two_constants():
    traced = program(lambda x: (lang.copysign(x, 0.0), lang.copysign(x, -0.0)))
    plus, minus = evaluate(traced, [np.array([3.0])], [], np.float64)
    assert plus[0, 0] == 3
    assert minus[0, 0] == -3


def test_constants_keep_float64_until_they_are_printed():
    traced = program(lambda x: x * (1.0 / 3.0))
    assert any(n.value == 1.0 / 3.0 for n in traced.nodes)


def test_what_cannot_be_folded_is_left_to_ieee_arithmetic():
    traced = program(lambda x, p: x + 1.0 / (p * 0.0), params="p")
    assert "div" in kinds(traced)


def test_parameters_are_rounded_to_the_dtype():
    traced = program(lambda x, p: x * p, params="p")
    (got,) = evaluate(traced, [np.ones(1, np.float32)], [0.1], np.float32)
    assert got.dtype == np.float32
    assert got[0, 0] == np.float32(0.1)


# ---- declaration -----------------------------------------------------------------------------------


def test_a_name_is_declared_once():
    def relu(x):
        return x

    with pytest.raises(ValueError, match="relu is declared twice"):
        op("x[...] -> y[...]")(relu)
    with pytest.raises(ValueError, match="swish is declared twice"):
        op("x[...] -> y[...]", aliases="swish")(lambda x: x)
    TABLE.pop("<lambda>", None)
    again = dict(vars(activations))
    with pytest.raises(ValueError, match="relu is declared twice"):
        exec("\n" * 1000 + '@op("x[...] -> y[...]")\ndef relu(x):\n    return x\n', again)  # further down in its module


def test_parameters_need_an_annotation():
    def nameless(x, *, eps=1.0):
        return x + eps

    with pytest.raises(TypeError, match="eps needs an annotation"):
        op("x[...] -> y[...]")(nameless)
    assert "nameless" not in TABLE


def test_aliases_lead_to_ops():
    assert set(ALIASES.values()) <= set(TABLE)
    assert not set(ALIASES) & set(TABLE)
    assert {"log", "sign", "reciprocal", "frac", "var", "std", "clip", "swish"} <= set(ALIASES)


def test_static_parameters_choose_the_program():
    gelu = TABLE["gelu"]
    assert "erf" in kinds(gelu.program(approximate="none"))
    assert "erf" not in kinds(gelu.program())
    assert gelu.program().key == gelu.program(approximate="tanh").key


# ---- passes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "passes"),
    {
        "relu": 1, "gelu": 1, "clamp": 1, "sum": 1, "dot": 1, "norm_l2": 1, "argmax": 1, "mean": 1,
        "variance": 2, "covariance": 2, "correlation": 2, "rms_norm": 2, "residual_rms_norm": 2,
        "normalize": 2, "minmax_normalize": 2, "softmax": 3, "log_softmax": 3, "layer_norm": 3, "zscore": 3,
    }.items(),
)  # fmt: skip
@pytest.mark.parametrize("residence", RESIDENCES)
def test_number_of_passes(name, passes, residence):
    assert len(lower(TABLE[name].program(), residence).passes) == passes


def test_softmax_keeps_its_exponentials_in_cache_and_recomputes_them_from_memory():
    traced = TABLE["softmax"].program()
    exp = kinds(traced).index("exp")
    cache, memory = lower(traced, "cache"), lower(traced, "memory")
    assert (0, exp) in cache.passes[1].stores
    assert (exp, 0) in cache.passes[2].loads
    assert exp in memory.passes[2].body


def test_residual_reloads_the_sum_and_may_not_overwrite_what_it_still_reads():
    traced = TABLE["residual_rms_norm"].program()
    plan = lower(traced)
    h = traced.outputs[0]
    assert (h, 0) in plan.passes[1].loads
    assert not {source for _, source in plan.passes[1].loads} & {"x", "residual"}
    assert plan.hazards == {(0, "w")}


def test_hazards_name_what_a_later_pass_still_reads():
    traced = program(lambda x, y: (x + y, lang.sum(x + y) * x), "x:e y:e")
    assert lower(traced).hazards == {(0, "x")}
    assert lower(TABLE["layer_norm"].program(), "memory").hazards == frozenset()
    assert lower(TABLE["add"].program()).hazards == frozenset()


def test_row_outputs():
    plan = lower(program(lambda x: (x - lang.mean(x), lang.mean(x))))
    assert plan.row_outputs == (1,)


# ---- any program, executed pass by pass --------------------------------------------------------------

FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "maximum": np.maximum, "minimum": np.minimum, "tanh": np.tanh, "lt": np.less, "where": np.where,
    "isnan": np.isnan, "exp": np.exp, "log1p": np.log1p,
}  # fmt: skip
ROW_FUNCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "argmax": np.argmax}


def execute(plan, operands, params, rows, n, outs):
    """Run a plan as a printed kernel would: whatever a pass does not load or compute, it does not have."""
    nodes = plan.program.nodes
    fixed = {}  # values of the spaces u and r: they survive from pass to pass
    for i, node in enumerate(nodes):
        if node.kind == "param":
            fixed[i] = np.float64(params[node.value])
        elif node.kind == "const":
            fixed[i] = np.float64(node.value)
        elif node.kind == "count":
            fixed[i] = np.float64(n)
        elif node.kind == "leaf" and node.space == "r":
            fixed[i] = operands[node.value][:, None]

    def compute(i, values):
        assert i not in values, "computed twice"
        values[i] = FUNCTIONS[nodes[i].kind](*(values[a] if a in values else fixed[a] for a in nodes[i].args))

    for sweep in plan.passes:
        for i in sweep.before:
            compute(i, fixed)
        values = {}
        for i, source in sweep.loads:
            array = operands[source] if isinstance(source, str) else outs[source]
            values[i] = np.array(np.broadcast_to(array, (rows, n)), order="C")  # C: sums in the oracle's order
        for i in sweep.body:
            compute(i, values)
        for i in sweep.folds:
            fixed[i] = ROW_FUNCTIONS[nodes[i].kind](values[nodes[i].args[0]], axis=-1, keepdims=True)
        for k, i in sweep.stores:
            outs[k][...] = values[i]
    for i in plan.tail:
        compute(i, fixed)
    for k in plan.row_outputs:
        outs[k][...] = np.broadcast_to(fixed[plan.program.outputs[k]], (rows, 1))[:, 0]
    return outs


@st.composite
def bodies(draw):
    """A body as instructions over a growing list of values; folds only of element values."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from([
                    "add", "sub", "mul", "div", "neg", "abs", "maximum", "tanh", "exp", "log1p", "where", "number",
                    "count", "sum", "max", "min", "sum", "max",
                ]),
                st.integers(0, 99), st.integers(0, 99), st.integers(0, 99),
            ),
            min_size=1, max_size=14,
        )
    )  # fmt: skip
    outputs = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))

    def body(x, y, w, s, p):
        values = [x, y, w, s, p]
        for kind, i, j, k in steps:
            a, b, c = (values[q % len(values)] for q in (i, j, k))
            if kind == "number":
                values.append(a * (i / 10 - 4))
            elif kind == "where":
                values.append(lang.where(a < b, b, c))
            elif kind == "count":
                values.append(a + lang.count(x))
            elif kind in ROW_FUNCTIONS:
                element = a.builder.nodes[a.index].space == "e"
                values.append(getattr(lang, kind)(a if element else x + a))
            elif kind in ("add", "sub", "mul", "div"):
                values.append({"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}[kind])
            elif kind == "maximum":
                values.append(lang.maximum(a, b))
            elif kind == "neg":
                values.append(-a)
            else:
                values.append(getattr(lang, kind)(a))
        return tuple(values[-1 - q % len(values)] for q in outputs)

    return program(body, "x:e y:e w:w s:r", "p")


@pytest.mark.parametrize("residence", RESIDENCES)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_kept_value_is_gone_once_its_home_has_its_own(residence, swapped):
    def body(x):
        e = lang.exp(x)
        early = e * lang.sum(e)
        late = e * lang.sum(lang.abs(early))
        return (late, early) if swapped else (early, late)

    x = np.linspace(-1, 1, 10).reshape(2, 5)
    traced = program(body)
    outs = execute(lower(traced, residence), {"x": x}, {}, 2, 5, [np.empty((2, 5)), np.empty((2, 5))])
    for got, expected in zip(outs, evaluate(traced, [x], [], np.float64), strict=True):
        np.testing.assert_array_equal(got, expected)


@settings(max_examples=400, deadline=None)
@given(traced=bodies(), rows=st.integers(1, 3), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_any_program_executed_pass_by_pass_is_its_meaning(traced, rows, n, seed):
    rng = np.random.default_rng(seed)
    operands = {
        "x": rng.normal(size=(rows, n)), "y": rng.normal(size=(rows, n)),
        "w": rng.normal(size=n), "s": rng.normal(size=rows),
    }  # fmt: skip
    operands["y"][rng.random((rows, n)) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    params = {"p": 0.7}
    with np.errstate(all="ignore"):
        want = evaluate(traced, list(operands.values()), [0.7], np.float64)
        for residence in RESIDENCES:
            plan = lower(traced, residence)
            empty = [np.full(w.shape, 1e77) for w in want]
            for got, expected in zip(execute(plan, operands, params, rows, n, empty), want, strict=True):
                np.testing.assert_array_equal(got, expected)
            for k, o in enumerate(traced.outputs):
                for name in ("x", "y"):
                    if traced.nodes[o].space != "e" or (k, name) in plan.hazards:
                        continue
                    shared = {**operands, name: operands[name].copy()}
                    outs = [np.full(w.shape, 1e77) for w in want]
                    outs[k] = shared[name]  # in place
                    for got, expected in zip(execute(plan, shared, params, rows, n, outs), want, strict=True):
                        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("residence", RESIDENCES)
def test_every_node_is_computed_where_its_arguments_are_known(residence):
    for row in TABLE.values():
        if row.structured:
            continue
        plan = lower(row.program(), residence)
        reads = {source for sweep in plan.passes for _, source in sweep.loads if isinstance(source, str)}
        assert reads == {n.value for n in plan.program.nodes if n.kind == "leaf" and n.space == "e"}
        stored = [k for sweep in plan.passes for k, i in sweep.stores if i == plan.program.outputs[k]]
        assert sorted([*stored, *plan.row_outputs]) == list(range(len(plan.program.outputs)))


def test_a_table_whose_import_was_cut_off_is_imported_again():
    """Ctrl-C in the middle of a family's module leaves the ops before it declared."""
    program = """
import sys
count = 0
def cut_off(frame, event, _):
    global count
    count += event == "return" and frame.f_code.co_name == "declare"
    if count == 60:
        sys.setprofile(None)
        raise KeyboardInterrupt
sys.setprofile(cut_off)
try:
    import trueno
    trueno.add
except KeyboardInterrupt:
    assert count == 60 and "trueno.ops" not in sys.modules
import numpy as np
assert trueno.dot(np.ones(3), np.ones(3)) == 3 and len(trueno.ops.TABLE) > 90
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
