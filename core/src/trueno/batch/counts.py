"""What a batch has done so far, in numbers: tests assert these, and never a time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Counted alike on every backend; in the host's own memory an upload or download moves nothing over a link.

    uploads, downloads, bytes: arrays given and read, and what they hold.  submits: executions that ran a kernel.
    kernels: kernels run.  allocations: buffers made.  peak_bytes: the most that the batch held at once; arrays of the
    caller that it only borrows are not in it.
    """

    uploads: int = 0
    downloads: int = 0
    bytes: int = 0
    submits: int = 0
    kernels: int = 0
    allocations: int = 0
    peak_bytes: int = 0
