"""Stop the line when an op makes a NaN that no input explains."""

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
