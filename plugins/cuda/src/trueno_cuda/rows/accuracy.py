"""The accuracy of the printed functions, from which the tolerance of every row program on CUDA follows.

One table serves both floats.  `SEEN` are the largest errors on the emulator, whose approximations are nearly exact:
of float32 over 20 million arguments a function against float64, of float64 over 300 000 against 80-bit floats (erf:
24 000 against mpmath); any bits, dense ranges, thresholds.  `STATED` is what the special function unit may do: PTX
gives these bounds for its approximations (PTX ISA 9.0, 9.7.3) and no others.  `ULP` holds with them at their worst,
which tests try by moving every approximation as far as it may go.
"""

from trueno.backend import Accuracy

STATED: dict[str, float] = {"ex2.approx.f32": 2.0, "rcp.approx.f32": 1.0, "rsqrt.approx.f32": 2.0}
"""Largest errors, in ulps.  lg2, sin, cos and tanh.approx are off by more than an ulp somewhere, and are not used."""

SEEN: dict[str, tuple[float, float]] = {
    "exp": (1.03, 0.96),
    "exp2": (0.75, 0.84),
    "expm1": (1.47, 1.01),
    "log": (0.88, 0.77),
    "log2": (0.98, 0.78),
    "log10": (1.03, 0.66),
    "log1p": (1.48, 0.78),
    "log1p_unit": (1.48, 1.31),
    "tanh": (1.76, 1.22),
    "erf": (1.30, 0.88),
    "sin": (1.61, 0.76),
    "cos": (1.60, 0.75),
    "atan": (1.36, 1.67),
    "pow": (1.65, 0.85),
    "rsqrt": (1.01, 0.87),
}
"""Of float32 and of float64, in ulps of the result."""

ULP: dict[str, float] = {
    "exp": 2.75,
    "exp2": 2.5,
    "expm1": 1.7,
    "log": 1.0,
    "log2": 1.2,
    "log10": 1.1,
    "log1p": 1.6,
    "log1p_unit": 1.6,
    "tanh": 3.2,
    "erf": 2.0,
    "sin": 1.8,
    "cos": 1.8,
    "atan": 2.0,
    "pow": 3.5,
    "rsqrt": 1.25,
}
CHAIN = 24
"""Additions that a term of a sum passes through at most.

Of a row in registers: 2 to 4 in a batch of elements and one for each of 8 to 2 batches, 5 of a warp and 5 of a block.
Of a longer one: 5 in a tile, and the rest is added exactly, in two floats.
"""
ACCURACY = Accuracy(ulp=ULP, default=4.0, chain=CHAIN)
