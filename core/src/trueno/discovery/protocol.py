"""The protocol of a backend, and the records that it and the core exchange.

A backend is any object with the methods of `Backend`; it need not inherit from anything.  The core calls
`supports` and `kernel` once per key and keeps the kernel; the kernel itself refuses a call whose exact shapes do not
fit.  `trueno.backend` gives these names to plugins.  API number 1.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from trueno.door.contract import EntryLayout, EntrySpec
    from trueno.ops.op import Op

API = 1


class Refused(TypeError):
    """Raised to refuse a call where a kernel cannot return −1, such as compiled code for other argument types.

    The kernel must have written nothing.  Any other exception from a kernel is a failure, including a bare TypeError.
    """


class Kernel(Protocol):
    """The result of a backend's `kernel(call)`: a function, or any callable object.

    The core passes arrays of the key's type and dtype, in native byte order; the kernel verifies what else the key
    does not say: lengths, contiguity, and that each result is an operand of the same extent or overlaps none.
    The call's dtype is float32 or float64; for ops that the manifest names under `half`, a kernel is also requested
    in float16 and bfloat16, for arrays of the backend's own type: it sums in float32 and rounds once, at the store.
    The arrays are of the type that the manifest's `arrays` names first: NumPy's, or the backend's own, made by `empty`
    and `to_device`.  Such a type has `shape`, `dtype` (NumPy's) and `reshape(shape)`, which does not copy.
    An index outside of its table: a kernel of the host refuses it; one of a device, whose values no one has checked,
    gives a row of NaN.
    """

    def __call__(self, *arguments: Any, **none: Any) -> int | None:
        """Compute `kernel(*operands, *scalars, *results)`, all positional: write the results, and return a status.

        Operands come in the signature's order, then the float parameters in theirs, then each result's array.
        Row programs (rank 1: one row): `e` and `w` [n], `r` and `u` []; rank 2: `e` [rows, n], `w` [n], `r` [rows],
        `u` []; element results are shaped as `e`, row results as `r`.  All are C-contiguous with the call's dtype.
        Structured ops: the shapes of the signature, leading axes as given.

        0 or None: done.  −1: refused, with nothing written; a kernel that cannot return −1 raises `Refused`.
        A guarded kernel returns status bits: 1 a NaN, 2 an Inf in a result; one that runs asynchronously returns 0
        and reports its bits at `synchronize`.
        """


class BindableKernel(Kernel, Protocol):
    """A kernel of a device with the optional method `bind`; the core looks for the attribute."""

    def bind(self, shapes: tuple[tuple[int, ...], ...]) -> Kernel:
        """The kernel for arrays, operands and results, that are known to hold the elements of these shapes.

        The kernel treats them as having these shapes, whatever shape they have.  It need not check their lengths, but
        must still refuse an array that is not contiguous where it would need a copy, and overlaps.
        """


class CompiledKernel(Kernel, Protocol):
    """A kernel of row programs with machine code that the backend's own `entries` can call."""

    code: int
    """Its address, as those entries need it; the core only writes it into their tables.

    The core does so for a bare kernel alone: around a guarded, traced or shielded one are layers of Python.
    """


@dataclass(frozen=True, slots=True)
class Device:
    """One piece of hardware: `name` for people, `isa` such as avx512 or sm_90, and whether software emulates it."""

    name: str
    isa: str = ""
    software: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """Verdict of a probe: ok, or the reason as a sentence with its remedy.

    absent: not ok, because the hardware that the backend runs on is absent.  This is not an error: `trueno doctor`
    says so and still reports ok.
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
    """Speeds, in seconds and units per second; the op gives flops and bytes, and the core predicts times."""

    launch_s: float
    flops: float
    bytes: float
    link_s: float = 0.0
    link_bytes: float = float("inf")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of a backend; the tolerance of every row program follows from it.

    ulp: worst error of each element function, `default` for those not named.  chain: the most additions in
    the call's dtype that one term of a sum passes through.  subnormals: False if they flush to zero.
    """

    ulp: dict[str, float] = field(default_factory=dict)
    default: float = 4.0
    chain: int = 76
    subnormals: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """The fields of a plan's key, and nothing more.

    layout: kind letters of a row program's operands.  rank: 1 for one row, 2 for rows; for a structured op the
    rank of its first operand.  sizes: size classes (bit lengths): of a row program's first operand, of every
    operand of a structured op.  residency: `host`, or the backend on which the operands live.

    A batch also asks for ops that are not in the table: a chain of row programs, which runs as any row program, a
    `FusedOp`, a structured op with an epilogue, and a `SharedOp`, several of these that read the same operand.  A
    backend that rejects one receives its parts instead.
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
    """The methods of every backend; `OptionalMethods` has optional ones.  `factory()` makes one object per process."""

    name: str
    """The manifest's name."""
    kind: Literal["cpu", "gpu"]
    """The manifest's kind."""
    accuracy: Accuracy
    """Errors in ulp of each element function, and the number of successive additions in a sum."""

    def probe(self, level: int) -> Probe:
        """Whether the backend can run here, and why not.

        Level 1: in process, no device context.  Level 2: run one tiny kernel and check it.
        """

    def supports(self, call: Call) -> Reject | None:
        """None if the backend takes every call of this key, otherwise a `Reject` that says why not."""

    def kernel(self, call: Call) -> Kernel:
        """The kernel for this key; called once, and the kernel is kept."""

    def rates(self, call: Call) -> Rates:
        """`Rates`: the declared speed for this key."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array of the backend's own type."""

    def to_device(self, x: np.ndarray[Any, Any]) -> Any:
        """Copy a NumPy array to the backend's own type (or return it, if the types are the same)."""

    def to_host(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The array as a NumPy array, in `out` if given."""

    def synchronize(self) -> int | None:
        """Wait until all submitted work is done; the status bits of guarded kernels since the last time, or None."""

    def close(self) -> None:
        """Release devices; the backend is not used again."""


class OptionalMethods(Protocol):
    """The optional methods of a backend; the core looks for each by its name."""

    def own_environment(self, call: Call) -> bool:
        """Whether the kernel of this key computes in IEEE 754's default environment, whatever its caller set.

        This includes its parameters.  Around every other kernel the core sets the environment, at each call.
        """

    def entries(self, specs: "tuple[EntrySpec, ...]", layout: "EntryLayout") -> dict[str, int]:
        """The address of machine code in front of each op's public function; an op without one is left out.

        The core asks once for an op, when the backend has made a kernel with the attribute `code` for it.
        `trueno.door.contract` states what an entry checks, what it reads, and to what it hands every other call.
        The code stays for the life of the process.
        """

    def columns(self, call: Call) -> Kernel | None:
        """The kernel for calls of this key whose rows lie across memory, as with `axis=0`; None if there is none.

        call: a row program of rank 2.  In this kernel's arrays `e` is [outer, n, inner], `w` [n], `r` [outer, inner],
        `u` []; a row is the n elements at one place of `outer` and `inner`.  Guarded, it returns status bits as the
        key's kernel does.  The core asks once for a key, in place of `kernel`, for host arrays and a backend that is
        atomic; elsewhere operands are copied row by row.
        """

    def sequence(self, calls: Sequence["tuple[Kernel, tuple[Any, ...]] | None"]) -> Callable[[int, int], int] | None:
        """One function that runs these kernels in order without Python between them; None if that gains nothing.

        calls: kernels of this backend with their arguments, and None for others.  `run(first, last)` runs those from
        `first` on and returns the index of the first one before `last` that it did not run, because it is none of its
        own, or because the kernel refused or failed; `last` if there is none.  The core runs that one itself.  At every
        run the kernels get the same arrays and parameters, with other contents; a batch on the host that is executed
        again runs so.
        """

    def limits(self) -> dict[str, Any]:
        """The limits of the device, under its own names, for `trueno.device(NAME).limits`; or that dict itself."""

    def batch(self) -> AbstractContextManager[None]:
        """Kernels called inside are submitted together, in order, when the context ends without an error.

        A transfer or `synchronize` inside submits the kernels called so far.  Without this method each kernel is
        submitted when it is called.
        """

    def write(self, x: np.ndarray[Any, Any], out: Any) -> None:
        """Copy a NumPy array into one of the backend's own, of its shape and dtype, without allocating there."""

    def contiguous(self, x: Any) -> Any:
        """`x` itself, or a copy in C order if its elements are not; only array types with `flags` need it."""

    def strided(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A copy in C order of the elements of `x` that a view with this shape and these strides has.

        strides: in elements of `x` in C order, 0 where an axis repeats.  With this method ops along any axis,
        and operands that broadcast along only some axes, stay on the device.
        """

    def numbered(self, number: int) -> "Backend":
        """The device of this number as a backend, `NAME:1`, or itself; else BackendUnavailable.  Needs `number`."""

    def number(self, x: Any) -> int | None:
        """The number of the device that has an array of the backend's type; None for this backend's own."""

    def adopt(self, x: Any) -> Any:
        """A copy of another backend's array that does not pass through the host; None where there is no such way."""

    def cast(self, x: Any, out: Any) -> None:
        """Copy one of float16, bfloat16, float32 or float64 into another, rounded to nearest even; a NaN stays one.

        With this method ops on 16-bit floats stay on the device, where they compute in float32.
        """

    def mirror(self, host: np.ndarray[Any, Any]) -> "Mirror":
        """Memory of the device for what a small array of bytes holds, which stays where it is and whose values change.

        With this method the small arrays that change before every execution of a batch go to the device together.
        """

    def fetch(self, x: Any) -> Callable[[], np.ndarray[Any, Any]]:
        """Begin to copy an array to the host, after what was submitted so far; the function waits and returns it."""

    def recording(self) -> AbstractContextManager["Recording"]:
        """Record the kernels and copies that this thread calls inside, without running them; a repeated batch replays
        them.

        At every replay they get the same arrays, parameters and shapes, with other contents.
        """


OPTIONAL = tuple(name for name in vars(OptionalMethods) if not name.startswith("_"))
"""The names of the optional methods."""


class DeviceBackend(Backend, OptionalMethods, Protocol):
    """A backend with its own array type, which has `copy` too.

    For type checkers it has the optional methods as well, because the core calls one only after it has found it.
    """

    def copy(self, x: Any, out: Any) -> None:
        """Copy one of its arrays into another of the same shape and dtype."""


class Mirror(Protocol):
    """The result of `mirror`."""

    def part(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array of the backend's own in that memory, from byte `start` on, a multiple of 256."""

    def send(self, nbytes: int) -> None:
        """Copy the first bytes there, after earlier work; when it returns, the host's may change."""


class Recording(Protocol):
    """The result of `recording`."""

    def replay(self) -> None:
        """Run the recorded kernels, in order, after earlier work; errors may wait until `synchronize`."""
