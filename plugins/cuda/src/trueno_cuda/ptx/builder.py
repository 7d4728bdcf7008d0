"""The object that kernels call `k`: all parts of the builder, and the parameters of the launch."""

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from trueno_cuda.ptx.asynchronous import Asynchronous
from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.hazards import Uniformity
from trueno_cuda.ptx.pointers import Pointer, Root
from trueno_cuda.ptx.targets import STATIC_SHARED
from trueno_cuda.ptx.types import TensorMap, Type, global_address, ptr, tensor_address, u64
from trueno_cuda.ptx.values import Value

DYNAMIC: Final = "dynamic"
ParamType = Type | ptr | TensorMap
JUDGED: Final = re.compile(r"\s*(?:@\S+ )?(?:ld|st|atom|red|cp|bar|barrier|mbarrier|shfl|wgmma)\b")
"""Instructions that `k.allow` marks."""


@dataclass(frozen=True, slots=True)
class Param:
    """One launch parameter, as a launcher needs it.

    type: a scalar, `ptr(...)` or `tensor_map`; offset, bytes: its place in the packed block of parameters;
    align: what its pointer must be a multiple of, in bytes; read, written: whether the kernel does, through a pointer.
    """

    name: str
    type: ParamType
    offset: int
    bytes: int
    align: int
    read: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """Bytes of shared memory: declared statically, and to be requested at the launch."""

    static: int
    dynamic: int


class Builder(Asynchronous):
    """Everything after `k.` in a kernel."""

    def bind(self, name: str, kind: ParamType) -> Value | Pointer:
        """Read a launch parameter, at the top."""
        if not name.isascii() or keyword.iskeyword(name):
            raise BuildError(f"parameter {name!r}: ptxas takes ASCII only")
        param = f"arg_{name}"
        if isinstance(kind, ptr):
            root = Root(name, "global", kind.element.bytes)
            generic = self.new(u64, Uniformity.BLOCK, top=True)
            address = self.new(global_address, Uniformity.BLOCK, top=True)
            self.prologue.append(f"ld.param.u64 {generic.text}, [{param}];")
            self.prologue.append(f"cvta.to.global.u64 {address.text}, {generic.text};")
            self.given[name] = root
            return Pointer(self, kind.element, root, address)
        if isinstance(kind, TensorMap):
            generic = self.new(u64, Uniformity.BLOCK, top=True)
            address = self.new(tensor_address, Uniformity.BLOCK, top=True)
            self.names[address.text] = name
            self.need("cvta.param.u64")
            self.prologue.append(f"mov.b64 {generic.text}, {param};")
            self.prologue.append(f"cvta.param.u64 {address.text}, {generic.text};")
            return address
        if kind.kind not in "usf" or not kind.register:
            raise BuildError(f"parameter {name}: a launch passes numbers of 16 bits or more and pointers, not {kind}")
        value = self.new(kind, Uniformity.BLOCK, top=True)
        self.names[value.text] = name
        self.prologue.append(f"ld.param.{kind.word} {value.text}, [{param}];")
        return value

    def comment(self, text: str) -> None:
        """A line of ASCII in the PTX text, as a comment."""
        if not text.isascii() or "\n" in text:
            raise BuildError(f"k.comment: {text!r} is not one line of ASCII, which ptxas demands even of comments")
        self.statement(f"// {text}")

    @contextmanager
    def allow(self, rule: str, reason: str) -> Iterator[None]:
        """Excuse a rule of the analyzer (`trueno ptx`) inside `with k.allow("bank-conflict", "read once"):`.

        Accesses to memory, copies, barriers, shuffles and products in it get a comment with the reason.
        """
        if not (rule.isascii() and reason.isascii()) or "\n" in rule + reason or not reason.strip():
            raise BuildError(f"k.allow({rule!r}, {reason!r}): the reason is one line of ASCII")
        first = len(self.lines)
        yield
        for at in range(first, len(self.lines)):
            if JUDGED.match(self.lines[at]):
                self.lines[at] += f"  // ptx: allow({rule}) {reason}"

    def params(self, kinds: dict[str, ParamType]) -> tuple[Param, ...]:
        """The parameters with the properties that their use has shown."""
        params: list[Param] = []
        end = 0
        for name, kind in kinds.items():
            size = kind.bytes if isinstance(kind, Type) else 8 if isinstance(kind, ptr) else 128
            step = 64 if isinstance(kind, TensorMap) else size
            offset = -(-end // step) * step
            end = offset + size
            root = self.given.get(name)
            if root is None:
                params.append(Param(name, kind, offset, size, step))
            else:
                params.append(Param(name, kind, offset, size, root.align, root.read, root.written))
        return tuple(params)

    def close(self) -> None:
        """The Python function has returned: anything left open is an error."""
        if self.broken:
            raise BuildError(self.broken)
        for how, line in self.unopened.values():
            raise BuildError(f"line {line}: what k gives there is never entered, so it guards nothing: write `{how}`")
        if self.path.inner.kind != "kernel":
            raise BuildError(f"a {self.path.inner.kind} is still open at the end of the kernel")
        if self.late and not self.path.pending.waited:
            raise BuildError(
                'overlap="late": some path has no k.wait_previous(), and a grid that ended sooner would let its '
                "successor read what its predecessor still writes"
            )
        if self.path.pending.arriving:
            arrays = ", ".join(sorted(map(str, self.path.pending.arriving)))
            raise BuildError(f"cp.async into {arrays} is never waited for: k.async_commit(), k.async_wait(0)")
        if any(self._products):
            raise BuildError("wgmma is never waited for: k.wgmma_commit(), k.wgmma_wait(0)")

    def lay_out(self) -> tuple[list[str], list[str], Shared]:
        """Declarations of the arrays, the lines that take their addresses, and the bytes of shared memory."""
        declared, taken, end = [], [], 0
        shared = [a for a in self.arrays if a.root.space == "shared"]
        for array in shared:
            end = -(-end // array.root.align) * array.root.align
            array.dynamic, end = end, end + array.bytes
        if end > self.target.shared:
            sizes = ", ".join(f"{a.root.name} {a.bytes}" for a in shared)
            raise BuildError(
                f"{end} bytes of shared memory ({sizes}); a block of {self.target.name} has {self.target.shared}"
            )
        dynamic = end > STATIC_SHARED
        for array in self.arrays:
            name, word = array.root.name, array.address.type.word
            if dynamic and array in shared:
                start = f"mov.u32 {array.address.text}, {DYNAMIC};"
                offset = (
                    f" add.u32 {array.address.text}, {array.address.text}, {array.dynamic};" if array.dynamic else ""
                )
                taken.append(f"{start}{offset}  // {name}: {array.count} {array.element} x {array.stages}")
            else:
                declared.append(f".{array.root.space} .align {array.root.align} .b8 {name}[{array.bytes}];")
                taken.append(f"mov.{word} {array.address.text}, {name};")
        return declared, taken, Shared(0, end) if dynamic else Shared(end, 0)
