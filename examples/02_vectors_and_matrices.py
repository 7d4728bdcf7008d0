"""Vector and Matrix hold an array and have every op as a method."""

import numpy as np
from trueno import Matrix, Vector

v = Vector([3.0, -4.0])
m = Matrix.from_slice(2, 2, [1.0, 2.0, 3.0, 4.0])

print(v.norm_l2(), v @ v, (m @ v).to_vec())
print((2 * v + 1).relu())
print(m.T @ m)
print(m.softmax(axis=0).numpy().sum(axis=0))

values, vectors = Matrix([[2.0, 1.0], [1.0, 2.0]]).symmetric_eigen()
print("eigenvalues", np.asarray(values).round(4))

pinned = Vector([1.0, 2.0], backend="reference")  # this one is always computed there
print(pinned.exp())
