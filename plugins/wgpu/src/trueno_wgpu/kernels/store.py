"""Between an accumulator and the result: scaling, an epilogue, and the look at what is stored.

A kernel's text calls `store(at, row, column, value)`, which is printed here for values of one element or four.

    scaled     the value times `sizes.alpha`
    guarded    NaN and Inf are noted in the word that the device layer keeps, 1 and 2; by bits, as WGSL lets a compiler
               assume that there are none.  An invocation looks before it writes: no more than a few hundred writes a
               call, and none where all is well
    epilogue   a row program's elementwise text
"""

from dataclasses import dataclass, field

GUARD = """\
var<private> sick: u32;

fn look(v: f32) {
    let u = bitcast<u32>(v) & 0x7fffffffu;
    sick |= select(select(0u, 2u, u == 0x7f800000u), 1u, u > 0x7f800000u);
}

fn tell() {
    if (sick != 0u && (atomicLoad(&status) & sick) != sick) {
        atomicOr(&status, sick);
    }
}
"""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """WGSL of what follows a product, spliced into its store.

    functions: declares `fn epilogue(made: f32, row: u32, column: u32, at: u32) -> f32`, with what it calls; it may read
    `beside0`, `beside1`, ..., arrays of f32 that are bound after the result, and of the uniforms `sizes.zero`, a word,
    `sizes.inf`, `sizes.nan` and the parameters `sizes.p0`, ...; `count` and `numbers` say how many there are.
    """

    functions: str
    count: int = 0
    numbers: int = 0


@dataclass(frozen=True, slots=True)
class Store:
    """How values are stored in the last buffer of a kernel's own, which is called `out`."""

    guarded: bool = False
    scaled: bool = False
    epilogue: Epilogue | None = None
    partial: bool = field(default=False, kw_only=True)  # sums that another pass adds up

    @property
    def writes(self) -> tuple[bool, ...]:
        """Of the bindings after `out`."""
        return (False,) * (self.epilogue.count if self.epilogue else 0) + (True,) * self.guarded

    def sizes(self, text: str) -> str:
        """`struct Sizes` with the epilogue's numbers where it says GIVEN, at its end."""
        numbers = range(self.epilogue.numbers) if self.epilogue else ()
        fields = ["zero: u32", "inf: f32", "nan: f32", *(f"p{i}: f32" for i in numbers)] if self.epilogue else []
        return text.replace("GIVEN", f"    {', '.join(fields)},\n" if fields else "")

    def declarations(self, binding: int) -> str:
        """Bindings from number `binding` on, and functions; `of` is the element type of `out`."""
        lines = []
        for i in range(self.epilogue.count if self.epilogue else 0):
            lines.append(f"@group(0) @binding({binding}) var<storage, read> beside{i}: array<f32>;")
            binding += 1
        if self.guarded:
            lines.append(f"@group(0) @binding({binding}) var<storage, read_write> status: atomic<u32>;\n")
            lines.append(GUARD)
        if self.epilogue:
            lines.append(self.epilogue.functions)
        return "\n".join(lines)

    def function(self, width: int, *, adds: bool = False) -> str:
        """`store` of `width` elements (1 or 4); adds: with `sizes.add` it adds to what is there."""
        kind = "f32" if width == 1 else "vec4<f32>"
        slot = "at" if width == 1 else "at / 4u"
        parts = ["y"] if width == 1 else [f"y.{c}" for c in "xyzw"]
        lines = ["var y = v;"]
        if adds:
            lines.append(f"if (sizes.add != 0u) {{ y += out[{slot}]; }}")
        if self.scaled:
            lines.append("y *= sizes.alpha;")
        if self.epilogue:
            lines += [
                f"{p} = epilogue({p}, row, column + {i}u, at + {i}u);"
                if i
                else f"{p} = epilogue({p}, row, column, at);"
                for i, p in enumerate(parts)
            ]
        if self.guarded:
            lines += [f"look({p});" for p in parts]
        lines.append(f"out[{slot}] = y;")
        body = "\n".join(f"    {line}" for line in lines)
        return f"fn store(at: u32, row: u32, column: u32, v: {kind}) {{\n{body}\n}}\n"

    @property
    def end(self) -> str:
        """The last statement of `main`."""
        return "    tell();\n" if self.guarded else ""


PLAIN = Store()
PARTIAL = Store(partial=True)
