"""Uses trueno while trueno is loading it."""

import numpy as np
import trueno

from trueno_chaos.marks import mark
from trueno_chaos.sound import Sound

if mark("circular") > 6:
    raise RuntimeError("imported in ever new processes")
TWO = trueno.add(np.ones(3, np.float32), np.ones(3, np.float32))


class Backend(Sound):
    """Sound, once it is there."""

    name = "circular"
