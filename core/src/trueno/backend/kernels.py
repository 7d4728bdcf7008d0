"""The kernels that a backend has for structured ops, each with its facts beside it.

    KERNELS = KernelTable("float32", "float64")

    @KERNELS.add("transpose", rates=Rates(launch_s=3e-7, flops=1e11, bytes=7e10))
    def transpose(device, call):
        return kernel                       # called kernel(x, out), as `Kernel` says

A backend's `supports`, `kernel` and `rates` ask the table for structured ops.  Row programs need none of it: a printer
takes them all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from trueno.discovery.protocol import Call, Kernel, Rates, Reject
from trueno.dispatch.half import NAMES
from trueno.errors import suggestion
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.ops.shared import SharedOp

Factory = Callable[[Any, Call], Kernel]
"""`factory(device, call)` makes the kernel of a key; device: the backend's own object, None on the host."""
F = TypeVar("F", bound=Callable[..., Any])
DTYPES = ("float32", "float64", *NAMES)


@dataclass(frozen=True, slots=True)
class TableKernel:
    """One op's row: calling it makes the kernel of a key.

    rates: speeds in float32; a backend scales them for other dtypes.  dtypes: names of those that it computes in.
    guarded: whether its kernels return a guard's status bits.  refusal: says of a key of this op why there is no kernel
    for it, or None.
    """

    op: str
    factory: Factory
    rates: Rates
    dtypes: tuple[str, ...]
    guarded: bool
    refusal: Callable[[Call], Reject | None] | None = None

    def __call__(self, device: Any, call: Call) -> Kernel:
        return self.factory(device, call)


class KernelTable:
    """Structured ops by name: `TableKernel`s, and the answers that a backend gives about them.

    dtypes, guarded: of kernels that do not say otherwise.  epilogue: why a key of a `FusedOp` has no kernel, as a
    sentence, or None where it has; without it there are no kernels with an epilogue.  shared: the same of a `SharedOp`;
    normed: of one whose first member is a norm.
    """

    def __init__(
        self,
        *dtypes: str,
        guarded: bool = False,
        epilogue: Callable[[Call], str | None] | None = None,
        shared: Callable[[Call], str | None] | None = None,
        normed: Callable[[Call], str | None] | None = None,
    ) -> None:
        if not dtypes:
            raise TypeError('KernelTable: name the dtypes that its kernels compute in, such as "float32"')
        _check_dtypes(dtypes)
        self._dtypes, self._guarded, self._epilogue, self._shared = dtypes, guarded, epilogue, shared
        self._normed = normed
        self._kernels: dict[str, TableKernel] = {}
        self._own: dict[str, TableKernel] = {}

    def add(
        self,
        *ops: str | Op,
        rates: Rates,
        dtypes: tuple[str, ...] | None = None,
        guarded: bool | None = None,
        refusal: Callable[[Call], Reject | None] | None = None,
    ) -> Callable[[F], F]:
        """Decorate the factory of the kernels of `ops`: it is called `factory(device, call)`, and returns the kernel.

        ops: names of ops in the table, or ops of the backend's own, as `op(…, table=False)` declares them.
        rates, dtypes, guarded, refusal: as `TableKernel` has them; the table's own where they are not given.
        TypeError without ops or rates; ValueError for an op twice, and for an op or a dtype that does not exist.
        """
        if not ops or not isinstance(rates, Rates):
            raise TypeError(f"KernelTable.add({', '.join(map(repr, ops))}): name an op, and give rates=Rates(…)")
        for op in ops:
            if not isinstance(op, Op) and op not in TABLE:
                raise ValueError(f"KernelTable.add({op!r}): there is no such op{suggestion(op, TABLE)}")
        _check_dtypes(dtypes or ())

        def added(factory: F) -> F:
            for op in ops:
                rows, name = (self._own, op.name) if isinstance(op, Op) else (self._kernels, op)
                if name in rows:
                    raise ValueError(f"KernelTable.add({name!r}): the op has a kernel already, {rows[name].factory}")
                rows[name] = TableKernel(
                    name, factory, rates, self._dtypes if dtypes is None else dtypes,
                    self._guarded if guarded is None else guarded, refusal,
                )  # fmt: skip
            return factory

        return added

    def __getitem__(self, op: str) -> TableKernel:
        return self._kernels[op]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __contains__(self, op: object) -> bool:
        return op in self._kernels

    def __len__(self) -> int:
        return len(self._kernels)

    def refusal(self, call: Call) -> Reject | None:
        """Why no kernel takes this key; None where one does."""
        row = self._row(call)
        if row is None:
            return Reject("unsupported_op", f"no kernel for {call.op.name}")
        if call.op is not call.op.table_op:
            if isinstance(call.op, SharedOp):
                normed = not call.op.members[0].op.structured
                shared = self._normed if normed else self._shared
                without = f"no kernel {'begins with a norm' if normed else 'runs several ops of one operand'}"
                reason = without if shared is None else shared(call)
            else:
                reason = "no kernel has an epilogue" if self._epilogue is None else self._epilogue(call)
            if reason is not None:
                return Reject("unsupported_op", reason)
        if call.dtype.name not in row.dtypes:
            return Reject("unsupported_dtype", f"{call.dtype}: {call.op.name} computes in {' or '.join(row.dtypes)}")
        if call.guarded and not row.guarded:
            return Reject("unguarded", f"{call.op.name} has no guarded kernel")
        return None if row.refusal is None else row.refusal(call)

    def kernel(self, call: Call, device: Any = None) -> Kernel:
        """The kernel of a key that `refusal` does not refuse; of what a batch fused, its head's factory makes it."""
        row = self._row(call)
        assert row is not None
        return row(device, call)

    def rates(self, call: Call) -> Rates:
        """The declared speeds of a key's kernel in float32."""
        row = self._row(call)
        assert row is not None
        return row.rates

    def _row(self, call: Call) -> TableKernel | None:
        op = call.op.table_op
        return (self._kernels if TABLE.get(op.name) is op else self._own).get(op.name)


def _check_dtypes(dtypes: Any) -> None:
    wrong = [dtypes] if isinstance(dtypes, str) else [name for name in dtypes if name not in DTYPES]
    if wrong:
        raise ValueError(f"KernelTable: dtypes has {wrong[0]!r}; give a tuple of names among {', '.join(DTYPES)}")


__all__ = ["Factory", "KernelTable", "TableKernel"]
