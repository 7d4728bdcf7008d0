"""An imitation of a device: NumPy buffers that no other code can reach, behind the protocol of a GPU.

`LEDGER` counts what it did; `control` says how it fails.  Results are those of the ops' own bodies.
"""

from trueno_fake.array import Array
from trueno_fake.control import control
from trueno_fake.ledger import LEDGER

__all__ = ["LEDGER", "Array", "control"]
