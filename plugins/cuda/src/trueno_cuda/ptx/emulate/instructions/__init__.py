"""The instruction families; importing this package registers them all."""

from trueno_cuda.ptx.emulate.instructions import (
    approximate,
    arithmetic,
    asynchronous,
    atomics,
    carries,
    convert,
    data,
    logic,
    matrix,
    synchronise,
    video,
    warp,
    warpgroup,
)
from trueno_cuda.ptx.emulate.instructions.synchronise import wait_test

__all__ = [
    "approximate",
    "arithmetic",
    "asynchronous",
    "atomics",
    "carries",
    "convert",
    "data",
    "logic",
    "matrix",
    "synchronise",
    "video",
    "wait_test",
    "warp",
    "warpgroup",
]
