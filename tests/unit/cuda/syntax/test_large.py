"""Large texts: the memory that parsing takes, and what an error quotes of a long line."""

import gc
import random
import tracemalloc
from pathlib import Path

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tokens import LONG, Lines

COMPILED = Path(__file__).parents[3] / "corpus" / "compiled"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
TIMES, SLACK = 50, 1 << 19
"""Bytes of memory for each byte of the text, and for any text."""


def statements(between: str, count: int) -> str:
    body = between.join(f"add.s32 %r{k % 999}, %r{(k * 7) % 999}, {k};" for k in range(count))
    return f"{HEAD}.entry k() {{ .reg .b32 %r<999>;{between}{body} ret; }}\n"


TEXTS = {
    "by nvcc": lambda: "".join(path.read_text() for path in sorted(COMPILED.glob("*.ptx"))),
    "one line": lambda: statements(" ", 4_000),
    "empty lines": lambda: statements("\n" * 50, 2_000),
    "comments": lambda: statements("\n// a comment\n", 3_000),
    "a long comment": lambda: HEAD + "/*" + "x\n" * 60_000 + "*/.entry k() { ret; }",
    "errors in one line": lambda: HEAD + ".entry k() { " + "mov.u32 %r1, %r2 %r3; " * 5_000 + " }",
    "marks": lambda: HEAD + ".entry k() { .reg .b32 %r<2>; mov.u32 %r1, " + "<" * 100_000 + " %r1; ret; }",
    "escapes": lambda: HEAD + '"' + '\\"' * 60_000,
    "registers": lambda: HEAD + ".entry k() {\n" + "".join(f".reg .b32 a{k}<999>;\n" for k in range(4_000)) + "ret; }",
    "scopes": lambda: HEAD + ".entry k() {\n" + "{ .reg .b32 a<2000>; mov.u32 a1, a2; }\n" * 2_500 + "ret; }",
    "labels": lambda: HEAD + ".entry k() {\n" + "".join(f"LABEL{k}: ret;\n" for k in range(6_000)) + "}",
}


@pytest.mark.parametrize("name", TEXTS)
def test_memory(name):
    text = TEXTS[name]()
    assert len(text) > 80_000
    parse(text, tolerant=True)
    tracemalloc.start()
    try:
        program = parse(text, tolerant=True)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= TIMES * len(text) + SLACK, f"{peak / len(text):.1f} bytes for each of {len(text)}"
    assert held <= peak and program.version >= (8, 0)


def test_what_is_dropped_is_gone_without_the_collector():
    """Nothing of a tree, and nothing of a parser, waits for the garbage collector."""
    text = TEXTS["by nvcc"]()
    parse(text, tolerant=True)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for source in (text, text.replace("mov.u32", "mov.u32 %nothing,")):
            parse(source, tolerant=True)
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()


def test_an_error_quotes_the_beginning_of_a_long_line():
    line = "mov.u32 %r1, " + "1" * 100_000
    with pytest.raises(PtxError) as refused:
        parse(f"{HEAD}.entry k() {{ .reg .b32 %r<2>;\n{line}; }}")
    assert refused.value.text == line[:LONG] + "…" and refused.value.line == 5
    assert len(str(refused.value)) < 2 * LONG + 99


def test_lines_of_any_text():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        text = "".join(rng.choices("a é\r\n\n\x0b\u2028", k=rng.randrange(40)))
        rows, lines = text.split("\n"), Lines(text)
        assert [lines.of(k + 1) for k in range(len(rows))] == [row.strip() for row in rows]
        for at in range(len(text)):
            before = text[:at]
            assert lines.line(at) == before.count("\n") + 1 and lines.column(at) == at - before.rfind("\n")
