"""Damage that no compiler does to a text: bytes flip, words swap, lines go or come twice, texts break off, numbers
grow, braces nest, and NULs, other encodings and what begins a comment, a string or a directive stand in the middle.
"""

import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from trueno_cuda.ptx.analyze.rules import RULES, example

from .ptx_mutations import FOREIGN

TRAPS = Path(__file__).parents[1] / "corpus" / "traps"
LONGEST = 900  # bytes of a text that is damaged: of short ones there are more in an hour
PIECE = re.compile(rb"\s+|//[^\n]*|[.%]?[\w$]+|.", re.DOTALL)
DIGITS = re.compile(rb"\d+")
Damage = Callable[[random.Random, bytes], bytes]

FRAGMENTS = [
    b"/*", b"*/", b"//", b"\\", b"\0", b"\x1c", b"\v", b"\f", b"\r", b"\x7f", b"\xff", b"\xfe\xff", b"\xed\xa0\x80",
    b"\xc2\xa0", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"{", b"}", b"(", b")", b"[", b"]", b"<", b">", b";", b",", b":",
    b"::", b"@", b"@!", b"@%p1 ", b"!", b"|", b"+", b"-", b"_", b".", b"..", b"%", b"$", b"#", b"0x", b"0f", b"1e",
    b"08", b"{ ", b"}{", b"{;}", b"L:", b"L: ", b"\nL:\n", b"bra L;", b"ret;", b"a;", b";;", b"[%rd1+", b"[%rd1+010]",
    b"{%r1, ", b"%r1, ", b"%r1|", b"!%p1 ", b"%r99999999999", b".reg .b32 %r<999999999>;", b".reg .b32 %r1<4>;",
    b".reg .pred ", b".loc 1 2 3\n", b".loc 1 2 3, inlined_at 1 2 3\n", b".file 1 \"x\"\n", b".section ",
    b".section .x {", b".pragma ", b".pragma \"x\";", b".branchtargets ", b".callprototype ", b"call (", b"call f, (",
    b".global .b8 a[", b"[4]", b".shared .align 8 .b8 b[9];", b".attribute(", b".param .u64 p,", b".entry k(",
    b".func f() {", b".version 8.0\n", b".target ", b".address_size 32\n", b".extern ", b".maxntid 1, ", b".b8 1,",
    b"mov.u32 %r1, ", b"ld.global.u32 %r1, [%rd1];\n", b"// ptx: allow(", b"// ptx: allow(dead-code) why\n",
    b"brx.idx %r1, ", b"\xc3\xa9", b"\xf0\x9f\x98\x80",
]  # fmt: skip


@cache
def texts() -> list[bytes]:
    """Short kernels: what the rules find and do not find, those of the corpus that look wrong, and what nvcc makes."""
    found = [example(text) for rule in RULES.values() for text in (rule.bad, rule.good)]
    found += [path.read_text("utf-8") for path in sorted(TRAPS.glob("*.ptx"))]
    head, *foreign = re.split(r"(?=\n\.visible)", FOREIGN.read_text("utf-8"))
    found += [head[: head.index(".func")] + entry for entry in foreign]
    return [text.encode() for text in found if len(text) <= LONGEST]


@cache
def words() -> list[bytes]:
    """What such texts are made of."""
    return sorted({piece for text in texts() for piece in PIECE.findall(text)} | set(FRAGMENTS))


def flip(rng: random.Random, raw: bytes) -> bytes:
    """Bits of some bytes."""
    changed = bytearray(raw or b"\0")
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def swap(rng: random.Random, raw: bytes) -> bytes:
    """Words change places, go, come twice or become others."""
    pieces = PIECE.findall(raw) or [b""]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        kind = rng.randrange(5)
        if kind == 0:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] = (b"", pieces[at] * 2, pieces[other], rng.choice(words()))[kind - 1]
    return b"".join(pieces)


def insert(rng: random.Random, raw: bytes) -> bytes:
    """A fragment somewhere, once or a few times."""
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice(FRAGMENTS) * rng.choice((1, 1, 1, 2, 70)) + raw[at:]


def lines(rng: random.Random, raw: bytes) -> bytes:
    """Lines go, come twice or change places."""
    rows = raw.split(b"\n")
    at, other = sorted((rng.randrange(len(rows)), rng.randrange(len(rows))))
    kind = rng.randrange(4)
    if kind == 0:
        del rows[at : at + rng.randrange(1, 4)]
    elif kind == 1:
        rows[other:other] = rows[at : at + rng.randrange(1, 9)]
    elif kind == 2:
        rows[at], rows[other] = rows[other], rows[at]
    else:
        rows[at : other + 1] = [b" ".join(rows[at : other + 1])]
    return b"\n".join(rows)


def truncate(rng: random.Random, raw: bytes) -> bytes:
    """The beginning, the end, or both without the middle."""
    at, other = sorted((rng.randrange(len(raw) + 1), rng.randrange(len(raw) + 1)))
    return rng.choice((raw[:at], raw[at:], raw[:at] + raw[other:]))


def enlarge(rng: random.Random, raw: bytes) -> bytes:
    """A number becomes huge, negative, or of another kind."""
    found = list(DIGITS.finditer(raw))
    if not found:
        return raw
    match = rng.choice(found)
    value = rng.choice((
        b"9" * rng.choice((9, 10, 11, 19, 20, 21, 400, 5000)), b"0" * 5000 + b"1", b"1" + b"0" * 309 + b".5",
        b"0x" + b"f" * rng.choice((8, 16, 17, 5000)), b"0b" + b"1" * 65, b"-1", b"0", b"1e400", b"0f7FC00000",
        b"4294967296", b"2147483648", b"18446744073709551616",
    ))  # fmt: skip
    return raw[: match.start()] + value + raw[match.end() :]


def nest(rng: random.Random, raw: bytes) -> bytes:
    """Braces, parentheses, brackets or signs within each other, closed or not."""
    at, depth = rng.randrange(len(raw) + 1), rng.choice((2, 10, 63, 64, 65, 1000))
    opening, closing = rng.choice(
        ((b"{", b"}"), (b"{ ", b" }"), (b"(", b")"), (b"[", b"]"), (b"!", b""), (b"-", b""), (b"{L: ", b"}"))
    )
    return raw[:at] + opening * depth + closing * rng.choice((0, depth, depth - 1, depth + 1)) + raw[at:]


def join(rng: random.Random, raw: bytes) -> bytes:
    """The beginning of one text and the end of another."""
    other = rng.choice(texts())
    return raw[: rng.randrange(len(raw) + 1)] + other[rng.randrange(len(other)) :]


def pump(rng: random.Random, raw: bytes) -> bytes:
    """Some fragments thousands of times: what takes time that grows faster than the text shows there."""
    at, size = rng.randrange(len(raw) + 1), rng.choice((20_000, 60_000))
    unit = b"".join(rng.choice((*FRAGMENTS, b" ", b"\n")) for _ in range(rng.choice((1, 1, 2, 3))))
    if rng.random() < 0.2:
        start = rng.randrange(len(raw) + 1)
        unit = raw[start : start + rng.randrange(1, 80)] or unit
    return raw[:at] + unit * (size // len(unit)) + raw[at:]


USUAL: tuple[Damage, ...] = (flip, swap, swap, insert, lines, truncate, enlarge, nest, join)


def damaged(rng: random.Random) -> bytes:
    """A short kernel, damaged a few times."""
    raw = rng.choice(texts())
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        raw = rng.choice(USUAL)(rng, raw)
    return raw
