"""Small kernels around one instruction, and exact references in rationals."""

from fractions import Fraction

import numpy as np
import pytest
from seeds import fresh_seed
from trueno_cuda.ptx.emulate import load

WIDTH = {"pred": 4}


def bits_of(kind: str) -> int:
    return int("".join(c for c in kind.split("x")[0] if c.isdigit()) or 32) * (2 if kind.endswith("x2") else 1)


def memory_type(kind: str) -> str:
    return f"b{bits_of(kind)}" if kind not in ("bf16",) else "b16"


def kernel_text(body: str, params: str, registers: str = "", target: str = "sm_90a", directives: str = "") -> str:
    """A whole module around a body."""
    return f""".version 8.0
.target {target}
.address_size 64
.visible .entry k({params}) {directives}
{{
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<64>;
    .reg .f32 %f<64>;
    .reg .f64 %d<16>;
    {registers}
    {body}
}}
"""


class Lanes:
    """Runs one instruction over arrays, an element a lane: `lanes("add.f32 {d}, {a}, {b};", "f32", x, y)`."""

    def __call__(self, code: str, out: str, *inputs: np.ndarray, types: tuple[str, ...] = ()) -> np.ndarray:
        n = len(inputs[0])
        names = "abce"[: len(inputs)]
        kinds = types or tuple(f"b{x.dtype.itemsize * 8}" for x in inputs)
        params = ", ".join(f".param .u64 p{c}" for c in (*names, "d")) + ", .param .u32 n"
        lines = ["mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;",
                 "ld.param.u32 %r5, [n]; setp.ge.u32 %p1, %r4, %r5; @%p1 bra END;"]  # fmt: skip
        registers = []
        for k, (c, kind) in enumerate(zip(names, kinds, strict=True)):
            size = bits_of(kind) // 8
            registers.append(f".reg .{kind if kind[0] in 'bfus' and kind in REGISTERS else memory_type(kind)} %{c};")
            lines.append(f"ld.param.u64 %rd{k}, [p{c}]; mad.wide.u32 %rd{k}, %r4, {size}, %rd{k};")
            lines.append(f"ld.global.{memory_type(kind)} %{c}, [%rd{k}];")
        result = "u32" if out == "pred" else out
        size = bits_of(result) // 8
        kind = result if result in REGISTERS else memory_type(result)
        registers.append(f".reg .pred %q; .reg .{kind} %d;")
        lines.append(f"ld.param.u64 %rd20, [pd]; mad.wide.u32 %rd20, %r4, {size}, %rd20;")
        names_ = {c: f"%{c}" for c in names}
        lines.append(code.format(d="%q" if out == "pred" else "%d", **names_))
        if out == "pred":
            lines.append("selp.u32 %d, 1, 0, %q;")
        lines.append(f"st.global.{memory_type(result)} [%rd20], %d;")
        lines.append("END: ret;")
        text = kernel_text("\n    ".join(lines), params, " ".join(registers))
        dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}.get(result)
        if dtype is None:
            dtype = np.dtype(f"{'i' if result[0] == 's' else 'u'}{size}")
        got = np.zeros(n, dtype)
        report = load(text).launch("k", -(-n // 128), 128, [*inputs, got, n])
        assert not report.findings, report
        return got.astype(bool) if out == "pred" else got


REGISTERS = {f"{k}{b}" for k in "bus" for b in (16, 32, 64)} | {"f16", "f32", "f64"}


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A fresh seed each run; pytest shows it when a test fails."""
    seed = fresh_seed()
    print(f"seed {seed} of {request.node.name}")
    return np.random.default_rng(seed)


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def rounded(x: Fraction, kind: str, mode: str = "rn") -> Fraction | float:
    """A rational in a float format, by its definition; ±inf where it overflows."""
    precision, low, high = FORMATS[kind]
    if x == 0:
        return x
    size = abs(x)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < Fraction(2) ** e
    step = Fraction(2) ** (max(e, low) - precision + 1)
    q, rest = divmod(x, step)
    up = {"rm": False, "rp": rest > 0, "rz": x < 0 and rest > 0}.get(mode)
    if up is None:
        up = rest > step / 2 or (rest == step / 2 and (q % 2 == 1 if mode == "rn" else x > 0))
    r = (q + up) * step
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** high
    if abs(r) > largest:
        to_infinity = mode in ("rn", "rna") or (mode == "rp" and r > 0) or (mode == "rm" and r < 0)
        return float("inf") * (1 if r > 0 else -1) if to_infinity else (largest if r > 0 else -largest)
    return r
