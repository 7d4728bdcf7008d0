"""What a batch has done so far, in numbers: tests assert these, and never times."""

from dataclasses import dataclass

from trueno.dispatch.transfer import Moved


@dataclass(frozen=True, slots=True)
class Counts:
    """Counted alike on every backend; in the host's own memory an upload or download moves nothing over a link.

    uploads, downloads, bytes: arrays passed in and read, and their bytes; moves by the general path, guards or kernels
    elsewhere while it ran.  submits: executions that ran a kernel.  kernels: kernels run.  allocations:
    buffers created.  peak_bytes: the most that the batch held at once; arrays of the caller that it only borrows do not
    count, nor does temporary memory of a kernel or of the general path.
    """

    uploads: int = 0
    downloads: int = 0
    bytes: int = 0
    submits: int = 0
    kernels: int = 0
    allocations: int = 0
    peak_bytes: int = 0


class Tally:
    """The counters behind `Counts`, and the bytes that the batch holds now."""

    __slots__ = ("_held", "_peak", "allocations", "bytes", "downloads", "kernels", "submits", "uploads")

    def __init__(self) -> None:
        self.uploads = self.downloads = self.bytes = self.submits = self.kernels = self.allocations = 0
        self._held = self._peak = 0

    def hold(self, nbytes: int, buffers: int = 1) -> None:
        """Count buffers that the batch has created."""
        self.allocations += buffers
        self._held += nbytes
        self._peak = max(self._peak, self._held)

    def drop(self, nbytes: int) -> None:
        """Count buffers that the batch has released."""
        self._held -= nbytes

    def drop_all(self) -> None:
        self._held = 0

    def moved(self, before: Moved, after: Moved) -> None:
        """Count arrays that were moved during other work."""
        self.uploads += after.uploads - before.uploads
        self.downloads += after.downloads - before.downloads
        self.bytes += after.bytes - before.bytes

    def ran(self, kernels: int) -> None:
        """Count an execution that has ended without an error."""
        self.submits += bool(kernels)
        self.kernels += kernels

    def counts(self) -> Counts:
        return Counts(
            self.uploads, self.downloads, self.bytes, self.submits, self.kernels, self.allocations, self._peak
        )
