"""WGSL that decodes blocks, printed from the core's table of formats: no layout is written down here again.

The printed functions read a matrix that is bound as `w`, by byte addresses; `a` is that of a block.  Sixteen elements
whose codes lie in neighbouring bytes are a *column*: `vec4<u32>`, four codes a word, the first lowest.  Every run and
group of the table is a multiple of 16, so a column has one shift a plane, and one scale.  A *unit* is the columns that
share the bytes of the first plane: one column for each way of packing several codes into a byte, `run` elements apart.

Blocks of 18, 34, 110 or 210 bytes begin anywhere, but a buffer is read by words of 32 bits: then a word is two reads
and a shift, and sixteen bytes are five.  Formats all of whose blocks and fields begin at multiples of 16 are read
by vectors.  Scales are halves, widened by whole-number arithmetic, because `unpack2x16float` may flush the subnormal.
"""

from collections.abc import Sequence
from functools import cache
from math import gcd
from string import Template

from trueno.backend import COLUMN, FORMATS, Format, Piece, Pieces, Plane, linear, unit_shape

LETTERS = "xyzw"

HALF = """\
fn half(h: u32) -> f32 {
  let size = h & 0x7fffu;
  let widened = (size << 13u) + select(0x38000000u, 0x70000000u, size >= 0x7c00u);
  let small = bitcast<u32>(f32(size) * 0x1p-24f);
  return bitcast<f32>(((h & 0x8000u) << 16u) | select(widened, small, size < 0x400u));
}
"""
"""float16 bits to float32, whatever they stand for."""


def _alignment(f: Format) -> int:
    """What divides the address of every block and of every plane of more than a column."""
    wide = [f.fields[p.field].offset for p in f.planes if p.run > 1]
    return gcd(f.nbytes, 16) if all(o % 16 == 0 for o in wide) else gcd(f.nbytes, 4)


@cache
def word_type(name: str) -> str:
    """What a matrix in the format called `name` is bound as an array of: u32 or vec4<u32>."""
    return "vec4<u32>" if _alignment(FORMATS[name]) == 16 else "u32"


def number(value: int) -> str:
    return f"{value}u" if value < 1024 else f"{value:#x}u"


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}u"


# ---- bytes


BYTE = "fn byte(a: u32) -> u32 { return (w[a >> 2u] >> ((a & 3u) * 8u)) & 0xffu; }\n"
ALIGNED = """\
fn word(a: u32) -> u32 { return w[a >> 2u]; }
fn words(a: u32) -> vec4<u32> {
  let i = a >> 2u;
  return vec4<u32>(w[i], w[i + 1u], w[i + 2u], w[i + 3u]);
}
"""
UNALIGNED = """\
fn word(a: u32) -> u32 {
  let i = a >> 2u;
  let s = (a & 3u) * 8u;
  return (w[i] >> s) | ((w[i + 1u] << 1u) << (31u - s));
}
fn words(a: u32) -> vec4<u32> {
  let i = a >> 2u;
  let s = vec4<u32>((a & 3u) * 8u);
  let b = w[i + 1u];
  let c = w[i + 2u];
  let d = w[i + 3u];
  let above = vec4<u32>(b, c, d, w[i + 4u]) << vec4<u32>(1u);
  return (vec4<u32>(w[i], b, c, d) >> s) | (above << (vec4<u32>(31u) - s));
}
"""
"""The shift up is in two steps, for a shift by 32 bits would be one by none."""
SHORT = {
    0: "fn short(a: u32) -> u32 { return (w[a >> 2u] >> ((a & 2u) * 8u)) & 0xffffu; }\n",
    1: "fn short(a: u32) -> u32 { return byte(a) | (byte(a + 1u) << 8u); }\n",
}
"""Where blocks have an even and an odd number of bytes."""


def _reads(f: Format) -> str:
    """`word`, `words` and, for what is smaller, `short` and `byte`: what lies at a byte address."""
    if word_type(f.name) == "vec4<u32>":
        return "fn words(a: u32) -> vec4<u32> { return w[a >> 4u]; }\n"
    return BYTE + (UNALIGNED + SHORT[f.nbytes % 2] if f.nbytes % 4 else ALIGNED)


# ---- scales


def _linear(values: Sequence[int]) -> str | None:
    """values[g] as WGSL of `g`; None if no sum of bits of g gives them."""
    formula = linear(values)
    if formula is None:
        return None
    bits = [(f"(g & {mask}u)", shift, factor) for mask, shift, factor in formula.terms]
    terms = [_times(f"({text} >> {shift}u)" if shift else text, factor) for text, shift, factor in bits]
    if formula.first or not terms:
        terms.append(f"{formula.first}u")
    return " + ".join(terms)


def _slot(parts: Sequence[Piece]) -> tuple[str, int | None] | None:
    """One piece of each of some groups, as WGSL of `g`; and the word of the block that holds them, if it is one."""
    first = parts[0]
    if any((p.bits, p.to) != (first.bits, first.to) for p in parts):
        return None
    words = {p.byte // 4 for p in parts}
    word = words.pop() if len(words) == 1 else None
    if word is not None:
        shift = _linear([p.byte % 4 * 8 + p.shift for p in parts])
        source = f"h.w{word}"
    else:
        place, shift = _linear([p.byte for p in parts]), _linear([p.shift for p in parts])
        source = f"byte(a + {place})"
        if place is None:
            return None
    if shift is None:
        return None
    text = source if shift == "0u" else f"({source} >> ({shift}))"
    text = f"({text} & {number((1 << first.bits) - 1)})"
    return (f"({text} << {first.to}u)" if first.to else text), word


def _gathered(pieces: Pieces) -> tuple[str, set[int]]:
    """The number that the pieces of group `g` make, as WGSL, and the block's words that it reads.

    Where no one formula fits all groups, halves of them have one each.
    """
    if len({len(p) for p in pieces}) == 1:
        slots = [_slot([group[i] for group in pieces]) for i in range(len(pieces[0]))]
        formulas = [s for s in slots if s is not None]
        if len(formulas) == len(slots):
            return " | ".join(text for text, _ in formulas), {w for _, w in formulas if w is not None}
    middle = len(pieces) // 2
    low, below = _gathered(pieces[:middle])
    high, above = _gathered(pieces[middle:])
    return f"select({low}, {high}, (g & {middle}u) != 0u)", below | above


def _head_word(f: Format, word: int) -> str:
    """A word of the block at `a`, by its number."""
    if word_type(f.name) == "vec4<u32>":
        return f"w[(a >> 4u) + {word // 4}u].{LETTERS[word % 4]}"
    return f"word(a + {4 * word}u)"


def _number(f: Format, field: str) -> str:
    """The field of one scale of the block at `a`, as f32."""
    spec = f.fields[field]
    if f.e8m0 and field == f.d:
        return f"power(byte(a + {spec.offset}u))"
    assert spec.count == 1
    if spec.dtype == "<f4":
        return f"bitcast<f32>(word(a + {spec.offset}u))"
    assert spec.dtype == "<f2"
    if f.nbytes % 4:
        return f"half(short(a + {spec.offset}u))"
    word = _head_word(f, spec.offset // 4)
    return f"half({word} >> 16u)" if spec.offset % 4 else f"half({word} & 0xffffu)"


def _scales(f: Format) -> str:
    """`head`: what is read once a block; `scale_of` and `least_of`: whole numbers of group g."""
    scale, used = _gathered(f.scales) if f.scales else ("1u", set())
    least, more = _gathered(f.mins) if f.mins else ("1u", set())
    words = sorted(used | more)
    fields = ["d: f32", *(["m: f32"] if f.m else []), *(f"w{n}: u32" for n in words)]
    values = [_number(f, f.d), *([_number(f, f.m)] if f.m else []), *(_head_word(f, n) for n in words)]
    text = f"struct Head {{ {', '.join(fields)} }}\nfn head(a: u32) -> Head {{ return Head({', '.join(values)}); }}\n"
    if f.scale_signed:
        scale = f"(bitcast<i32>(({scale}) << 24u) >> 24u)"
    else:
        scale = f"i32({scale})" + (f" - {f.scale_bias}" if f.scale_bias else "")
    text += f"fn scale_of(a: u32, h: Head, g: u32) -> i32 {{ return {scale}; }}\n"
    if f.m:
        text += f"fn least_of(a: u32, h: Head, g: u32) -> i32 {{ return i32({least}); }}\n"
    return text


POWER = """\
fn power(e: u32) -> f32 {
  return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << (e & 1u), e < 2u));
}
"""
"""2^(e - 128) by its bits; the two smallest are subnormal, and a device may take them for 0 when it multiplies."""


# ---- codes


def _every(value: int) -> str:
    return f"vec4<u32>({number(value * 0x01010101)})"


def _plane(f: Format, n: int, p: Plane) -> str:
    """`raw<n>`: the bytes of plane n that hold element e's column; `part<n>`: its bits of that column's codes."""
    start = f.fields[p.field].offset
    if p.run == 1:  # a bit an element: four neighbours' are spread to four bytes
        to = f" << vec4<u32>({p.to}u)" if p.to else ""
        return (
            f"fn raw{n}(a: u32, e: u32) -> u32 {{ return word(a + {start}u + ((e >> 5u) << 2u)); }}\n"
            f"fn part{n}(raw: u32, e: u32) -> vec4<u32> {{\n"
            "  let bits = (vec4<u32>(raw >> (e & 31u)) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);\n"
            f"  return ((bits * 0x00204081u) & {_every(1)}){to};\n"
            "}\n"
        )
    period = p.run * p.ways
    chunk = f" + (e / {period}u) * {p.run}u" if f.elements > period else ""
    within = f" + (e & {p.run - 1}u)" if p.run > COLUMN else ""
    text = "raw"
    if p.ways > 1:
        text = f"(raw >> vec4<u32>(((e / {p.run}u) & {p.ways - 1}u) * {p.bits}u))"
    if p.bits < 8:
        text = f"({text} & {_every((1 << p.bits) - 1)})"
    if p.to:
        text = f"({text} << vec4<u32>({p.to}u))"
    return (
        f"fn raw{n}(a: u32, e: u32) -> vec4<u32> {{ return words(a + {start}u{chunk}{within}); }}\n"
        f"fn part{n}(raw: vec4<u32>, e: u32) -> vec4<u32> {{ return {text}; }}\n"
    )


TABLE = Template("""\
fn entry(n: u32) -> u32 {
  let low = select($w0, $w1, (n & 4u) != 0u);
  let high = select($w2, $w3, (n & 4u) != 0u);
  return (select(low, high, (n & 8u) != 0u) >> ((n & 3u) * 8u)) & 0xffu;
}
fn entries(c: u32) -> u32 {
  return entry(c & 15u) | (entry((c >> 8u) & 15u) << 8u) | (entry((c >> 16u) & 15u) << 16u) | (entry(c >> 24u) << 24u);
}
fn values(c: vec4<u32>) -> vec4<u32> { return vec4<u32>(entries(c.x), entries(c.y), entries(c.z), entries(c.w)); }
""")
"""Sixteen values of 8 bits, four a word: selected, for indexing a constant array may go through memory."""


def _values(f: Format) -> str:
    """`values`: a column's codes to what they stand for, four int8 a word; `floats`: one word of codes to f32."""
    if f.values:
        packed = [int.from_bytes(bytes(v % 256 for v in f.values[i : i + 4]), "little") for i in range(0, 16, 4)]
        text = TABLE.substitute({f"w{i}": number(v) for i, v in enumerate(packed)})
        return text + "fn floats(c: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(entries(c))); }\n"
    if f.signed:
        return (
            "fn values(c: vec4<u32>) -> vec4<u32> { return c; }\n"
            "fn floats(c: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(c)); }\n"
        )
    floats = "vec4<f32>(unpack4xU8(c))" + (f" - vec4<f32>({f.bias}.0)" if f.bias else "")
    # the top bit of each byte, set first, keeps what is borrowed within the byte
    top = _every(0x80)
    value = f"((c | {top}) - {_every(f.bias)}) ^ {top}" if f.bias else "c"
    return (
        f"fn values(c: vec4<u32>) -> vec4<u32> {{ return {value}; }}\n"
        f"fn floats(c: u32) -> vec4<f32> {{ return {floats}; }}\n"
    )


@cache
def decoding(name: str) -> str:
    """Every function for the format called `name`, for a module that binds `w` as an array of `word_type(name)`.

    head(a): d, m and scales of the block at a.  scale_of(a, h, g), least_of(a, h, g): group g's whole numbers.
    column_of(a, e): the codes of elements e … e + 15; by raw0 … and part0 …, of which raws are a unit's in common.
    values(c): codes as int8.  floats(word): four codes as f32.  half(bits).
    """
    f = FORMATS[name]
    planes = "".join(_plane(f, n, p) for n, p in enumerate(f.planes))
    parts = " | ".join(f"part{n}(raw{n}(a, e), e)" for n in range(len(f.planes)))
    column = f"fn column_of(a: u32, e: u32) -> vec4<u32> {{ return {parts}; }}\n"
    return HALF + (POWER if f.e8m0 else "") + _reads(f) + _scales(f) + planes + column + _values(f)


def group_of(f: Format, e: str) -> str:
    """WGSL of the group that element `e` is of."""
    return f"({e}) / {f.group}u" if f.scales or f.mins else "0u"


def raws(f: Format, a: str, e: str, tag: str = "") -> str:
    """Statements that read what the unit of element `e` has in common.  tag: tells units apart."""
    return " ".join(f"let r{n}{tag} = raw{n}({a}, {e});" for n in range(len(f.planes)))


def codes(f: Format, e: str, tag: str = "") -> str:
    """WGSL of the codes of the column of element `e`, from what `raws` read."""
    return " | ".join(f"part{n}(r{n}{tag}, {e})" for n in range(len(f.planes)))


def factor(f: Format, g: str) -> str:
    """WGSL of the scale of group `g` of the block at `a`, whose head is `h`."""
    return f"h.d * f32(scale_of(a, h, {g}))" if f.scales else "h.d"


def offset(f: Format, g: str) -> str:
    """WGSL of what is added to the values of group `g`, for formats that add something."""
    return f"-(h.m * f32(least_of(a, h, {g})))" if f.mins else "h.m"


def unit(e: str, name: str, together: int = 1) -> str:
    """Statements: `block`, and `{e}`, the unit's first element in it, of unit number `u` of a row.

    together: units that follow one another in a run, which are counted as one.
    """
    s, f = unit_shape(name), FORMATS[name]
    columns, units = s.run // COLUMN, s.units // together
    within = _times(f"(u % {units}u)", together) if units > 1 else "0u"
    text = f"let block = u / {units}u; let v = {within}; "
    if columns == 1:
        return text + f"let {e} = v * {s.run * s.ways}u;"
    if s.run * s.ways == f.elements:
        return text + f"let {e} = v * {COLUMN}u;"
    return text + f"let {e} = (v / {columns}u) * {s.run * s.ways}u + (v % {columns}u) * {COLUMN}u;"
