"""Uniforms by content: slots in pages, bound with an offset, so that another number needs no new bind group.

A slot is written when its content is new, and again only when no command can read it: a command that is not submitted
yet holds its `Slot`; what was submitted runs before anything that is written later.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from trueno_wgpu.device.cache import Lru
from trueno_wgpu.device.memory import numbers

STRIDE = 256
"""WebGPU's alignment of an offset, and the bytes that are bound where a kernel has no more."""
PAGE = 256
"""Slots in a page."""
KEPT = 1024
"""Contents that are cached."""


class Page:
    """A uniform buffer of many slots of `size` bytes."""

    __slots__ = ("handle", "size", "uid")

    def __init__(self, handle: Any, size: int) -> None:
        self.handle = handle
        self.size = size
        self.uid = next(numbers)


class Slot:
    """A place in a page; free again when its last reference is gone."""

    __slots__ = ("_free", "offsets", "page")

    def __init__(self, page: Page, offset: int, free: "deque[tuple[Page, int]]") -> None:
        self.page = page
        self.offsets = (offset,)
        self._free = free

    def __del__(self) -> None:
        self._free.append((self.page, self.offsets[0]))


class Uniforms:
    """All slots.  make: a uniform buffer of so many bytes; write: bytes into one.  Its user holds a lock."""

    def __init__(self, make: Callable[[int], Any], write: Callable[[Any, int, bytes], None]) -> None:
        self._make, self._write = make, write
        self._known: Lru[Slot] = Lru(KEPT)
        self._free: dict[int, deque[tuple[Page, int]]] = {}
        self._pages: list[Page] = []  # as `Pool` holds what it lends: slots may die in one circle with their page

    def slot(self, content: bytes) -> Slot:
        """A slot with this content."""
        slot = self._known.get(content)
        if slot is None:
            slot = self._fresh(max(-(-len(content) // STRIDE), 1) * STRIDE)
            packed = content + bytes(-len(content) % 16 or (0 if content else 16))
            self._write(slot.page.handle, slot.offsets[0], packed)
            self._known.put(content, slot)
        return slot

    def _fresh(self, size: int) -> Slot:
        free = self._free.setdefault(size, deque())
        if not free:
            page = Page(self._make(size * PAGE), size)
            self._pages.append(page)
            free.extend((page, i * size) for i in range(PAGE))
        page, offset = free.popleft()
        return Slot(page, offset, free)
