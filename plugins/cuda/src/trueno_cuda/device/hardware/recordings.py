"""Launches recorded as a CUDA graph, and replayed with one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, get_ident
from typing import Any
from weakref import finalize

from trueno.errors import KernelError, TruenoError

from trueno_cuda.device.hardware.contexts import Context


class Recording:
    """What was launched while it was made.  `replay()` runs it on the caller's current stream, on the same arrays.

    held: what must live as long: arrays that were made inside, whose addresses the graph has.  status: the word of its
    guarded kernels, if there are any.  scratch: what its calls share, one after the other.
    """

    def __init__(self, replay: Callable[["Recording"], None]) -> None:
        self._replay = replay
        self.held: list[Any] = []
        self.status: Any = None
        self.scratch: Any = None
        self.graph = 0
        """Handle of what can be run; 0 as long as it is being made, and for good where that failed."""
        self.stream = 0
        """Where launches go while it is being made."""
        self.lock = Lock()

    def replay(self) -> None:
        """Run it, after what is on the stream.  KernelError while it is being made, or if that failed."""
        self._replay(self)


class Recorder:
    """Makes recordings; any number of threads may, each its own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._driver = context.driver
        self._lock = Lock()
        self._streams: list[int] = []
        self._graphs: set[int] = set()
        self.active: dict[int, Recording | None] = {}
        """By thread, the recording that it is making."""

    def current(self) -> Recording | None:
        """The recording that this thread is making."""
        return self.active.get(get_ident()) if self.active else None

    @contextmanager
    def record(self, made: Recording) -> Iterator[Recording]:
        """Keep what this thread launches; dropped where that ends with an error.  The GPU's context is current."""
        me = get_ident()
        if me in self.active:
            raise KernelError("a recording cannot be made inside another one of the same thread")
        with self._lock:
            stream = self._streams.pop() if self._streams else self._driver.stream()
        self._driver.begin(stream)
        made.stream, self.active[me] = stream, made
        try:
            yield made
        except BaseException:
            self.active.pop(me, None)
            with suppress(TruenoError):
                self._driver.call("cuGraphDestroy", self._end(stream))
            raise
        self.active.pop(me, None)  # a child of a fork has none
        graph = self._end(stream)
        try:
            made.graph = self._driver.instantiate(graph)
        finally:
            self._driver.call("cuGraphDestroy", graph)
        self._graphs.add(made.graph)
        finalize(made, self._destroy, made.graph).atexit = False

    def _end(self, stream: int) -> int:
        try:
            return self._driver.end(stream)
        finally:  # it is free again also where the recording failed
            with self._lock:
                self._streams.append(stream)

    def _destroy(self, graph: int) -> None:
        if graph in self._graphs:
            self._graphs.discard(graph)
            with suppress(TruenoError), self._context:  # the collector runs in any thread
                self._driver.call("cuGraphExecDestroy", graph)

    def forget(self) -> None:
        """In a child process: all of it is the parent's."""
        self._streams, self._graphs, self._lock = [], set(), Lock()
        self.active.clear()

    def close(self) -> None:
        """Let go of streams and graphs; recordings that live on are of no use."""
        for graph in tuple(self._graphs):
            self._destroy(graph)
        with self._lock:
            for stream in self._streams:
                with suppress(TruenoError):
                    self._driver.call("cuStreamDestroy_v2", stream)
            self._streams = []
