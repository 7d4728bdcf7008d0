"""Every op is a function on NumPy arrays; rows are the last axis."""

import numpy as np
import trueno

x = np.array([[1.0, 2.0, 3.0], [3.0, 3.0, 3.0]], dtype=np.float32)

print("softmax, row by row:", trueno.softmax(x).round(3))
print("lengths of the rows:", trueno.norm_l2(x).round(3))
print("down the columns:   ", trueno.sum(x, axis=0))
print("a list is float32:  ", trueno.dot([1, 2, 3], [4, 5, 6]))

out = np.empty_like(x)
trueno.gelu(x, out=out)  # into an array of yours
trueno.add(out, 1.0, out=out)  # in place is as fast
print("gelu(x) + 1:        ", out.round(3))
