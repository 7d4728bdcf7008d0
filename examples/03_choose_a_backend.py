"""See what is here, name a backend, and take a bare kernel for a loop."""

import numpy as np
import trueno

for name, entry in trueno.backends().items():
    print(f"{name:10} {'available' if entry.available else entry.reason}")

best = trueno.select_best_available_backend()
print("chosen automatically:", best.name)

x = np.linspace(-3, 3, 1024, dtype=np.float32)
with trueno.use("reference"):  # only this one may run here
    judge = trueno.tanh(x)
print("agrees with the reference:", bool(abs(trueno.tanh(x) - judge).max() < 1e-6))

kernel, out = trueno.tanh.plan(x), np.empty_like(x)
for _ in range(3):
    assert not kernel(x, out)  # no dispatch at all; 0 means done

try:
    with trueno.use("cudda"):
        pass
except trueno.UnknownBackend as error:
    print(error)
