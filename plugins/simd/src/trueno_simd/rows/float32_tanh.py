"""tanh and erf of one float32 (`trueno_simd.rows.float32` says how)."""

import math
from typing import Any

from trueno_simd.llvm.bits import absolute, copysign, polynomial, select
from trueno_simd.llvm.jit import inner
from trueno_simd.rows.float32_exp_log import MAGIC, ONE, TWO, F, power_of_two

TANH = polynomial(-0.33333313, 0.13332437, -0.053835757, 0.021000376, -0.006169614)
TANH_NEAR, TANH_MAX = F(0.55), F(10)
LOG2_E2 = F(2 / math.log(2))
ERF = polynomial(0.12837917, -0.3761259, 0.11282865, -0.026807288, 0.0050577037, -0.00063485187)
LOG2_ERFC = polynomial(-0.00016549481, -1.6273823, -0.918422, -0.15068683, 0.03243045, -0.0044827675, 0.00029219323)
ERF_NEAR, ERF_MAX = F(0.85), F(3.93)  # beyond ERF_MAX: 1


@inner
def tanh(x: Any) -> Any:
    """x + x³ TANH(x²) up to 0.55, then 1 - 2 / (e^2x + 1), where errors of e^2x shrink.  Error 1.90 at 0.551."""
    a = absolute(x)
    c = select(a > TANH_MAX, TANH_MAX, a)
    t = c * LOG2_E2 + MAGIC
    far = ONE - TWO / (power_of_two(c * LOG2_E2 - (t - MAGIC), t) + ONE)
    s = a * a
    near = a + a * (s * TANH(s))
    return copysign(select(a > TANH_NEAR, far, near), x)


@inner
def erf(x: Any) -> Any:
    """x + x ERF(x²) up to 0.85, then 1 - 2^L with a polynomial L for log2(erfc).  Error 1.39 at 0.892 (SSE2)."""
    a = absolute(x)
    w = LOG2_ERFC(select(a > ERF_MAX, ERF_MAX, a))
    t = w + MAGIC
    far = ONE - power_of_two(w - (t - MAGIC), t)
    near = a + a * ERF(a * a)
    return copysign(select(a > ERF_NEAR, far, near), x)
