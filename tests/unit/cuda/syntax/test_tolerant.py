"""A reader that runs nothing takes any producer's text: what it cannot read is a problem, the rest is there."""

import random

import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tree import Instruction

HEAD = ".version 6.0\n.target sm_30\n.address_size 32\n"
BODY = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .f32 %f<9>;"


def names(source: str, function: str = "k") -> list[str]:
    items = parse(source, tolerant=True).functions[function].body
    return [i.name for i in items if isinstance(i, Instruction)]


@pytest.mark.parametrize("source, expected", [
    (f"{HEAD}.entry k() {{ {BODY} frob.new::x.b32 %r1, %r2; ret; }}", ["frob.new::x.b32", "ret"]),
    (f"{HEAD}.global .texref t; .entry k() {{ {BODY} tex.2d.v4.f32.f32 {{%f1, %f2}}, [t, {{%f1, %f2}}]; ret; }}",
     ["tex.2d.v4.f32.f32", "ret"]),
    (f"{HEAD}.entry k() .newdirective {{ ret; }} .entry j() {{ {BODY} exit; }}", None),
    (f"{HEAD}.entry k() {{ .reg .b128 %q<2>; {BODY} mov.b128 %q1, {{%rd1, %rd2}}; ret; }}", ["mov.b128", "ret"]),
    (f"{HEAD}.entry k() {{ {BODY} mov.u32 %r1, %envreg3; mov.u32 %r2, (1+2)*4; ret; }}",
     ["mov.u32", "mov.u32", "ret"]),
    (f"{HEAD}.newthing foo {{ a; b }}\n.entry k() {{ {BODY} .surprise 3; ret; }}", ["ret"]),
    (f"{HEAD}.entry k() {{ {BODY} mov.u32 %r1, %x; @%r2 bra NOWHERE; ret; }}", ["mov.u32", "bra", "ret"]),
])  # fmt: skip
def test_what_is_unknown_is_kept(source, expected):
    if expected is None:
        assert names(source, "j") == ["exit"]
    else:
        assert names(source) == expected


def test_the_emulator_stays_strict():
    source = f"{HEAD}.entry k() {{ {BODY} mov.u32 %r1, %x; ret; }}"
    with pytest.raises(PtxError, match="address_size"):
        parse(source)
    with pytest.raises(PtxError, match="'%x' is not declared"):
        parse(source.replace("32\n", "64\n", 1))
    assert [str(p) for p in parse(source, tolerant=True).problems] == ["line 4: '%x' is not declared"]


def test_debug_sections_and_positions():
    source = f"""{HEAD}.file 1 "a.cu"
.entry k() {{ {BODY}
.loc 1 7 3
mov.u32 %r1, 1;
.loc 1 8 3, function_name $L__info, inlined_at 1 2 3
ret; }}
.section .debug_str {{ $L__info: .b8 97
.b8 0 }}
.entry j() {{ ret; }}
"""
    program = parse(source, tolerant=True)
    assert not program.problems and list(program.functions) == ["k", "j"] and program.files == {1: "a.cu"}
    assert [i.written for i in program.functions["k"].body] == [(1, 7), (1, 2)]


def test_any_damage_is_read():
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    source = (
        f"{HEAD}.entry k(.param .u64 x) {{ {BODY} L: mov.u32 %r1, 1; {{ add.u32 %r1, %r1, 2; }} @%p1 bra L; ret; }}"
    )
    for _ in range(600):
        damaged = list(source)
        for _ in range(rng.randrange(1, 9)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(3)] = rng.choices('{}();:/*"%.,@ \n#a1', k=rng.randrange(3))
        parse("".join(damaged), tolerant=True)
