"""The ops that exchange, in the table, and the launch of a call."""

from functools import cache
from typing import Any

from trueno.backend import Call, Kernel, Rates, op
from trueno.errors import KernelError

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.exchange import messages, packets, shares
from trueno_cuda.kernels.exchange.inboxes import BLOCKS, EXCHANGES, POLLS, POLLS_EMULATED, SMALL, THREADS
from trueno_cuda.kernels.exchange.played import Form, play
from trueno_cuda.kernels.operands import VECTOR, build, typed
from trueno_cuda.kernels.table import KERNELS
from trueno_cuda.ptx import Source, f32, ptr, u32

RATES = Rates(launch_s=6e-6, flops=1e12, bytes=2e11)
PRECISIONS = ("f32", "bf16")


@op("x[...] -> y[...]", structured=True, flops="rows", choices={"precision": PRECISIONS}, table=False)
def exchanged_sum(x, *, group: int = 0, rank: int = 0, precision: str = "f32"):  # type: ignore[no-untyped-def]
    """y = the sum of the x of all GPUs of a group, in their order; rank: this GPU's place among them.

    precision: bf16 rounds each x, and sums that are sent, to bfloat16.
    """
    return x


def _numbers(widths: str) -> tuple[int, ...]:
    return tuple(map(int, widths.split()))


def _gathered(x: tuple[int, ...], group: int, rank: int, widths: str) -> tuple[tuple[int, ...], ...]:
    return ((*x[:-1], sum(_numbers(widths))),)


@op("x[...,n] -> y[...,m]", structured=True, flops="rows", shapes=_gathered, table=False)
def exchanged_rows(x, *, group: int = 0, rank: int = 0, widths: str = ""):  # type: ignore[no-untyped-def]
    """y = the x of all GPUs of a group beside each other; widths: how many numbers of a row each has."""
    return x


@cache
def source(name: str, ranks: int, rank: int) -> Source:
    """The kernel called `name`: sum, shared, small or rows."""
    body, word = {
        "sum": (messages.whole, "count"), "shared": (shares.shared, "count"),
        "small": (packets.small, "count"), "rows": (messages.rows, "rows"),
    }[name]  # fmt: skip
    kinds = {"packets": ptr(u32)} if name == "small" else {"inbox": ptr(f32), "flags": ptr(u32)}
    pointers = {"x": ptr(f32), "out": ptr(f32), **kinds, "epochs": ptr(u32)}
    pointers |= {f"{what}_{i}": kind for what, kind in kinds.items() for i in range(ranks) if i != rank}
    return typed(body, f"exchange_{name}_{rank}_of_{ranks}", THREADS, pointers | {word: u32, "polls": u32})


def chosen(name: str, ranks: int, count: int, widths: tuple[int, ...] = (), narrow: bool = False) -> Form:
    """The launch for `count` numbers, the same on all GPUs.  widths: of rows."""
    wide = 8 if narrow else 4
    vec = 1 if any(w % wide for w in widths or (count,)) else wide
    if name == "sum" and count <= SMALL:
        name = "small"
    elif name == "sum" and shares.spares(ranks, count * (2 if narrow else 4)):
        name = "shared"
    vectors = -(-count // (packets.carried(narrow) if name == "small" else vec))
    vectors = shares.owned(vectors, ranks)[0].stop if name == "shared" else vectors
    return Form(name, narrow, vec, min(BLOCKS, -(-vectors // THREADS)))


def _kernel(name: str, device: Device, call: Call) -> Kernel:
    static = dict(call.static)
    widths, narrow = _numbers(static.get("widths", "")), static.get("precision") == "bf16"
    exchange, rank = EXCHANGES[static["group"]], static["rank"]
    if exchange.devices[rank] is not device:
        raise KernelError(f"{call.op.name}: part {rank} belongs to another GPU than {call.residency}")
    ranks = len(exchange.devices)
    polls = POLLS_EMULATED if device.software else POLLS
    made: dict[Any, Any] = {}

    def prepared(size: int, width: int) -> tuple[Form, Any, list[int]]:
        """How so many numbers are exchanged, its launch, and the addresses after those of the operands."""
        most = max(widths) * (size // width) if widths else size  # of any GPU: all launch the same blocks
        form = chosen(name, ranks, most, widths, narrow)
        small, constants = form.name == "small", {"N": ranks, "RANK": rank}
        constants |= {} if small else {"CAPACITY": exchange.capacity, "V": form.V}
        constants |= {"WIDTHS": widths} if widths else {"NARROW": True} if narrow else {}
        number = size // width if widths else size if small else size // form.V
        built = build(source(form.name, ranks, rank), device.arch, tuple(constants.items()))
        launch = device.prepare(built, (form.blocks, 1, 1), (number, polls))
        return form, launch, exchange.pointers(rank, small)

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
        key = x.size, x.shape[-1:]
        if key not in made:
            made[key] = prepared(x.size, x.shape[-1] if x.shape else 1)
        form, launch, more = made[key]
        addresses = [dense.data.ptr, out.data.ptr, *more]
        if device.software:
            device.host(lambda: play(exchange, rank, dense, form, lambda: launch(addresses)))
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
