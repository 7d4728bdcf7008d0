"""Guards: raise at a NaN, repair an overflow in float64, and notice a result that is finite and wrong."""

import numpy as np
import trueno
from trueno import Action, Condition

x = np.array([4.0, 1.0, -1.0], dtype=np.float32)
print("unguarded:", trueno.sqrt(x))

guard = trueno.JidokaGuard().on(Condition.NAN, Action.STOP)
with guard:
    print("guarded:  ", trueno.sqrt(np.abs(x)))
    try:
        trueno.sqrt(x, out=x)
    except trueno.GuardError as error:
        print(error)
print("x is as it was:", x)

big = np.array([3e25, 4e25], dtype=np.float32)
promoting = trueno.JidokaGuard().on(Condition.OVERFLOW, Action.PROMOTE_F64)
print("squares overflow float32:", trueno.norm_l2(big))
print("repaired in float64:     ", promoting(trueno.norm_l2)(big))


@trueno.JidokaGuard().on(Condition.divergence(1e-3), Action.FALL_BACK).on(Condition.divergence(1e-3), Action.STOP)
def normalized(rows):
    """No NaN and no Inf comes out of this, even where the variance inside has overflowed."""
    return trueno.zscore(rows)


print("close to the reference:  ", normalized(x))
try:
    normalized(big)
except trueno.GuardError as error:
    print(error)
