"""Tokens lose nothing, and the quick way through a statement reads what the tokens read."""

import random
import re
import sys

import pytest
from seeds import fresh_seed
from trueno_cuda.catalogue import registry
from trueno_cuda.ptx.syntax import declarations, runs
from trueno_cuda.ptx.syntax.errors import InternalError, PtxError
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tokens import Lines, tokens
from trueno_cuda.ptx.syntax.tree import Label

KERNELS = ("softmax", "matmul", "transpose", "argmax", "outer")


def text(name: str) -> str:
    entry = registry.find(name)
    return registry.module(registry.build(entry, "sm_80"))


@pytest.mark.parametrize("name", KERNELS)
def test_tokens_are_the_text(name):
    source = text(name)
    pieces = list(tokens(source))
    assert "".join(t.text for t in pieces) == source
    assert all(source.startswith(t.text, t.start) for t in pieces)
    assert all(t.line == source.count("\n", 0, t.start) + 1 for t in random.sample(pieces, 100))


def test_tokens_of_any_text_are_the_text():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(300):
        source = "".join(rng.choices('/*"\\{}[];:,.%$@!#~ \n\t\x00é0f3Fmov', k=rng.randrange(60)))
        assert "".join(t.text for t in tokens(source)) == source


def test_lines_and_columns():
    lines = Lines("ab\n\ncd\n")
    assert [(lines.line(k), lines.column(k)) for k in range(8)] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 3), (4, 1)]  # fmt: skip
    assert [lines.of(k) for k in range(6)] == ["", "ab", "", "cd", "", ""]


def by_tokens(monkeypatch) -> None:
    """Leave the parser nothing but the tokens."""
    for place, name in ((runs, "PLAIN"), (runs, "CALL"), (declarations, "NUMBERS")):
        monkeypatch.setattr(place, name, re.compile(r"(?!)"))
    monkeypatch.setattr(runs, "ODD_BLANKS", [""])  # every text has it, so none is cut


def body(source: str) -> list[tuple]:
    """Everything of a text's functions that a reader sees."""

    def shown(value) -> str:
        return re.sub(r" object at 0x\w+", "", repr(value))

    return [
        (item.name, item.line) if isinstance(item, Label)
        else (item.name, shown(item.operands), item.line, item.text, item.start, item.negated, item.written,
              shown(item.guard), shown(item.arguments), item.targets)
        for function in parse(source).functions.values() for item in function.body
    ]  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_the_quick_way_reads_what_the_tokens_say(name, monkeypatch):
    source = text(name)
    quick = body(source)
    assert len(quick) > 10
    by_tokens(monkeypatch)
    assert body(source) == quick


@pytest.mark.parametrize("statement", [
    "add.u32 %r1, %r2, %r3 ;", "add.u32 %r1,%r2,-3;", "mov.b64 {%r1, %r2}, %rd1;", "mov.u32 %r1, %tid.x;",
    "ld.global.v2.u32 {%r1,%r2}, [%rd1+-8];", "ld.global.u32 %r1, [ %rd1 + 8 ];", "@!%p1 mov.u32 %r1, 0xFFU;",
    "ld.shared.u32 %r1, [s+4];", "mov.u32 %r1, s;", "add.f32 %f1, %f2, 0f3F800000;", "mov.u32 %r1, 017;",
    "ld.global.u32 %r1, [%rd1+010];", "// a; b\nmov.u32 %r1, 1;", "mov.u32 %r1, /* a; b */ 1;", "@!%p1 ret;", ";;ret;",
    "@%p1\nmov.u32\n%r1,\n1;", "ld.global.v2.u32 { %r1, %r2 }, [%rd1 + 8];", ".pragma \"a;b\";", "{ mov.u32 %r1, 1; }",
    ".loc 1 2 3\nmov.u32 %r1, 1;", "LABEL: mov.u32 %r1, 1;", "@%p1 bra END;", "setp.lt.u32 %p1|%p0, %r1, 5;",
    "call.uni (%r1), f, (%r2, 5);", "call f2;", "call (%r1),\nf\n,(\n%r2,\n%r3\n)\n;", "call.uni f2, ();",
    "{ .reg .b32 t; .param .b64 p0; st.param.b64 [p0+0], %rd1; .param .b32 p1; call.uni f3, (p0); mov.u32 t, %r1; }",
    "{ .reg .b32 %r2; mov.u32 %r2, %r1; { .reg .b32 %r<9>; mov.u32 %r3, %r2; } mov.u32 %r3, %r2; } mov.u32 %r3, %r2;",
    "{" * 63 + "ld.global.u32 %r1, [%rd1];" + "}" * 63,
    "A: // why\n.loc 1 2 3\nmov.u32 %r1, 1;", "A:\n.pragma \"nounroll\";\nbra A;",
    "A: B:\nC: mov.u32 %r1, 1; bra B;", "A: ; B: { mov.u32 %r1, 1; } C: ret;", "A: B: " + "ret;" * 3,
    "@%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1];", "@!%p1 mov.b64 {%r1, %r2}, %rd1;", "mov.b64 {%r1, %r2 }, %rd1 ;",
    ".loc 1 2\nmov.u32 %r1, 1;", ".loc 1 2 3 4\nmov.u32 %r1, 1;", ".loc 1 2 3 // why\nmov.u32 %r1, 1;",
    ".loc 1 2 3 mov.u32 %r1, 1;\nret;", ".loc 1 12345678901 3\nret;", ".loc 1 1_0 3\nret;", ".loc 1 2 3\r\nret;",
    ".loc 1 2 3, function_name A, inlined_at 1 7 3\nmov.u32 %r1, 1;", "// A: B\nA: mov.u32 %r1, 1;",
    ".reg .b32 %r10<3>; mov.u32 %r100, %r102; mov.u32 %r1, %r2;", ".reg .b32 u1; .reg .b32 u<3>; mov.u32 u1, u2;",
    "mov.u32 %r1, %r2; .shared .b8 t[4]; mov.u32 %r1, t; { .shared .b8 s[9]; mov.u32 %r1, s; } mov.u32 %r1, s;",
    "@ %p1 ret;", "mov.b64 {%r1, {%r2, %r3}}, %rd1;",
    "mov.u32 %r1, 18446744073709551615;", "mov.u32 %r1, 00;", "ld.global.u32 %r1, [%rd1+9223372036854775807];",
    "mov.u32 %r1, WARP_SZ;", "bra END;", "setp.lt.u32 %p1, %r1, 5;", "ret;", "mov.f32 %f1, -0f3F800000;",
])  # fmt: skip
def test_one_statement_both_ways(statement, monkeypatch):
    source = f""".version 8.0
.target sm_80
.global .align 4 .b32 table[] = {{1, 2 ,3}}; .global .b8 bytes[4] = {{ 0, 127 }};
.func (.reg .b32 r) f(.reg .b32 a, .reg .b32 b) {{ ret; }} .func f2() {{ ret; }} .func f3(.param .b64 a) {{ ret; }}
.entry k(.param .u64 x) {{ .shared .align 4 .b8 s[8]; .reg .pred %p<2>; .reg .b32 %r<4>; .reg .f32 %f<4>;
.reg .b64 %rd<2>; {statement}
END: ret; }}
"""
    quick = body(source)
    by_tokens(monkeypatch)
    assert body(source) == quick


@pytest.mark.parametrize("statement", [
    "mov.u32 %r1,\v1;", "mov.u32\x1c%r1, 1;", "mov.u32 %r1, \xa01;", "mov.u32 %r1 1;", "ld.global.u32 %r1, [%rd1 8];",
    "mov.u32 %r1, 1, ;", "mov.u32 , %r1, 1;", "@!!%p1 ret;", "@%r1 ret;", "mov.u32 %r1, \"a;\n", "mov.u32 %r1, %r9;",
    "call.uni (%r1, f, (%r2);", "call f, (%r2,);", "call (%r9), f;", "call;", ".param .b99 p0;", ".param .pred p0;",
    ".reg .b32 t; .reg .b32 t;", ".param .b32 p; .param .b32 p;", "mov.u32 %r1, 08;", "mov.u32 %r1, {%r1, };",
    "ld.global.u32 %r1, [%rd1+99999999999999999999];", "A: A: ret;", "A: mov.u32 %r1, %r9;", "@%r1 mov.b32 %r1, 1;",
    "@! mov.u32 %r1, 1;", "L", "L: L2", ".reg .b32 %r<4>;",
    "mov.u32 %r1, 18446744073709551616;", ".loc 1 2 3\nmov.u32 %r1, ;", "mov.u32 %r1, 1; .reg .b32 %r1;",
])  # fmt: skip
def test_one_wrong_statement_both_ways(statement, monkeypatch):
    """Each way refuses it with the same words."""
    source = f""".version 8.0
.target sm_80
.entry k() {{ .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<2>; {statement} ret; }}
"""
    with pytest.raises(PtxError) as quick:
        parse(source)
    by_tokens(monkeypatch)
    with pytest.raises(PtxError) as slow:
        parse(source)
    assert str(quick.value) == str(slow.value) and not isinstance(quick.value, InternalError)


def test_every_blank_of_python_that_is_none_of_ptx_is_known():
    blanks = {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}
    assert set(runs.ODD_BLANKS) == blanks - set(" \t\r\n")
