"""Mutated PTX: the emulator reads, compiles and runs it, or says what is wrong with it in an error of Trueno's.

A case is a text and whether it is launched, and follows from its number alone.  Three kinds, from the quickest: a few
instructions of any form, with operands that may fit; a few lines of a real kernel under its own declarations; a whole
kernel, cut and spliced.

`python -m tests.hostile.ptx_mutants --count 1000000 --jobs 2` runs many, `--case NUMBER` shows one.
"""

import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from trueno.errors import TruenoError
from trueno_cuda.ptx.emulate import Module
from trueno_cuda.ptx.syntax.errors import InternalError

from . import many
from .ptx_mutations import borrowed, formed, pool, whole

LAUNCHED = 0.2
"""The share of texts that are launched."""
STEPS = 400
MAKERS, SHARES = (formed, borrowed, whole), (16, 8, 1)


class Case(NamedTuple):
    """number: `case` gives this one for it again."""

    number: int
    text: str
    launched: bool


def case(number: int) -> Case:
    """The case of a number."""
    rng = random.Random(number)
    text = rng.choices(MAKERS, SHARES)[0](rng)
    return Case(number, text, rng.random() < LAUNCHED)


def cases(rng: random.Random | np.random.Generator) -> Iterator[Case]:
    """Cases without end."""
    while True:
        yield case(rng.getrandbits(48) if isinstance(rng, random.Random) else int(rng.integers(1 << 48)))


def run(one: Case) -> str:
    """Load, compile and perhaps launch a text; what became of it in a word.  Raises bugs alone."""
    try:
        module = Module(one.text)
        for name in module.names:
            module.kernel(name)
        for name in module.names if one.launched else ():
            launch(module, name)
    except InternalError:
        raise
    except TruenoError as error:
        return type(error).__name__
    return "launched" if one.launched else "compiled"


def launch(module: Module, name: str) -> None:
    """Run an entry for a while on a few small arrays and numbers."""
    kernel = module.kernel(name)
    args: list[object] = []
    for p in kernel.params:
        pointer = p.type.bits == 64 and p.type.kind != "f"
        number = 3.0 if p.type.kind == "f" else 3
        args.append(bytes(p.size) if p.array else np.arange(1024, dtype=np.float32) if pointer else number)
    directives = kernel.function.directives
    block = (*directives.get("reqntid", (64,)), 1, 1)[:3]
    grid = (*directives.get("reqnctapercluster", (2,)), 1, 1)[:3]
    if np.prod(grid, dtype=object) <= 16:  # what a directive may ask for is slow, not wrong
        str(module.launch(name, grid, block, args, shared=1024, global_races=True, max_steps=STEPS))


if __name__ == "__main__":
    sys.exit(many.main("ptx_mutants", __doc__ or "", case, run, pool))
