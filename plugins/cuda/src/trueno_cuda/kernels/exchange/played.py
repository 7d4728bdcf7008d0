"""What the other GPUs do during a launch on the emulator, which copies all memory of a kernel in, and out again.

So everything that a launch waits for is there before it begins: each GPU plays its own messages, by NumPy, meeting by
meeting.  Then their kernels run one after the other.  What a kernel sends is taken back before, and compared with what
was played after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from trueno.errors import KernelError

from trueno_cuda.kernels.exchange.cells import loaded, stored
from trueno_cuda.kernels.exchange.inboxes import Exchange
from trueno_cuda.kernels.exchange.packets import packets
from trueno_cuda.kernels.exchange.shares import owned


class Form(NamedTuple):
    """Of a launch.  name: of its kernel.  narrow: numbers are sent in bfloat16.  V: numbers of an access."""

    name: str
    narrow: bool
    V: int
    blocks: int


def play(exchange: Exchange, rank: int, x: Any, form: Form, launch: Callable[[], None]) -> None:
    """The launch of an emulated GPU, in a thread beside those of the others."""
    ranks, narrow = len(exchange.devices), form.narrow
    others, numbers = [i for i in range(ranks) if i != rank], x.elements.ravel()
    epoch = (int(exchange.epochs[rank].elements[0]) + 1) & 0xFFFFFFFF
    sent: list[tuple[Any, Any]] = []  # memory of other GPUs, and what this one writes to it

    def send(memory: Any, what: Any) -> None:
        memory = memory.view(what.dtype)[: what.size]
        memory[...] = what
        sent.append((memory, what))

    def tell(meeting: int) -> None:
        for i in others:
            send(exchange.flags[i].elements[meeting, :, rank], np.full(form.blocks, epoch, np.uint32))
        exchange.meet()

    if form.name == "small":
        for i in others:
            send(exchange.packets[i].elements[epoch & 1, rank], packets(numbers, epoch, narrow))
        exchange.meet()
    else:
        cuts = [slice(0, numbers.size)] * ranks
        if form.name == "shared":
            cuts = [slice(c.start * form.V, c.stop * form.V) for c in owned(numbers.size // form.V, ranks)]
        for i in others:
            send(exchange.slot(i, epoch, rank), stored(numbers[cuts[i]], narrow))
        tell(0)
        if form.name == "shared":
            total, own = None, stored(numbers[cuts[rank]], narrow)
            for i in range(ranks):
                bits = own if i == rank else exchange.slot(rank, epoch, i).view(own.dtype)[: own.size]
                total = loaded(bits) if total is None else total + loaded(bits)
            for i in others:
                send(exchange.slot(i, epoch, rank, finished=True), stored(np.asarray(total), narrow))
            tell(1)
    with exchange.lock:
        for memory, _ in sent:
            memory.fill(np.iinfo(memory.dtype).max)
        launch()
        if not all(_same(memory, what, narrow) for memory, what in sent):
            raise KernelError(f"an exchange: GPU {rank} has not sent what it had to")
    exchange.meet()


def _same(memory: Any, what: Any, narrow: bool) -> bool:
    """Whether the bits are the same, but for those of a NaN."""
    kind = np.uint16 if narrow else np.uint32
    a, b = np.ascontiguousarray(memory).view(kind), what.view(kind)
    return bool(np.all((a == b) | np.isnan(loaded(a)) & np.isnan(loaded(b))))
