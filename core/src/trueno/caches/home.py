"""Where the pages of a cache are: on the host, or on a device that has kernels for the ops on caches."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.caches.pages import Pages
from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.dispatch import transfer
from trueno.dispatch.asking import use
from trueno.dispatch.coerce import coerce_params
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.function import function
from trueno.errors import DeviceError, DtypeError, ParameterError
from trueno.interop.calls import returned, taken
from trueno.ops import TABLE
from trueno.select import policy

Array = npt.NDArray[Any]
OPS = ("kv_cache_scatter", "attention_decode")


class Home:
    """The place that was asked for by a backend's name; "" is the host, where backends without arrays of their own are.

    entry: the device on which pages are; None on the host.  guest: a device that has no kernel for a cache, as
    `reason` says: the pages are on the host, where its arrays are copied to and results from.
    """

    __slots__ = ("_sent", "entry", "guest", "reason")

    def __init__(self, device: str, form: str) -> None:
        self.entry = self.guest = None
        self.reason = ""
        self._sent: dict[str, tuple[Array, Any]] = {}
        if not isinstance(device, str):
            raise ParameterError(f'KVCache: device is {device!r}, not the name of a backend; write device="wgpu"')
        if not device:
            return
        device = registry.named(device)
        backend, entry = registry.load(device), registry.entries()[device]
        if not entry.foreign:
            return
        for op in map(TABLE.__getitem__, OPS):
            _, static = coerce_params(op, {p.name: p.default for p in op.params} | {"format": form})
            sizes = (1,) * len(op.operands)
            call = Call(op, np.dtype(np.float32), op.layout, 4, sizes, tuple(static.items()), entry.name)
            if (reject := policy.rejection(backend, call)) is not None:
                self.reason = f"{entry.name} has no kernel for {op.name} ({reject.code})"
                self.guest = entry
                return
        self.entry = entry

    @property
    def name(self) -> str:
        """The device of the pages, or "host"."""
        return self.entry.name if self.entry else "host"

    @property
    def place(self) -> str:
        """The same in a sentence, after "on"."""
        return self.entry.name if self.entry else "the host"

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Bytes of the cache: zero, because a kernel may multiply what lies behind a sequence by 0."""
        array = np.zeros(shape, np.uint8)
        if self.entry is None:
            return array
        with wrapping_errors("KVCache", self.entry.name):
            return transfer.upload(registry.load(self.entry.name), array, "KVCache")

    def copy(self, arrays: Sequence[Pages], copies: list[tuple[int, int]]) -> None:
        """Copy whole pages of all these arrays, each (from, to).

        On a device the ops themselves do so: attention that sees one key alone is the value beside it, to the last bit.
        """
        if self.entry is None:
            for pages in arrays:
                for source, target in copies:
                    pages.bytes[target] = pages.bytes[source]
            return
        page, heads = arrays[0].shape[1:3]
        sources, targets = np.repeat(np.array(copies, np.int64), page, axis=0).T
        tokens = np.tile(np.arange(page), len(copies))
        queries = {d: np.zeros((len(tokens), 1, heads, d), np.float32) for d in {pages.shape[3] for pages in arrays}}
        place = {d: transfer.to(q, self.entry.name) for d, q in queries.items()}
        table, lengths, slots = (
            transfer.to(x, self.entry.name) for x in (sources[:, None], tokens + 1, targets * page + tokens)
        )
        decode, scatter = function("attention_decode"), function("kv_cache_scatter")
        with use():  # whatever a caller asked for: the arrays are there
            for pages in arrays:
                x, d, form = pages.bytes, pages.shape[3], pages.format
                rows = decode(place[d], x, x, table, lengths, window=1, format=form)
                scatter(x, rows.reshape((len(tokens), heads, d)), slots, format=form, out=x)

    def operand(self, what: str, name: str, x: Any) -> Any:
        """The user's array, where the pages are; DeviceError for one of another place."""
        x = taken(f"KVCache.{what}", name, transfer.unwrap(x))
        if isinstance(x, np.ma.MaskedArray):
            raise DtypeError(f"KVCache.{what}: {name} is a masked array, whose mask would be lost; fill it first")
        there = transfer.device_of(x)
        if there is self.entry:
            return x if there else np.asarray(x)
        if there is not None and there is self.guest:
            return transfer.host(what, x)
        where = there.name if there else "the host"
        move = f"trueno.to({name}, {self.name!r})" if self.entry else f"trueno.numpy({name})"
        raise DeviceError(f"KVCache.{what}: {name} is on {where}, and the cache on {self.place}; move it: {move}")

    def result(self, y: Any, like: Any) -> Any:
        """A result, where the user's array `like` is."""
        moves = self.guest is not None and transfer.device_of(transfer.unwrap(like)) is self.guest
        return returned(like, transfer.to(y, self.guest.name) if moves else y)  # type: ignore[union-attr]

    def sent(self, name: str, x: Array) -> Any:
        """Indices where the pages are; those of one step serve all layers."""
        if self.entry is None:
            return x
        before = self._sent.get(name)
        if before is None or not np.array_equal(before[0], x):
            before = self._sent[name] = (x.copy(), transfer.to(x, self.entry.name))
        return before[1]

    def asking(self) -> AbstractContextManager[Any]:
        """Around ops on the host: the device that a user asked for has no kernel for them."""
        return nullcontext() if self.guest is None else use()
