"""WGSL that reads keys and values from the bytes of a cache, some numbers at a time.

A *piece* is what one read takes: 16 bytes where rows are multiples of 16, which is 4 numbers in float32 and 8 in 16
bits; else 4 numbers, one after another; and 8 of a q8_0 block, which begins at any multiple of 2 bytes.
"""

from dataclasses import dataclass

from trueno.backend import FORMATS, cache_row_bytes

Q8 = FORMATS["q8_0"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of n numbers in a format of caches; `form` is its name."""

    form: str
    n: int

    @property
    def nbytes(self) -> int:
        """Bytes of a row; −1 for a part of a block."""
        return cache_row_bytes(self.form, self.n)

    @property
    def wide(self) -> bool:
        """Whether rows are read 16 bytes at a time."""
        return self.form != "q8_0" and self.nbytes % 16 == 0

    @property
    def piece(self) -> int:
        """Numbers of a piece, 4 or 8."""
        return 8 if self.form == "q8_0" or (self.wide and self.form != "f32") else 4

    @property
    def pieces(self) -> int:
        """Pieces of a row; the last one may be padded with zeros."""
        return -(-self.n // self.piece)

    @property
    def vectors(self) -> int:
        """vec4s of a piece."""
        return self.piece // 4

    @property
    def words(self) -> str:
        """The elements of the array that is bound."""
        return "vec4<u32>" if self.wide else "u32"

    def reader(self, name: str) -> str:
        """`read_NAME(row, c)`: piece c of a row of the array NAME, a struct of vec4s `a` and, with 8 numbers, `b`."""
        fields = "a: vec4<f32>, b: vec4<f32>" if self.vectors == 2 else "a: vec4<f32>"
        text = f"struct Piece_{name} {{ {fields} }}\n"
        if not self.wide:
            text += HALF_AT.replace("NAME", name)
        body = READS[self.form, self.wide].replace("NAME", name)
        body = body.replace("EACH", f"{self.nbytes // 16 if self.wide else self.n}u").replace("SIZE", f"{self.n}u")
        body = body.replace("BLOCKS", f"{self.n // Q8.elements}u")
        return f"{text}fn read_{name}(row: u32, c: u32) -> Piece_{name} {{\n{body}}}\n"


HALF_AT = "fn half_NAME(at: u32) -> u32 { return (NAME[at >> 1u] >> ((at & 1u) * 16u)) & 0xffffu; }\n"
PAIR = """\
    let w = NAME[row * EACH + c];
    let low = widened(w & vec4<u32>(0xffffu));
    let high = widened(w >> vec4<u32>(16u));
    return Piece_NAME(vec4<f32>(low.x, high.x, low.y, high.y), vec4<f32>(low.z, high.z, low.w, high.w));
"""
HALVES = """\
    let at = row * EACH + 4u * c;
    let w = vec4<u32>(half_NAME(at), half_NAME(at + 1u), half_NAME(at + 2u), half_NAME(at + 3u));
    return Piece_NAME(select(vec4<f32>(), widened(w), vec4<u32>(4u * c) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(SIZE)));
"""
READS = {
    ("f32", True): "    return Piece_NAME(bitcast<vec4<f32>>(NAME[row * EACH + c]));\n",
    ("f32", False): """\
    let at = row * EACH + 4u * c;
    let w = bitcast<vec4<f32>>(vec4<u32>(NAME[at], NAME[at + 1u], NAME[at + 2u], NAME[at + 3u]));
    return Piece_NAME(select(vec4<f32>(), w, vec4<u32>(4u * c) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(SIZE)));
""",
    ("f16", True): PAIR,
    ("f16", False): HALVES,
    ("bf16", True): PAIR,
    ("bf16", False): HALVES,
    ("q8_0", False): """\
    let block = (row * BLOCKS + c / 4u) * 17u;
    let at = block + 1u + 4u * (c & 3u);
    let i = at >> 1u;
    let odd = (at & 1u) == 1u;
    let first = select(NAME[i], (NAME[i] >> 16u) | (NAME[i + 1u] << 16u), odd);
    let second = select(NAME[i + 1u], (NAME[i + 1u] >> 16u) | (NAME[i + 2u] << 16u), odd);
    let d = widened(vec4<u32>(half_NAME(block))).x;
    return Piece_NAME(vec4<f32>(unpack4xI8(first)) * d, vec4<f32>(unpack4xI8(second)) * d);
""",
}
OF_HALVES = """\
fn widened(h: vec4<u32>) -> vec4<f32> {
    let size = h & vec4<u32>(0x7fffu);
    let above = select(vec4<u32>(0x38000000u), vec4<u32>(0x70000000u), size >= vec4<u32>(0x7c00u));
    let small = bitcast<vec4<u32>>(vec4<f32>(size) * 0x1p-24f);
    let bits = select((size << vec4<u32>(13u)) + above, small, size < vec4<u32>(0x400u));
    return bitcast<vec4<f32>>(bits | ((h & vec4<u32>(0x8000u)) << vec4<u32>(16u)));
}
"""
OF_BRAINS = "fn widened(h: vec4<u32>) -> vec4<f32> { return bitcast<vec4<f32>>(h << vec4<u32>(16u)); }\n"
WIDENING = {"f32": "", "f16": OF_HALVES, "bf16": OF_BRAINS, "q8_0": OF_HALVES}
"""`widened`: four times 16 bits to float32, by whole-number arithmetic, because drivers may flush what is subnormal."""
