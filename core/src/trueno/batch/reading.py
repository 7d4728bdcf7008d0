"""Reading a batch's results: at once, or begun now and waited for later."""

from collections.abc import Callable
from typing import Any

import numpy as np

from trueno.aio import turns
from trueno.aio.calls import away
from trueno.batch.alone import Alone
from trueno.batch.counts import Tally
from trueno.batch.graph import Graph
from trueno.batch.handle import Handle
from trueno.batch.incoming import fits
from trueno.batch.run import Replay
from trueno.batch.steps import Schedule, updating
from trueno.batch.uploads import Uploads
from trueno.dispatch import state, transfer
from trueno.dispatch.fallback import wrapping_errors
from trueno.errors import BatchError
from trueno.interop.calls import aimed


class Reading:
    """The part of a batch that reads."""

    _graph: Graph
    _uploads: Uploads
    _tally: Tally
    _replay: Replay | None
    _feeds: dict[int, int]
    _planned: int
    _done: bool
    _changed: bool
    _alone: Callable[[str], Alone]
    _value: Callable[[str, str, Any], int]
    _scheduled: Callable[[list[int]], Schedule]
    _with_buffers: Callable[[Schedule], Replay]
    _run: Callable[[Replay, state.State], None]
    _state: Callable[[], state.State]

    def read(self, h: Handle, out: Any = None) -> Any:
        """A copy of a handle's array, in `out` if given; a NumPy scalar if the op returns one.

        out: NumPy's array, or another library's on the host; it is returned.  A handle that was fused into other ops is
        computed now.  BatchError before `execute()`, and for such a handle after its uploads have changed.
        """
        v = self._value("read", "h", h)
        with self._alone("read"):
            given = out
            if out is not None:
                out = aimed("read", out)
                fits(self._graph.values[v], out)
            array = self._found(v)
            backend = self._uploads.backend()
            if backend is not None:
                with wrapping_errors("read", backend.name):
                    result = transfer.download(backend, array, out, "Batch")
            elif out is None:
                result = np.array(array)
            else:
                np.copyto(out, array)
                result = out
            self._tally.downloads += 1
            self._tally.bytes += result.nbytes
        return given if given is not None else result if result.ndim else result[()]

    def fetch(self, h: Handle) -> Callable[[], Any]:
        """Begin to read a handle's array, and return the function that waits for it and returns it.

        A device copies it after what was executed so far; later executions may begin meanwhile.  Called once.
        """
        v = self._value("fetch", "h", h)
        with self._alone("fetch"):
            array, backend = self._found(v), self._uploads.backend()
            if backend is None:
                copy = np.array(array)
                begun: Callable[[], Any] = lambda: copy  # noqa: E731
            else:
                with wrapping_errors("fetch", backend.name):
                    begun = transfer.begun(backend, array)
            self._tally.downloads += 1
            self._tally.bytes += array.nbytes
        return begun

    async def read_async(self, h: Handle) -> Any:
        """`read` while the event loop stays free; in a page (Pyodide) the way to read where calls may not wait.

        Nothing else may use the batch until then: BatchError.
        """
        v = self._value("read_async", "h", h)
        with self._alone("read_async"):
            array, backend = self._found(v), self._uploads.backend()
            if backend is None:
                result = np.array(array)
            elif turns.waits():
                with wrapping_errors("read_async", backend.name):
                    result = await away(transfer.download, (backend, array, None, "Batch"), {}, keep=True)
            else:
                result = await turns.read(array, "read_async")
            self._tally.downloads += 1
            self._tally.bytes += result.nbytes
        return result if result.ndim else result[()]

    def _found(self, v: int) -> Any:
        value = self._graph.values[v]
        if value.updated:
            raise BatchError(f"read: {value.updated} has updated h; read the handle that it returned")
        if value.maker < 0:
            return self._uploads.arrays[v]
        op = self._graph.ops[value.maker].op.name
        if not self._done or self._replay is None or v >= self._planned:
            raise BatchError(f"read: h, a result of {op}, was not executed yet; call b.execute() first")
        if value.whole >= 0:
            return self._found(value.whole).reshape(value.shape)
        if value.upload >= 0 and not self._changed:
            return self._uploads.arrays[value.upload]
        if v in self._replay.schedule.results and value.upload < 0:
            return self._replay.arrays[v]
        if self._changed or self._feeds:
            raise BatchError(
                f"read: h, a result of {op}, was fused into other ops, and its uploads have changed since; "
                "call b.keep(h) before b.execute() to compute it"
            )
        found = self._scheduled([v])
        if updater := updating(self._graph, found.steps):
            raise BatchError(
                f"read: h, a result of {op}, was fused into other ops, and {updater} beside it uses an upload that the "
                "run has updated; call b.keep(h) before b.execute() to compute it"
            )
        replay = self._with_buffers(found)
        try:
            self._run(replay, self._state())
        finally:
            self._tally.drop(replay.schedule.buffers.nbytes)
        return replay.arrays[v]
