"""An attack whose cases fail in every manner: what the driver must notice."""

import os
import signal
import time

import numpy as np

from .attack import Tally

LIMIT = 5.0
WAYS = ("right", "wrong", "crash", "killed", "exit", "hang")


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    tally.calls = 2
    way = WAYS[int(rng.integers(len(WAYS)))]
    if way == "wrong":
        raise AssertionError("planted")
    if way == "crash":
        os.abort()
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "exit":
        os._exit(0)
    if way == "hang":
        time.sleep(1000)
