"""The words on the GPU in which guarded kernels report a NaN or an Inf."""

from collections.abc import Callable
from ctypes import addressof, c_uint32
from threading import local
from typing import Any

from trueno_cuda.device.hardware.contexts import Context


class _Here(local):
    """What each thread has: its own word, and all words that it has to read, by address."""

    def __init__(self) -> None:
        self.own: Any = None
        self.asked: dict[int, Any] = {}


class StatusWords:
    """Each thread's word, and those of the recordings that it replays.

    empty: makes an uninitialised array for a word.  stream: gives the handle of the thread's stream.
    """

    def __init__(self, context: Context, empty: Callable[[], Any], stream: Callable[[], int]) -> None:
        self._context = context
        self._driver = context.driver
        self._empty = empty
        self._stream = stream
        self._here = _Here()

    def own(self) -> int:
        """Address of this thread's word, which will be read the next time."""
        here = self._here
        if here.own is None:
            here.own = self.new()
        return self.ask(here.own)

    def new(self) -> Any:
        """A word of zeros."""
        word = self._empty()
        with self._context:
            self._driver.call("cuMemsetD32Async", word.data.ptr, 0, 1, self._stream())
        return word

    def ask(self, word: Any) -> int:
        """Read a word the next time; its address."""
        address = int(word.data.ptr)
        self._here.asked[address] = word
        return address

    @property
    def asked(self) -> bool:
        """Whether this thread has words to read."""
        return bool(self._here.asked)

    def take(self) -> int:
        """Wait for what is on the stream; the bits of all words that were asked for, which are cleared."""
        bits, stream, word, asked = 0, self._stream(), c_uint32(), self._here.asked
        with self._context:
            while asked:
                address, _ = asked.popitem()
                self._driver.call("cuMemcpyDtoHAsync_v2", addressof(word), address, 4, stream)
                self._driver.call("cuStreamSynchronize", stream)
                if word.value:
                    self._driver.call("cuMemsetD32Async", address, 0, 1, stream)
                bits |= word.value
        return bits
