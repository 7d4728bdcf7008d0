"""How exact the printed functions are: what the tolerance of every row program on CUDA follows from."""

from trueno.discovery.protocol import Accuracy

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
    "pow": 3.25,
    "rsqrt": 1.25,
}
ACCURACY = Accuracy(ulp=ULP, default=4.0)
