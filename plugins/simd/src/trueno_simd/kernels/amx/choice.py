"""Whether AMX's tiles make products faster on this machine: measured at first use, and kept beside the kernels.

The name of a CPU does not say it: clock rates under AMX, memory and a hypervisor decide, too.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from trueno_simd.codecache import store
from trueno_simd.llvm import isa

SIDE = 512  # of the float32 matrices that are measured
ROUNDS = 12
GAIN = 1.05  # by which the tiles must be faster, so that noise does not decide where neither is
Product = Callable[[Any, Any, Any], int]
Operands = tuple[Any, Any, Any]


def squares() -> Operands:
    """Two float32 matrices and room for their product."""
    rng = np.random.default_rng(0)
    return *(rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(2)), np.empty((SIDE, SIDE), np.float32)


@cache
def faster(
    word: str,
    usual: Callable[[], Product],
    tiled: Callable[[], Product],
    operands: Callable[[], Operands] = squares,
) -> bool:
    """Whether `tiled()` gives a product that is faster than that of `usual()`, of `operands()`.

    word: of what is measured, in the name of the file that keeps the answer.  A file that is damaged, missing or of
    another machine is measured again.
    """
    current = isa.current()
    machine = blake2b(f"{word} {current.cpu} {sorted(current.features)}".encode(), digest_size=8).hexdigest()
    path = store.folder() / f"amx.{machine}.json"
    with suppress(ValueError, KeyError, TypeError):
        return bool(json.loads(store.read(path) or b"")["faster"])
    times = measured(operands(), usual(), tiled())
    answer = times[0] > GAIN * times[1]
    with suppress(OSError):
        store.write(path, json.dumps({"faster": answer, "seconds": times}).encode())
    return answer


def measured(operands: Operands, *products: Product) -> list[float]:
    """The least time in seconds of each product, taken turn by turn."""
    times = [float("inf")] * len(products)
    for _ in range(ROUNDS):
        for i, product in enumerate(products):
            start = time.perf_counter()
            product(*operands)
            times[i] = min(times[i], time.perf_counter() - start)
    return times
