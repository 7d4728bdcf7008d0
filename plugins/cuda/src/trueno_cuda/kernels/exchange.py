# mypy: disable-error-code="valid-type"
"""Sums and rows of several GPUs in one launch each: every GPU writes its part into all others' memory, and waits.

A message of some kilobytes costs its latency alone: a store crosses the link in about a microsecond, and so does the
flag after it.  Each block sends its share, says so to the same block of each other GPU, and waits for theirs; blocks of
one GPU never wait for one another.  A GPU has an inbox with two sides, which launches use in turn.  The side of a
launch is free again: to begin one, a GPU has finished the one before, for which every other GPU must have begun it, and
therefore finished its predecessor.  Sums are made in the order of the GPUs, so all of them get the same bits.

Small sums need no flag, nor the wait of a fence before it: a packet of 16 bytes, which arrives as a whole, holds two
numbers and twice the number of the launch (NCCL calls this LL).  Twice the bytes, and one crossing of the link.

Floor: a crossing, and the bytes of all others' parts over the link.  Of two H200 a sum of 16 KiB takes 2.6 us in a
graph, and one of 16 MiB 64 us, 263 GB/s.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from trueno.backend import Call, Kernel, Rates, op
from trueno.errors import KernelError

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.operands import VECTOR, build, typed
from trueno_cuda.kernels.table import KERNELS
from trueno_cuda.ptx import Builder, Pointer, Source, Value, f32, ptr, u32
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
BLOCKS, UNROLL = 128, 4
"""The most blocks of a launch, each with a flag for each GPU; vectors of a thread that are on their way at once."""
POLLS = 1 << 24
"""Looks at a flag, each a microsecond or less, after which a GPU gives up: its results are NaN then."""
POLLS_EMULATED = 64
WAIT_S = 120.0
"""How long an emulated GPU waits for the others."""
SIDE = 16 << 20
"""Bytes of a side that one GPU may fill."""
SMALL, WORDS = 1 << 15, 4
"""Numbers of a sum that are sent in packets, and words of one: number, launch, number, launch."""
RATES = Rates(launch_s=6e-6, flops=1e12, bytes=2e11)


class Exchange:
    """Inboxes of some GPUs, and the flags beside them; every GPU can write to all.

    capacity: float32 numbers that a GPU may send at once.
    """

    def __init__(self, number: int, devices: list[Device], capacity: int) -> None:
        self.number, self.devices, self.capacity = number, devices, capacity
        ranks = len(devices)
        self.inboxes = [d.empty((2, ranks, capacity), np.dtype(np.float32)) for d in devices]
        self.packets = [d.to_device(np.zeros((2, ranks, SMALL * 2), np.uint32)) for d in devices]
        self.flags = [d.to_device(np.zeros((ranks, BLOCKS), np.uint32)) for d in devices]
        self.epochs = [d.to_device(np.zeros(BLOCKS, np.uint32)) for d in devices]
        for device in devices:
            device.wait()
        self._barrier, self._lock = Barrier(ranks), Lock()

    def pointers(self, rank: int, small: bool) -> list[int]:
        """The addresses that a launch takes after its operands."""
        kinds = (self.packets,) if small else (self.inboxes, self.flags)
        arrays = [*(kind[rank] for kind in kinds), self.epochs[rank]]
        arrays += [kind[i] for kind in kinds for i in range(len(self.devices)) if i != rank]
        return [x.data.ptr for x in arrays]

    def emulate(self, rank: int, x: Any, launch: Callable[[], None]) -> None:
        """A launch on an emulated GPU, whose kernels copy memory in and out: what others send is there before it."""
        epoch = int(self.epochs[rank].elements[0]) + 1
        for i in range(len(self.devices)):
            if i != rank:
                self.inboxes[i].elements[epoch & 1, rank, : x.size] = x.elements.ravel()
                self.flags[i].elements[rank] = epoch
                if x.size <= SMALL:
                    self.packets[i].elements[epoch & 1, rank, : packed(x.size)] = packets(x.elements, epoch)
        self._meet()
        with self._lock:
            launch()
        self._meet()

    def _meet(self) -> None:
        try:
            self._barrier.wait(WAIT_S)
        except BrokenBarrierError:
            raise KernelError("an exchange waited for the other GPUs; execute their batches in threads") from None


def packed(count: int) -> int:
    """Words of the packets of so many numbers."""
    return -(-count // 2) * WORDS


def packets(x: np.ndarray[Any, Any], epoch: int) -> np.ndarray[Any, Any]:
    """The words of numbers on their way in launch `epoch`."""
    words = np.full(packed(x.size), epoch, np.uint32)
    numbers = np.append(x.ravel(), np.zeros(x.size % 2, np.float32)).astype(np.float32)
    words[::2] = numbers.view(np.uint32)
    return words


EXCHANGES: "WeakValueDictionary[int, Exchange]" = WeakValueDictionary()
"""By number, which the ops have as a parameter."""


@op("x[...] -> y[...]", structured=True, flops="rows", table=False)
def exchanged_sum(x, *, group: int = 0, rank: int = 0):  # type: ignore[no-untyped-def]
    """y = the sum of the x of all GPUs of a group, in their order; rank: this GPU's place among them."""
    return x


def _numbers(widths: str) -> tuple[int, ...]:
    return tuple(map(int, widths.split()))


def _gathered(x: tuple[int, ...], group: int, rank: int, widths: str) -> tuple[tuple[int, ...], ...]:
    return ((*x[:-1], sum(_numbers(widths))),)


@op("x[...,n] -> y[...,m]", structured=True, flops="rows", shapes=_gathered, table=False)
def exchanged_rows(x, *, group: int = 0, rank: int = 0, widths: str = ""):  # type: ignore[no-untyped-def]
    """y = the x of all GPUs of a group beside each other; widths: how many numbers of a row each has."""
    return x


# ------------------------------------------------------------------------------------- kernels


class _Parts:
    """What both kernels do: send, say so, wait, and end."""

    def __init__(self, k: Builder, N: int, RANK: int, CAPACITY: int, inbox: Pointer, flags: Pointer, epochs: Pointer,
                 peers: dict[str, Pointer]) -> None:  # fmt: skip
        self.k, self.N, self.RANK, self.CAPACITY = k, N, RANK, CAPACITY
        self.inbox, self.flags, self.epochs = inbox, flags, epochs
        others = [i for i in range(N) if i != RANK]
        self.inboxes, self.signals = ([peers[f"{what}_{i}"] for i in others] for what in ("inbox", "flags"))
        self.late = k.shared(u32, 1)
        self.first, self.step = k.ctaid * THREADS + k.tid, k.nctaid * THREADS
        self.epoch = epochs.load(k.ctaid) + 1
        self.side = k.multiple_of((self.epoch & 1) * (N * CAPACITY), 4)
        with k.when(k.tid == 0):
            self.late.store(0, 0)

    def send(self, x: Pointer, count: Value, V: int) -> None:
        """`count` vectors, each to all others."""
        to = [pointer + (self.side + self.RANK * self.CAPACITY) for pointer in self.inboxes]
        for places in self.turns(count):
            loaded = [(at, where, x.load(at * V, vec=V, where=where)) for at, where in places]
            for at, where, values in loaded:
                for pointer in to:
                    pointer.store(at * V, values, where=where)

    def turns(self, count: Value) -> Iterator[list[tuple[Value, Value]]]:
        """Places of some of `count` vectors, and whether they are below it: the same for whom sends and who reads."""
        k = self.k
        for base in k.range(self.first, count, self.step * UNROLL):
            places = [base + self.step * n for n in range(UNROLL)]
            yield [(at, at < count) for at in places]

    def meet(self, polls: Value) -> Value:
        """Say that this block's share is sent, and wait for the same block of the others; whether one did not come."""
        k = self.k
        k.sync()
        with k.when(k.tid == 0):
            k.fence("system")
            for signal in self.signals:
                signal.store(self.RANK * BLOCKS + k.ctaid, self.epoch, order="release", scope="system")
        with k.when((k.tid < self.N) & (k.tid != self.RANK)):
            turns = k.var(u32, 0)
            with k.loop() as loop:
                seen = self.flags.load(k.tid * BLOCKS + k.ctaid, order="acquire", scope="system")
                loop.leave_if(seen - self.epoch < 1 << 31)  # the count goes round
                turns += 1
                loop.leave_if(turns > polls)
            with k.when(turns > polls):
                self.late.atomic("or", 0, 1)
        k.sync()
        return self.late.load(0) != 0

    def sent(self, rank: int) -> Pointer:
        """What a GPU has sent here."""
        return self.inbox + (self.side + rank * self.CAPACITY)

    def end(self) -> None:
        """Count the launch, for all blocks that a later one may have."""
        k = self.k
        with k.when(k.tid == 0):
            for block in k.range(k.ctaid, BLOCKS, k.nctaid):
                self.epochs.store(block, self.epoch)


def _sum(
    k: Builder, x: Pointer, out: Pointer, inbox: Pointer, flags: Pointer, epochs: Pointer, count: Value, polls: Value,
    *, N: int, RANK: int, CAPACITY: int, V: int, **peers: Pointer,
) -> None:  # fmt: skip
    """out[i] = the sum of all GPUs' x[i], for `count` vectors."""
    parts = _Parts(k, N, RANK, CAPACITY, inbox, flags, epochs, peers)
    parts.send(x, count, V)
    late = parts.meet(polls)
    arrived = [x if rank == RANK else parts.sent(rank) for rank in range(N)]
    for places in parts.turns(count):
        loaded = [[pointer.load(at * V, vec=V, where=where) for pointer in arrived] for at, where in places]
        for (at, where), (first, *rest) in zip(places, loaded, strict=True):
            for terms in rest:
                first = [a + b for a, b in zip(first, terms, strict=True)]
            out.store(at * V, [k.select(late, float("nan"), value) for value in first], where=where)
    parts.end()


def _small(
    k: Builder, x: Pointer, out: Pointer, packets: Pointer, epochs: Pointer, count: Value, polls: Value,
    *, N: int, RANK: int, **peers: Pointer,
) -> None:  # fmt: skip
    """out[i] = the sum of all GPUs' x[i], for `count` numbers, in packets."""
    first, step = k.ctaid * THREADS + k.tid, k.nctaid * THREADS
    epoch = epochs.load(k.ctaid) + 1
    side = k.multiple_of((epoch & 1) * (N * SMALL * 2), WORDS)
    others = {i: peers[f"packets_{i}"] + (side + RANK * SMALL * 2) for i in range(N) if i != RANK}
    for i in k.range(first, (count + 1) // 2, step):
        at, both = i * 2, i * 2 + 1 < count
        mine = [x.load(at), x.load(at + 1, where=both)]
        words = [mine[0].bits(u32), epoch, mine[1].bits(u32), epoch]
        for pointer in others.values():
            pointer.store(i * WORDS, words, order="relaxed", scope="system")
        terms = []
        for rank in range(N):
            if rank == RANK:
                terms.append(mine)
                continue
            inbox, turns = packets + (side + rank * SMALL * 2), k.var(u32, 0)
            arrived = [k.var(f32, float("nan")) for _ in mine]
            with k.loop() as loop:
                one, seen, two, too = inbox.load(i * WORDS, vec=WORDS, order="relaxed", scope="system")
                there = (seen == epoch) & (too == epoch)
                with k.when(there):
                    arrived[0].set(one.bits(f32))
                    arrived[1].set(two.bits(f32))
                turns += 1
                loop.leave_if(there | (turns > polls))
            terms.append(arrived)
        total = terms[0]
        for more in terms[1:]:
            total = [a + b for a, b in zip(total, more, strict=True)]
        out.store(at, total[0])
        out.store(at + 1, total[1], where=both)
    k.sync()
    with k.when(k.tid == 0):
        for block in k.range(k.ctaid, BLOCKS, k.nctaid):
            epochs.store(block, epoch)


def _rows(
    k: Builder, x: Pointer, out: Pointer, inbox: Pointer, flags: Pointer, epochs: Pointer, rows: Value, polls: Value,
    *, N: int, RANK: int, CAPACITY: int, V: int, WIDTHS: tuple[int, ...], **peers: Pointer,
) -> None:  # fmt: skip
    """out[row] = all GPUs' x[row] beside each other, WIDTHS numbers of each."""
    parts = _Parts(k, N, RANK, CAPACITY, inbox, flags, epochs, peers)
    parts.send(x, rows * (WIDTHS[RANK] // V), V)
    late = parts.meet(polls)
    starts = [0, *accumulate(WIDTHS)]
    for rank in range(N):
        arrived, width = (x if rank == RANK else parts.sent(rank)), WIDTHS[rank] // V
        for i in k.range(parts.first, rows * width, parts.step):
            values = arrived.load(i * V, vec=V)
            at = (i // width * starts[-1] + starts[rank]) if rank else i // width * starts[-1]
            place = k.multiple_of(at + i % width * V, V)
            out.store(place, [k.select(late, float("nan"), value) for value in values])
    parts.end()


@cache
def source(name: str, ranks: int, rank: int) -> Source:
    body, word = {"sum": (_sum, "count"), "small": (_small, "count"), "rows": (_rows, "rows")}[name]
    kinds = {"packets": ptr(u32)} if name == "small" else {"inbox": ptr(f32), "flags": ptr(u32)}
    pointers = {"x": ptr(f32), "out": ptr(f32), **kinds, "epochs": ptr(u32)}
    pointers |= {f"{what}_{i}": kind for what, kind in kinds.items() for i in range(ranks) if i != rank}
    return typed(body, f"exchange_{name}_{rank}_of_{ranks}", THREADS, pointers | {word: u32, "polls": u32})


def _kernel(name: str, device: Device, call: Call) -> Kernel:
    static = dict(call.static)
    widths = _numbers(static.get("widths", ""))
    exchange, rank = EXCHANGES[static["group"]], static["rank"]
    if exchange.devices[rank] is not device:
        raise KernelError(f"{call.op.name}: part {rank} belongs to another GPU than {call.residency}")
    ranks = len(exchange.devices)
    polls = POLLS_EMULATED if device.software else POLLS
    made: dict[Any, Any] = {}

    def run(x: Any, out: Any) -> int:
        dense = device.contiguous(x)
        if device.contiguous(out) is not out or not x.size:
            return -1
        if out.data.ptr % VECTOR:  # the others count vectors, whatever lies here
            aligned = device.empty(out.shape, out.dtype)
            status = run(x, aligned)
            device.copy(aligned, out)
            return status
        if dense.data.ptr % VECTOR:
            aligned = device.empty(x.shape, x.dtype)
            device.copy(dense, aligned)
            dense = aligned
        if x.size > exchange.capacity:
            raise KernelError(f"{call.op.name}: {x.size} numbers; an exchange is made for {exchange.capacity}")
        vec = 1 if any(w % 4 for w in widths or (x.size,)) else 4
        small, key = name == "sum" and x.size <= SMALL, (x.size, x.shape[-1:], vec)
        if key not in made:
            constants: dict[str, Any] = {"N": ranks, "RANK": rank}
            if not small:
                constants |= {"CAPACITY": exchange.capacity, "V": vec}
            if name == "rows":
                constants["WIDTHS"] = widths
            number = x.size if small else x.size // vec if name == "sum" else x.size // x.shape[-1]
            most = max(widths) * (x.size // x.shape[-1]) if widths else x.size  # of any GPU: all launch the same blocks
            blocks = min(BLOCKS, -(-most // ((2 if small else vec) * THREADS)))
            built = build(source("small" if small else name, ranks, rank), device.arch, tuple(constants.items()))
            made[key] = device.prepare(built, (blocks, 1, 1), (number, polls)), exchange.pointers(rank, small)
        launch, addresses = made[key][0], [dense.data.ptr, out.data.ptr, *made[key][1]]
        if device.software:
            device.host(lambda: exchange.emulate(rank, dense, lambda: launch(addresses)))
        else:
            launch(addresses)
        return 0

    return run


@KERNELS.add(exchanged_sum, rates=RATES, dtypes=("float32",), guarded=False)
def sums(device: Device, call: Call) -> Kernel:
    """x[…] of each GPU -> their sum, on each."""
    return _kernel("sum", device, call)


@KERNELS.add(exchanged_rows, rates=RATES, dtypes=("float32",), guarded=False)
def rows(device: Device, call: Call) -> Kernel:
    """x[…,n] of each GPU -> all of them along the last axis, on each."""
    return _kernel("rows", device, call)


# ------------------------------------------------------------------------------------- catalogue

CAPACITY = 4096
"""Of a sample."""


def _build(arch: str, *, name: str, V: int) -> Built:
    more = {"small": {}, "sum": {"CAPACITY": CAPACITY, "V": V},
            "rows": {"CAPACITY": CAPACITY, "V": V, "WIDTHS": (12, 20)}}[name]  # fmt: skip
    return source(name, 2, 1).build(arch, N=2, RANK=1, **more)


def _sample(rng: np.random.Generator, *, name: str, V: int) -> Sample:
    """The second of two GPUs, after the first one has sent its part."""
    theirs, mine = (rng.standard_normal((61, n)).astype(np.float32) for n in ((12, 20) if name == "rows" else (19, 19)))
    if name == "sum" and V > 1:
        theirs, mine = theirs[:, :16].copy(), mine[:, :16].copy()
    value = np.hstack((theirs, mine)) if name == "rows" else theirs + mine
    blocks = -(-mine.size // ((2 if name == "small" else V) * THREADS))
    epochs, ones = np.zeros(BLOCKS, np.uint32), np.ones(BLOCKS, np.uint32)
    operands: dict[str, Any] = {"x": mine, "out": np.zeros(value.shape, np.float32), "epochs": epochs,
                                "polls": POLLS_EMULATED}  # fmt: skip
    wants = {"out": Want(value), "epochs": Want(ones)}
    if name == "small":
        here, there = np.zeros((2, 2, SMALL * 2), np.uint32), np.zeros((2, 2, SMALL * 2), np.uint32)
        here[1, 0, : packed(theirs.size)] = packets(theirs, 1)
        sent = there.copy()
        sent[1, 1, : packed(mine.size)] = packets(mine, 1)
        operands |= {"packets": here, "packets_0": there, "count": mine.size}
        return Sample((blocks, 1, 1), operands, wants | {"packets_0": Want(sent)})
    inbox, flags = np.zeros((2, 2, CAPACITY), np.float32), np.zeros((2, BLOCKS), np.uint32)
    inbox[1, 0, : theirs.size], flags[0, :blocks] = theirs.ravel(), 1
    there, told = np.zeros_like(inbox), np.zeros_like(flags)
    sent, said = there.copy(), told.copy()
    sent[1, 1, : mine.size], said[1, :blocks] = mine.ravel(), 1
    operands |= {"inbox": inbox, "flags": flags, "inbox_0": there, "flags_0": told}
    operands |= {"rows": 61} if name == "rows" else {"count": mine.size // V}
    return Sample((blocks, 1, 1), operands, wants | {"inbox_0": Want(sent), "flags_0": Want(said)})


CATALOGUE = [
    CatalogueEntry(
        "exchange",
        "messages",
        "the sum of all GPUs' numbers, or their rows beside each other, on each",
        _build,
        _sample,
        (
            Constant("name", "sum", "what becomes of the parts", ("sum", "small", "rows")),
            Constant("V", 4, "elements an access", (1, 4)),
        ),
        variants=({}, {"V": 1}, {"name": "small"}, {"name": "rows"}, {"name": "rows", "V": 1}),
    )
]
