"""The accuracy of the printed functions, from which the tolerance of every row program on wgpu follows.

Measured on two drivers that agree on little (Mesa's lavapipe, which keeps subnormals, and SwiftShader, which flushes
them) over 3 million arguments a function, random bits and edges among them, against float64: `WORST`.  `ULP` states
more, because a third driver may contract a product and a sum where these two do not, and need not keep more than WGSL
promises:

* a quotient within 2.5 ulp (both: 0.5): `div`, and through one division each tanh and atan;
* an inverse square root within 2 ulp (both: 1.48), and a square root like one divided by that (both: 0.5).

A sum's term passes through 31 plain additions of its block, an exact one, 8 joins of a workgroup, and of a long row
4 + 8 more joins of chunks; a row of up to 1 024 elements through 15 and 6.
"""

from trueno.backend import Accuracy

WORST: dict[str, float] = {
    "exp": 1.25,
    "exp2": 1.09,
    "expm1": 1.55,
    "log": 0.90,
    "log2": 1.34,
    "log10": 1.18,
    "log1p": 1.53,
    "log1p_unit": 1.50,
    "tanh": 1.63,
    "erf": 1.39,
    "sin": 2.70,
    "cos": 2.89,
    "atan": 1.31,
    "pow": 1.74,
    "rsqrt": 1.48,
    "sqrt": 0.5,
    "div": 0.75,
}
"""The largest errors seen on lavapipe and SwiftShader, in ulps of the result."""

ULP: dict[str, float] = {
    "exp": 1.7,
    "exp2": 1.5,
    "expm1": 2.0,
    "log": 1.4,
    "log2": 1.8,
    "log10": 1.7,
    "log1p": 2.0,
    "log1p_unit": 2.0,
    "tanh": 3.2,
    "erf": 1.9,
    "sin": 3.3,
    "cos": 3.3,
    "atan": 2.8,
    "pow": 2.4,
    "rsqrt": 2.0,
    "sqrt": 4.5,
    "div": 2.5,
}
ACCURACY = Accuracy(ulp=ULP, default=4.0, chain=64, subnormals=False)
