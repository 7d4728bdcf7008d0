"""Bodies that become one function of the plugin, and bodies that nearly do."""

import pytest
from trueno.ops import TABLE
from trueno.programs import language as lang
from trueno.programs.trace import trace

pytest.importorskip("numba")

from trueno_simd.rows import float32, float64
from trueno_simd.rows.expressions import IDIOMS, expression, matched
from trueno_simd.rows.source import printed


@pytest.mark.parametrize(("dtype", "op"), [(dtype, op) for dtype, ops in IDIOMS.items() for op in ops])
def test_the_body_of_an_op_is_one_function(dtype: str, op: str) -> None:
    assert hasattr({"float32": float32, "float64": float64}[dtype], op)
    program = TABLE[op].program()
    (result,) = program.outputs
    assert expression(program.nodes, result, "v{}".format, dtype) == f"{op}(v0)"
    assert f"v{result} = {op}(v0)" in printed(TABLE[op], dtype, "e", 1)


def test_inside_a_longer_body() -> None:
    """The pattern's operand may be any node; what comes before and after stays."""
    program = trace(lambda x, y: lang.asin(x * y) + y, [("x", "e"), ("y", "e")], (), {})
    pattern = TABLE["asin"].program()
    found = {i: matched(pattern.nodes, pattern.outputs[0], program.nodes, i) for i in range(len(program.nodes))}
    (end,) = [i for i, x in found.items() if x is not None]
    assert program.nodes[found[end]].kind == "mul"
    assert end in program.nodes[program.outputs[0]].args


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y: 2.0 * lang.atan(x / (1.0 + lang.sqrt((1.0 - x) * (1.0 + y)))),  # another operand in one place
        lambda x, y: 2.0 * lang.atan(x / (1.5 + lang.sqrt((1.0 - x) * (1.0 + x)))) + y,  # another constant
        lambda x, y: 3.0 * lang.atan(x / (1.0 + lang.sqrt((1.0 - x) * (1.0 + x)))) + y,
        lambda x, y: lang.sin(x) / lang.cos(y),
        lambda x, y: lang.cos(x) / lang.sin(x) + y,
    ],
)
def test_what_only_resembles_a_body_stays(body: object) -> None:
    program = trace(body, [("x", "e"), ("y", "e")], (), {})
    texts = [
        expression(program.nodes, i, "v{}".format, "float32")
        for i in range(len(program.nodes))
        if program.nodes[i].args
    ]
    assert not [text for text in texts if text.startswith(("asin", "acos", "tan"))]
