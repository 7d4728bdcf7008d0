"""The catalogue's entry of messages: the second GPU's launch, after the others have sent their parts."""

from functools import reduce
from operator import add
from typing import Any

import numpy as np
from trueno.errors import KernelError

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.kernels.exchange.cells import loaded, stored
from trueno_cuda.kernels.exchange.inboxes import BLOCKS, MEETINGS, POLLS_EMULATED, SMALL, THREADS, half
from trueno_cuda.kernels.exchange.launches import source
from trueno_cuda.kernels.exchange.packets import carried, packets
from trueno_cuda.kernels.exchange.shares import owned
from trueno_cuda.ptx import Kernel

CAPACITY, RANK, WIDTHS = 4096, 1, (12, 20)
"""Of a sample."""


def _ranks(name: str) -> int:
    return 3 if name == "shared" else 2


def _build(arch: str, *, name: str, V: int, NARROW: bool) -> Kernel:
    if NARROW and name == "rows":
        raise KernelError("rows are sent as they are")
    more: dict[str, Any] = {} if name == "small" else {"CAPACITY": CAPACITY, "V": V}
    more |= {"WIDTHS": WIDTHS} if name == "rows" else {"NARROW": True} if NARROW else {}
    return source(name, _ranks(name), RANK).build(arch, N=_ranks(name), RANK=RANK, **more)


def _sample(rng: np.random.Generator, *, name: str, V: int, NARROW: bool) -> Sample:
    ranks = _ranks(name)
    width = 19 if V == 1 or name == "small" else 16
    parts = [rng.standard_normal((61, n)).astype(np.float32) for n in (WIDTHS if name == "rows" else (width,) * ranks)]
    mine, others = parts[RANK], [i for i in range(ranks) if i != RANK]
    bits = [stored(x.ravel(), NARROW) for x in parts]
    total = np.hstack(parts) if name == "rows" else reduce(add, map(loaded, bits)).reshape(mine.shape)
    vectors = -(-mine.size // (carried(NARROW) if name == "small" else V))
    cuts, finished = [slice(0, mine.size)] * ranks, stored(total.ravel(), NARROW)
    if name == "shared":
        total = loaded(finished).reshape(mine.shape)
        cuts, vectors = [slice(V * c.start, V * c.stop) for c in owned(vectors, ranks)], -(-vectors // ranks)
    blocks = -(-vectors // THREADS)
    operands: dict[str, Any] = {"x": mine, "out": np.zeros(total.shape, np.float32)}
    operands |= {"epochs": np.zeros(BLOCKS, np.uint32), "polls": POLLS_EMULATED}
    operands |= {"rows": len(mine)} if name == "rows" else {"count": mine.size // (1 if name == "small" else V)}
    wants = {"out": Want(total), "epochs": Want(np.ones(BLOCKS, np.uint32))}

    def filled(memory: Any, rank: int, what: Any, start: int = 0) -> None:
        """What GPU `rank` writes to a side, in its place."""
        memory[1, rank].view(what.dtype)[start * 4 // what.itemsize :][: what.size] = what

    if name == "small":
        here, there, sent = (np.zeros((2, ranks, SMALL * 2), np.uint32) for _ in range(3))
        filled(here, 0, packets(parts[0], 1, NARROW))
        filled(sent, RANK, packets(mine, 1, NARROW))
        return Sample(
            (blocks, 1, 1), operands | {"packets": here, "packets_0": there}, wants | {"packets_0": Want(sent)}
        )
    inbox, flags = np.zeros((2, ranks, CAPACITY), np.float32), np.zeros((MEETINGS, BLOCKS, ranks), np.uint32)
    meetings = 2 if name == "shared" else 1
    for i in others:
        operands |= {f"inbox_{i}": np.zeros_like(inbox), f"flags_{i}": np.zeros_like(flags)}
        sent, told = np.zeros_like(inbox), np.zeros_like(flags)
        filled(sent, RANK, bits[RANK][cuts[i]])
        filled(inbox, i, bits[i][cuts[RANK]])
        if name == "shared":
            filled(sent, RANK, finished[cuts[RANK]], half(CAPACITY))
            filled(inbox, i, finished[cuts[i]], half(CAPACITY))
        told[:meetings, :blocks, RANK] = flags[:meetings, :blocks, i] = 1
        wants |= {f"inbox_{i}": Want(sent), f"flags_{i}": Want(told)}
    return Sample((blocks, 1, 1), operands | {"inbox": inbox, "flags": flags}, wants)


CATALOGUE = [
    CatalogueEntry(
        "exchange",
        "messages",
        "the sum of all GPUs' numbers, or their rows beside each other, on each",
        _build,
        _sample,
        (
            Constant("name", "sum", "what becomes of the parts", ("sum", "shared", "small", "rows")),
            Constant("V", 4, "elements an access", (1, 4, 8)),
            Constant("NARROW", False, "numbers are sent in bfloat16", (False, True)),
        ),
        variants=(
            {},
            {"V": 1},
            {"name": "shared"},
            {"name": "shared", "V": 1},
            {"name": "small"},
            {"name": "rows"},
            {"name": "rows", "V": 1},
            *({"name": name, "V": V, "NARROW": True} for name in ("sum", "shared") for V in (8, 1)),
            {"name": "small", "NARROW": True},
        ),
    )
]
