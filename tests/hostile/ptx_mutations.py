"""Where mutated PTX comes from: kernels that compilers wrote, instructions of every form, and ways to spoil them."""

import random
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from trueno_cuda.catalogue import registry
from trueno_cuda.ptx.emulate.opcodes import FORMS
from trueno_cuda.ptx.syntax.types import TYPES

LONGEST = 6000  # characters of a kernel that is mutated as a whole
FOREIGN = Path(__file__).with_name("ptx_foreign.ptx")
GOLDEN = Path(__file__).parents[1] / "golden" / "cuda"

PIECE = re.compile(r"\s+|//[^\n]*|[.%]?[\w$]+|::|.", re.DOTALL)


def _words(text: str) -> list[str]:
    return text.split()


NUMBERS = _words("""
    0 1 -1 2 3 7 8 15 16 31 32 33 63 64 128 255 256 999 1023 4095 4096 65535 65536 2147483647 2147483648 -2147483648
    4294967295 4294967296 9223372036854775807 9223372036854775808 -9223372036854775808 18446744073709551615
    18446744073709551616 1000000000000 0448 010 0x 0xFFFFFFFFFFFFFFFF 0x10000000000000000 0b2 0f7F800000 0f7FC00000
    0fFF800000 0f3F800000 0f00000001 0d7FF0000000000000 1.5 1e400 9999999999999999999999999999 000000000000000000000001
""")
ADDRESSES = _words("""
    [%rd1] [%rd1] [%rd1+4] [%rd2] [%rd3] [%rd3] [%r4] [%rd4] [s] [s+8] [l] [c] [g] [x] [n] [4] [%rd1,{%r1,%r2}]
    [%rd4,{%r1}]
""")
OPERANDS = ADDRESSES + _words("""
    %r1 %r2 %r3 %r4 %rd1 %rd2 %rd3 %rd4 %f1 %f2 %f3 %d1 %d2 %h1 %h2 %p1 %p2 !%p1 %r1|%p1 %p1|%p2 _ _|%p1 s s+4 g c END
    (1) WARP_SZ %tid.x %laneid %clock64 %ntid.w {} {%r1,%r2} {%r1,%r2,%r3,%r4} {%f1,%f2} {%f1,%f2,%f3,%f4} {%h1,%h2}
    {%rd1,%rd2}
""")
PREFIXES = {"b8 u8 s8 b16 u16 s16 f16 bf16": "%h", "b32 u32 s32": "%r", "b64 u64 s64": "%rd", "f32": "%f", "f64": "%d",
            "pred": "%p"}  # fmt: skip
REGISTERS = {name: prefix for names, prefix in PREFIXES.items() for name in names.split()}
ADDRESS_FIRST = {"st", "red", "stmatrix", "mbarrier", "cp", "prefetch", "discard", "applypriority"}
ADDRESS_NEXT = {"ld", "ldu", "atom", "ldmatrix"}
SKELETON = """.version 8.7
.target sm_90a
.address_size 64
.global .align 16 .b8 g[256];
.const .align 16 .b8 c[64] = {{1, 2, 3}};
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a, .param .align 64 .b8 m[128])
{{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .f64 %d<4>;
    .shared .align 16 .b8 s[1024]; .local .align 16 .b8 l[64];
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r4, s;
    cvta.shared.u64 %rd3, 1024; mov.b64 %rd4, m; mov.b16 %h1, 7; mov.b64 %d1, %rd1; setp.lt.u32 %p1, %r1, 5;
    mad.wide.u32 %rd1, %r1, 4, %rd1;
{body}
END: ret;
}}
"""


class Donor(NamedTuple):
    """A kernel in parts: what stands before its instructions, declarations included, and they."""

    head: str
    lines: list[str]


@cache
def texts() -> list[str]:
    """Kernels that others and we have written: those of the catalogue, golden ones, and what nvcc makes."""
    entries = registry.catalogue().values()
    ours = [k.text for e in entries for k in registry.build(e, registry.usual(e), e.variants[0])]
    golden = [path.read_text("ascii") for path in sorted(GOLDEN.glob("*.ptx"))]
    head, *foreign = re.split(r"(?=\n\.visible)", FOREIGN.read_text("ascii"))
    return [*ours, *golden, *(head + entry for entry in foreign)]


@cache
def short() -> list[str]:
    return [text for text in texts() if len(text) < LONGEST]


@cache
def donors() -> list[Donor]:
    found = []
    for text in texts():
        head, _, body = text.rpartition(".entry")
        opening, _, rest = body.partition("{")
        statements = [line for line in re.split(r"(?<=[;:])\s+", rest.rpartition("}")[0]) if line.strip()]
        declared = [s for s in statements if s.lstrip().startswith(".")]
        lines = [s for s in statements if not s.lstrip().startswith((".", "{", "}"))]
        found.append(Donor(f"{head}.entry{opening}{{\n" + "\n".join(declared), lines))
    return found


@cache
def pool() -> list[str]:
    """Words and marks of all texts, every modifier, and what is nasty."""
    words = {piece for text in texts() for piece in PIECE.findall(text) if len(piece) < 24 and not piece.isspace()}
    mods = {f".{m}" for forms in FORMS.values() for form in forms for group in form.groups for m in group}
    return sorted(words | mods | set(NUMBERS) | set(FORMS) | set(OPERANDS))


# ---- mutations ----------------------------------------------------------------------------------


def tokens(rng: random.Random, text: str) -> str:
    """One word or mark goes, comes twice, swaps its place, or becomes another."""
    pieces = PIECE.findall(text) or [" "]
    at, kind = rng.randrange(len(pieces)), rng.randrange(6)
    if kind == 0:
        del pieces[at]
    elif kind == 1:
        pieces.insert(at, pieces[at])
    elif kind == 2:
        other = rng.randrange(len(pieces))
        pieces[at], pieces[other] = pieces[other], pieces[at]
    elif kind == 3:
        pieces[at] = rng.choice(pool())
    elif kind == 4:
        pieces.insert(at, rng.choice(pool()))
    else:
        numbers = [k for k, piece in enumerate(pieces) if piece[0].isdigit()] or [at]
        pieces[rng.choice(numbers)] = rng.choice(NUMBERS)
    return "".join(pieces)


def characters(rng: random.Random, text: str) -> str:
    """Some go, come twice, become others, or come by the thousand."""
    at, kind = rng.randrange(len(text) + 1), rng.randrange(4)
    if kind == 0:
        return text[:at] + text[at + rng.randrange(1, 9) :]
    if kind == 1:
        return text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x300)))) + text[at:]
    if kind == 2:
        return text[:at] + rng.choice("{}[]();,:|@!+-<>=.%_0") * rng.choice((1, 1, 2, 70, 2000)) + text[at:]
    return text[:at] + text[max(0, at - rng.randrange(30)) :]


def rows(rng: random.Random, text: str) -> str:
    """A line goes, comes twice, swaps its place, or loses a word."""
    found = text.split("\n")
    at, other, kind = rng.randrange(len(found)), rng.randrange(len(found)), rng.randrange(4)
    if kind == 0:
        del found[at]
    elif kind == 1:
        found.insert(other, found[at])
    elif kind == 2:
        found[at], found[other] = found[other], found[at]
    else:
        found[at] = tokens(rng, found[at])
    return "\n".join(found)


def splice(rng: random.Random, text: str) -> str:
    """The beginning of this and the end of another."""
    other = rng.choice(short())
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other)) :]


def instruction(rng: random.Random) -> str:
    """An instruction of any form, sometimes with a modifier too few or too many, and operands that may fit."""
    name = rng.choice(sorted(FORMS))
    form = rng.choice(FORMS[name])
    mods = [rng.choice(g) for k, g in enumerate(form.groups) if k not in form.optional or rng.random() < 0.3]
    if mods and rng.random() < 0.1:
        del mods[rng.randrange(len(mods))]
    if rng.random() < 0.05:
        mods.insert(rng.randrange(len(mods) + 1), rng.choice(pool()).strip("."))
    count = rng.randint(form.least, form.most) + (rng.random() < 0.03) - (rng.random() < 0.03)
    likely = [REGISTERS.get(m, "%r") for m in mods if m in TYPES] or ["%r"]
    operands = [_operand(rng, name, k, likely) for k in range(count)]
    guard = rng.choice(("", "", "", "@%p1 ", "@!%p2 "))
    return f"{guard}{'.'.join((name, *mods))} {', '.join(operands)};"


def _operand(rng: random.Random, name: str, place: int, likely: list[str]) -> str:
    draw = rng.random()
    if draw < 0.07:
        return rng.choice(NUMBERS)
    if draw < 0.15:
        return rng.choice(OPERANDS)
    if (place == 0 and name in ADDRESS_FIRST) or (place == 1 and name in ADDRESS_NEXT):
        return rng.choice(ADDRESSES)
    prefix = "%p" if name == "setp" and place == 0 else likely[-1 if place else 0]
    return f"{prefix}{rng.randrange(1, 4)}"


# ---- texts --------------------------------------------------------------------------------------


def formed(rng: random.Random) -> str:
    """Instructions of any form in a small kernel; in one of three, mutated."""
    body = "\n".join(instruction(rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    if rng.random() < 0.3:
        body = rng.choice((tokens, tokens, characters))(rng, body)
    if rng.random() < 0.1:
        body = f"L: {body}\n@%p1 bra L;"
    text = SKELETON.format(body=body)
    return tokens(rng, text) if rng.random() < 0.05 else text


def borrowed(rng: random.Random) -> str:
    """A few lines of a kernel, mutated, under its declarations."""
    donor = rng.choice(donors())
    first = rng.randrange(len(donor.lines))
    body = donor.lines[first : first + rng.randrange(1, 12)]
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(body))
        body[at] = rng.choice((tokens, tokens, tokens, characters))(rng, body[at])
    named = set(re.findall(r"\bbra(?:\.uni)?\s+([\w$]+)", "\n".join(body)))
    labels = {line.strip().removesuffix(":") for line in body if line.rstrip().endswith(":")}
    return donor.head + "\n" + "\n".join([*body, *(f"{name}:" for name in sorted(named - labels)), "ret;\n}\n"])


def whole(rng: random.Random) -> str:
    """A kernel of moderate length, mutated here and there."""
    text = rng.choice(short())
    for _ in range(rng.randrange(1, 4)):
        text = rng.choice((tokens, tokens, tokens, rows, rows, characters, splice))(rng, text)
    return text
