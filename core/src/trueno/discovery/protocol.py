"""What a backend promises, and the records that it and the core exchange.

A backend is any object with the methods of `Backend`; nothing needs to be inherited.  The core asks
`supports` and `kernel` once per key and keeps the kernel; a call whose exact shapes do not fit, the kernel itself
refuses.  `trueno.backend` gives these names to plugins.  API number 1.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from trueno.ops.op import Op

API = 1


class Refused(TypeError):
    """A kernel's "not for me" where it cannot return −1, as compiled code whose arguments do not fit is not entered.

    Nothing is written.  Any other exception that leaves a kernel is a failure of it: a bare TypeError, too.
    """


class Kernel(Protocol):
    """What `kernel(call)` of a backend gives: a function, or any object that can be called.

    The core hands over arrays of the key's type and dtype, in native byte order; the kernel verifies what else the key
    does not say: lengths, contiguity, and that each result is an operand of the same extent or overlaps none.
    The call's dtype is float32 or float64; of the ops that the manifest names under `half`, a kernel on a device's
    arrays is also asked for in float16 and bfloat16, sums in float32 and rounds once, where it stores.
    The arrays are of the type that the manifest's `arrays` names first: NumPy's, or the backend's own, made by `empty`
    and `to_device`.  An own type has `shape`, `dtype` (as NumPy's) and `reshape(shape)`, which copies nothing.
    Where arrays live on a device nobody has looked at their values: an index outside of its table gives a row of NaN.
    """

    def __call__(self, *arguments: Any, **none: Any) -> int | None:
        """Compute `kernel(*operands, *scalars, *results)`, all positional: write the results, and return a status.

        Operands come in the signature's order, then the float parameters in theirs, then each result's array.
        Row programs (rank 1: one row): `e` and `w` [n], `r` and `u` []; rank 2: `e` [rows, n], `w` [n], `r` [rows],
        `u` []; element results are shaped as `e`, row results as `r`.  All are C-contiguous with the call's dtype.
        Structured ops: the shapes of the signature, leading axes as given.

        0 or None: done.  −1: "not for me", with nothing written; a kernel that cannot return it raises `Refused`.
        A guarded kernel returns status bits: 1 a NaN, 2 an Inf in a result; one that runs later than it returns gives 0
        and leaves its bits to `synchronize`.
        """


class BindableKernel(Kernel, Protocol):
    """A kernel of a device with the optional method `bind`; the core looks for the attribute."""

    def bind(self, shapes: tuple[tuple[int, ...], ...]) -> Kernel:
        """The kernel for arrays, operands and results, that are known to hold the elements of these shapes.

        They are taken to be of these shapes, whatever shape they have.  The kernel need not look at their lengths, but
        still does at contiguity, without which it refuses what would have to be copied first, and at overlaps.
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

    A batch also asks for ops that are in no table.  A chain of row programs is one, and runs as any does.  A `FusedOp`,
    which is a structured op with an epilogue, is one, too.  A backend that answers a `Reject` is asked for the parts.
    """

    op: "Op"
    dtype: np.dtype[Any]
    layout: str
    rank: int
    sizes: tuple[int, ...]
    static: tuple[tuple[str, Any], ...] = ()
    residency: str = "host"
    guarded: bool = False


class Backend(Protocol):
    """The methods of every backend; `OptionalMethods` has more that one may have.  `factory()` makes one a process."""

    name: str
    """The manifest's name."""
    kind: Literal["cpu", "gpu"]
    """The manifest's kind."""
    accuracy: Accuracy
    """Errors in ulp of each element function, and how many additions follow one another in a sum."""

    def probe(self, level: int) -> Probe:
        """Whether it can run here, and why not.

        Level 1: in process, no device context.  Level 2: run one tiny kernel and check it.
        """

    def supports(self, call: Call) -> Reject | None:
        """None if every call of this key can be taken, else a `Reject` that says why not."""

    def kernel(self, call: Call) -> Kernel:
        """The kernel for this key; called once and kept."""

    def rates(self, call: Call) -> Rates:
        """`Rates`: the declared speed for this key."""

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


class OptionalMethods(Protocol):
    """What a backend may have beside the methods of `Backend`; the core looks for each by its name."""

    def own_environment(self, call: Call) -> bool:
        """Whether the kernel for this key computes in IEEE 754's default environment whatever its caller set.

        That means parameters and all.  Around every other kernel the core sets the environment, at each call.
        """

    def limits(self) -> dict[str, Any]:
        """What the device can hold and run, in its own words, for `trueno.device(NAME).limits`; or that dict itself."""

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


OPTIONAL = tuple(name for name in vars(OptionalMethods) if not name.startswith("_"))
"""The names of the optional methods."""


class DeviceBackend(Backend, OptionalMethods, Protocol):
    """A backend with arrays of its own, which has `copy` too.

    To type checkers it has the optional methods as well, as the core calls one only after it has found it.
    """

    def copy(self, x: Any, out: Any) -> None:
        """Copy one of them into another of its shape and dtype."""


class Recording(Protocol):
    """What `recording` gives."""

    def replay(self) -> None:
        """Run what was kept, in order, after whatever runs before; errors may wait until `synchronize`."""
