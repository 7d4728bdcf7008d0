"""What a batch has done so far, in numbers: tests assert these, and never a time."""

from dataclasses import dataclass

from trueno.dispatch.transfer import Moved


@dataclass(frozen=True, slots=True)
class Counts:
    """Counted alike on every backend; in the host's own memory an upload or download moves nothing over a link.

    uploads, downloads, bytes: arrays given and read, and what they hold; and what the general path, a guard or a kernel
    elsewhere moved while the batch ran.  submits: executions that ran a kernel.  kernels: kernels run.  allocations:
    buffers made.  peak_bytes: the most that the batch held at once; arrays of the caller that it only borrows are not
    in it, nor what a kernel or the general path needs for a moment.
    """

    uploads: int = 0
    downloads: int = 0
    bytes: int = 0
    submits: int = 0
    kernels: int = 0
    allocations: int = 0
    peak_bytes: int = 0


class Tally:
    """The counters behind `Counts`, and what the batch holds now."""

    __slots__ = ("_held", "_peak", "allocations", "bytes", "downloads", "kernels", "submits", "uploads")

    def __init__(self) -> None:
        self.uploads = self.downloads = self.bytes = self.submits = self.kernels = self.allocations = 0
        self._held = self._peak = 0

    def hold(self, nbytes: int, buffers: int = 1) -> None:
        """The batch has made buffers."""
        self.allocations += buffers
        self._held += nbytes
        self._peak = max(self._peak, self._held)

    def drop(self, nbytes: int) -> None:
        """The batch has let go of some."""
        self._held -= nbytes

    def drop_all(self) -> None:
        self._held = 0

    def moved(self, before: Moved, after: Moved) -> None:
        """Arrays that were moved while something else went on."""
        self.uploads += after.uploads - before.uploads
        self.downloads += after.downloads - before.downloads
        self.bytes += after.bytes - before.bytes

    def ran(self, kernels: int) -> None:
        """An execution has ended well."""
        self.submits += bool(kernels)
        self.kernels += kernels

    def counts(self) -> Counts:
        return Counts(
            self.uploads, self.downloads, self.bytes, self.submits, self.kernels, self.allocations, self._peak
        )
