"""The printed text, without a device: that it is portable, the same every time, and no longer than need be."""

import re
import struct
from itertools import product

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.errors import KernelError
from trueno.ops import TABLE
from trueno.programs.program import ELEMENTS
from trueno.programs.program import FOLDS as FOLD_KINDS
from trueno.testing.case import keywords
from trueno.testing.expected import split

printer = pytest.importorskip("trueno_wgpu.rows.printer", reason="trueno-wgpu is not installed")
from trueno_wgpu.device.shader import shared_bytes  # noqa: E402
from trueno_wgpu.rows.expressions import EXPRESSIONS  # noqa: E402
from trueno_wgpu.rows.folds import FOLDS, PACK  # noqa: E402
from trueno_wgpu.rows.prelude import prelude  # noqa: E402
from trueno_wgpu.rows.rowprogram import kernel, refusal  # noqa: E402
from trueno_wgpu.rows.source import is_flat, planned, printed, shaders  # noqa: E402

ROWS = [op for op in TABLE.values() if not op.structured]
SCHEDULES = ("rows8", "rows64", "rows256", "long")
RESERVED = {"as", "async", "await", "class", "default", "do", "enum", "export", "filter", "final", "finally", "from",
            "get", "goto", "impl", "import", "in", "match", "module", "move", "mut", "new", "of", "operator", "out",
            "package", "pass", "private", "pub", "ref", "self", "set", "shared", "signed", "static", "std", "super",
            "target", "this", "throw", "type", "typeof", "union", "unsafe", "unsigned", "using", "volatile", "with",
            "write", "yield", "null", "nil"}  # fmt: skip
"""Words that WGSL keeps for later and that a printer may stumble upon."""


def texts(op, guarded=False):
    for given in keywords(op):
        static = tuple(split(op, given)[1].items())
        flat = is_flat(op.program(**dict(static)))
        for schedule in ("flat",) if flat else SCHEDULES:
            yield from shaders(planned(op.program(**dict(static))), op.name, schedule, guarded, ())


def code(text):
    return re.sub(r"//.*", "", text)


def test_every_kind_has_a_text():
    assert EXPRESSIONS.keys() == ELEMENTS.keys()
    assert FOLDS.keys() == FOLD_KINDS.keys()
    assert all(fold.type in PACK for fold in FOLDS.values())


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_text_is_portable(op):
    """What naga and Tint disagree about, what drivers break, and what a device need not have, is not in it."""
    for guarded in (False, True):
        for found in texts(op, guarded):
            shader, text = found.shader, code(found.shader.source)
            assert "enable" not in text and "return;" not in text
            names = set(re.findall(r"\b(?:let|var|const|fn)(?:<[^>]*>)? (\w+)", text))
            assert not names & RESERVED, names & RESERVED
            assert not re.search(r"\b(inf|nan)\b|0x7fc00000", re.sub(r"u\.(inf|nan)\b|(inf|nan): f32", "", text))
            assert len(shader.writes) == len(found.slots) <= 8 and shared_bytes(shader) <= 16 << 10
            assert text.count("atomicOr(&status") == (guarded and "bad |=" in text)
            assert not re.search(
                r"(?<![\w.])(?:exp|exp2|log|log2|tanh|pow|sin|cos|atan|fract|sign|min|max|sqrt|inverseSqrt|round|floor)\(v\d",
                text,
            )
            assert set(re.findall(r"fn (\w+)\(", text)) == needed(text) | {"main"}


def needed(text):
    """Functions that `main` reaches."""
    bodies = dict(re.findall(r"^fn (\w+)(\(.*?)(?=^fn |^const |^@compute|\Z)", text, re.S | re.M))
    found, todo = set(), re.findall(r"\b(\w+)\(", text.split("@compute")[1].split("\n", 1)[1])
    while todo:
        name = todo.pop()
        if name in bodies and name not in found and name != "main":
            found.add(name)
            todo += re.findall(r"\b(\w+)\(", bodies[name].split("{", 1)[1])
    return found


def test_the_same_text_every_time():
    for name, schedule in (("softmax", "rows64"), ("layer_norm", "long"), ("pow", "flat")):
        op = TABLE[name]
        assert printed(op, op.layout, schedule=schedule) == printed(op, op.layout, schedule=schedule)


def test_only_what_is_used_is_printed():
    assert "fn " not in code(printed(TABLE["add"], "ee")).split("@compute")[0]
    assert prelude("nothing(1)") == ""
    assert "safe_tanh" not in printed(TABLE["exp"], "e")


@pytest.mark.parametrize(
    "value", [1.0, 0.1, -0.044715, 2.0**-149, 1e-40, 1e10, 3.4028235e38, 16777217.0, 1 / 3, 1e9, -7.0]
)
def test_constants_are_the_nearest_float32(value):
    text = printer.literal(printer.float32(value))
    if text.startswith("bitcast"):
        (back,) = struct.unpack("f", struct.pack("I", int(text[13:23], 16)))
    else:
        assert re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?f", text), text
        back = float(np.float32(text[:-1]))
    assert back == float(np.float32(value))


@pytest.mark.parametrize("alias", [(), (0, 0, 2), (0, 1, 0), (0, 0, 0)])
def test_arrays_that_share_a_buffer_are_bound_once(alias):
    text = printed(TABLE["add"], "ee", alias=alias)
    bound = re.findall(r"var<storage, (\w+)> (\w+)", text)
    assert len(bound) == len({name for _, name in bound}) == (len(set(alias)) if alias else 3)
    assert [access for access, _ in bound].count("read_write") == 1


def test_regrouping_is_hidden_from_compilers():
    """c·(x·x·x) as the program says; and nothing cancels: (x + y) − x is not y where x is Inf."""
    text = printed(TABLE["gelu"], "e", (("approximate", "tanh"),))
    assert re.search(r"let v2 = v0 \* hide\(v1\);", text) and re.search(r"= hide\(v2\) \* c3;", text)
    assert re.search(r"= v0 \+ v4;", text), "a product that is added may contract"


def test_refusals():
    def call(op, layout, guarded=False):
        return Call(op, np.dtype(np.float32), layout, 1, (5,), (), "wgpu", guarded)

    for op, guarded in product(ROWS, (False, True)):
        assert refusal(call(op, op.layout, guarded)) is None, op.name
    wide = Wide(8)
    assert refusal(call(wide, "e" * 8)).code == "unsupported_op"
    assert refusal(call(Wide(7), "e" * 7)) is None
    assert "9 buffers" in refusal(call(Wide(7), "e" * 7, True)).detail
    with pytest.raises(KernelError, match=r"sum of 8 on wgpu: .* 9 buffers; a shader binds 8"):
        kernel(None, call(wide, "e" * 8))


class Wide:
    """A sum of many operands."""

    def __init__(self, count):
        self.name, self.count = f"sum of {count}", count

    def program(self, layout, **static):
        from trueno.programs.trace import trace

        def body(**xs):
            first, *others = xs.values()
            for x in others:
                first = first + x
            return first

        return trace(body, [(f"x{i}", kind) for i, kind in enumerate(layout)], (), {})
