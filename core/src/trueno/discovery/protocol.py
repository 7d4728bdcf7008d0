"""What a backend promises, and the records that it and the core exchange.

A backend is any object with the methods of `Backend`; nothing needs to be inherited.  The core asks
`supports` and `kernel` once per key and keeps the kernel; what hangs on an exact shape, the kernel itself
refuses.  API number 1.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

API = 1


class Refused(TypeError):
    """A kernel's "not for me" where it cannot return −1, as compiled code whose arguments do not fit is not entered.

    Nothing is written.  Any other exception that leaves a kernel is a failure of it: a bare TypeError, too.
    """


Kernel = Callable[..., Any]
"""`kernel(*operands, *scalars, *outs) -> 0 | None | status bits | -1`, all positional.

Operands come in the signature's order, then the float parameters in theirs, then each result's array.
Row programs (rank 1: one row): `e` and `w` [n], `r` and `u` []; rank 2: `e` [rows, n], `w` [n], `r` [rows],
`u` []; element results are shaped as `e`, row results as `r`.  All are C-contiguous with the call's dtype.
Structured ops: the shapes of the signature, leading axes as given.
The core hands over arrays of the key's type and dtype, in native byte order; the kernel verifies what else the key
does not say: lengths, contiguity, and that each result is an operand of the same extent or overlaps none.
−1 says "not for me", having written nothing; a kernel that cannot return it raises `Refused`.
A guarded kernel returns status bits: 1 a NaN, 2 an Inf in a result; one that runs later than it returns gives 0 and
leaves its bits to `synchronize`.
A device's kernel may have an `again(shapes)`: the kernel for arrays, operands and results, that are known to hold the
elements of these shapes, and are taken to be of them, whatever shape they have.  It need not look at their lengths, but
still does at contiguity, without which it refuses what would have to be copied first, and at overlaps.
Where arrays live on a device nobody has looked at their values: an index outside of its table gives a row of NaN.
The call's dtype is float32 or float64; of the ops that the manifest names under `half`, a kernel on a device's arrays
is also asked for in float16 and bfloat16, sums in float32 and rounds once, where it stores.
The arrays are of the type that the manifest's `arrays` names first: NumPy's, or the backend's own, made by `empty` and
`to_device`.  An own type has `shape`, `dtype` (as NumPy's) and `reshape(shape)`, which copies nothing.
"""


@dataclass(frozen=True, slots=True)
class Device:
    """One piece of hardware: `name` for people, `isa` such as avx512 or sm_90, and whether software emulates it."""

    name: str
    isa: str = ""
    software: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """Verdict of a probe: ok, else the reason as a sentence with its remedy.

    absent: that it is not ok because there is no hardware here that it runs on.  Nothing is wrong then: `trueno doctor`
    says so and is content.
    """

    ok: bool
    reason: str = ""
    devices: tuple[Device, ...] = ()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a backend will not take a call: a code of the fixed vocabulary, and a detail for people."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds, in seconds and units a second; the op supplies flops and bytes and the core multiplies."""

    launch_s: float
    flops: float
    bytes: float
    link_s: float = 0.0
    link_bytes: float = float("inf")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How exact a backend computes; the tolerance of every row program follows from it.

    ulp: worst error of each element function, `default` for those not named.  chain: the most additions in
    the call's dtype that one term of a sum passes through.  subnormals: False where they flush to zero.
    """

    ulp: dict[str, float] = field(default_factory=dict)
    default: float = 4.0
    chain: int = 76
    subnormals: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """What a plan's key holds, and nothing more.

    layout: kind letters of a row program's operands.  rank: 1 for one row, 2 for rows; of a structured op the
    rank of its first operand.  sizes: size classes (bit lengths): of a row program's first operand, of every
    operand of a structured op.  residency: `host`, or the backend on which the operands live.

    A batch also asks for ops that are in no table.  A chain of row programs is one, and runs as any does.  A structured
    op with an epilogue is one, too: `op.head` is the table's op, `op.epilogue` the row program that follows, over
    operands of `op.kinds`, the first of which is the head's result; the others come after the head's operands, shaped
    by kind: `e` as the result, `w` as its last axis, `r` without that axis, `u` [].  Parameters are the head's, then
    the epilogue's.  Who answers a `Reject` is asked for the parts.
    """

    op: Any
    dtype: np.dtype[Any]
    layout: str
    rank: int
    sizes: tuple[int, ...]
    static: tuple[tuple[str, Any], ...] = ()
    residency: str = "host"
    guarded: bool = False


class Backend(Protocol):
    """The methods of a backend.  `factory()` makes one a process.

    A backend may also have `own_environment(call) -> bool`: whether the kernel for this key computes in IEEE 754's
    default environment whatever its caller set, parameters and all.  For others the core sets it around each call.
    """

    name: str
    kind: Literal["cpu", "gpu"]
    accuracy: Accuracy

    def probe(self, level: int) -> Probe:
        """Level 1: in process, no device context.  Level 2: run one tiny kernel and check it."""

    def supports(self, call: Call) -> Reject | None:
        """None if every call of this key can be taken, else why not."""

    def kernel(self, call: Call) -> Kernel:
        """The kernel for this key; called once and kept."""

    def rates(self, call: Call) -> Rates:
        """Declared speed for this key."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array of the backend's own type."""

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        """Copy a NumPy array to the backend's own type (or return it, where they are the same)."""

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The array as NumPy's."""

    def synchronize(self) -> int | None:
        """Wait until everything submitted is done; the status bits of guarded kernels since the last time, or None."""

    def close(self) -> None:
        """Release devices; the backend is not used again."""


class DeviceBackend(Backend, Protocol):
    """A backend with arrays of its own.

    Any backend may also have `limits`, a dict or a method that gives one, in the device's own words;
    `trueno.device(NAME).limits` shows it.
    """

    def copy(self, x: Any, out: Any) -> None:
        """Copy one of them into another of its shape and dtype."""

    # Optional, as `OPTIONAL` says; the core asks with `hasattr` whether a backend has them.

    def batch(self) -> AbstractContextManager[None]:
        """Kernels called inside are submitted together, in order, when the context ends without an error.

        A transfer or `synchronize` inside submits what there is so far.  Without this method each kernel is
        submitted when it is called.
        """

    def write(self, x: np.ndarray[Any, Any], out: Any) -> None:
        """Copy a NumPy array into one of the backend's own, of its shape and dtype, without allocating there."""

    def contiguous(self, x: Any) -> Any:
        """`x` itself, or a copy in C order of one whose elements lie otherwise; only types with `flags` need it."""

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A copy in C order of the elements of `x` that a view with this shape and these strides has.

        strides: in elements of `x` in C order, 0 where an axis repeats.  With it ops along any axis, and operands
        that broadcast along some axes only, stay on the device.
        """

    def cast(self, x: Any, out: Any) -> None:
        """Copy one of float16, bfloat16, float32 or float64 into another, rounded to nearest even; a NaN stays one.

        With it ops on 16-bit floats stay on the device, where they compute in float32.
        """

    def recording(self) -> AbstractContextManager["Recording"]:
        """Kernels called inside, by this thread, are kept and not run; a batch that is executed again replays them.

        They find the same arrays, parameters and shapes at every replay, and other contents.
        """


class Recording(Protocol):
    """What `recording` gives."""

    def replay(self) -> None:
        """Run what was kept, in order, after whatever runs before; errors may wait until `synchronize`."""


OPTIONAL = ("batch", "write", "contiguous", "strided", "cast", "recording")
"""Methods of `DeviceBackend` that a backend may leave out."""
