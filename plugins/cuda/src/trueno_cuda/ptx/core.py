"""The text under construction: registers, labels, instructions, and the checks that every operand passes."""

import sys
from collections import Counter
from types import CodeType

from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.hazards import Path, Pending, Scope, Uniformity
from trueno_cuda.ptx.targets import Target, required_version
from trueno_cuda.ptx.types import Type, bf16, f16, literal
from trueno_cuda.ptx.values import Emitter, Number, Value, Var, plain

INDENT = "    "


class Core:
    """The state that all parts of the builder write to.

    threads: of a block along x, y and z, or None where the launch decides.
    early: whether the grid may begin before its input is written.  `ld.global.nc` needs memory that is not written
    during the whole life of the grid, even before it waits: such loads become plain ones then.
    late: whether the author says where it waits (`k.wait_previous`).
    """

    early = late = False

    def __init__(self, name: str, target: Target, threads: tuple[int, int, int] | None, code: CodeType | None) -> None:
        self.name, self.target, self.shape = name, target, threads
        self.version = target.version
        self.path = Path()
        self.prologue: list[str] = []  # parameters, addresses of arrays, special registers: once, at the top
        self.lines: list[str] = []
        self.registers: dict[str, tuple[Type, int]] = {}  # prefix: its type, and how many there are
        self.escapes: list[str] = []
        self.files: list[str] = []
        self.broken = ""
        self.last_when: tuple[int, str, Value, Pending, Pending] | None = None
        self.unopened: dict[object, tuple[str, int]] = {}  # branches that were made: how to open one, and the line
        self.names: dict[str, str] = {}  # what a register holds for all threads from the start: `n`, `k.tid`
        self._labels: Counter[str] = Counter()
        self._code, self._line = code, 0
        self._sealed = frozenset((*self.__dict__, "_sealed", "early", "late"))

    def __setattr__(self, name: str, value: object) -> None:
        sealed = self.__dict__.get("_sealed")
        if sealed is not None and name not in sealed:
            raise BuildError(
                f"k.{name} = ...: k is the builder and keeps nothing; use a Python name, or k.var for what changes"
            )
        super().__setattr__(name, value)

    @property
    def threads(self) -> int:
        """Threads of a block, a Python int."""
        if self.shape is None:
            raise BuildError("k.threads: the launch decides how many; write @kernel(threads=256), or use k.ntid")
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def warps(self) -> int:
        """Warps of a block, a Python int."""
        return -(-self.threads // 32)

    # ---- text -----------------------------------------------------------------------------------------

    def emit(self, instruction: str, *operands: str, guard: str = "") -> None:
        """Append one instruction.  guard: `@%p1 ` runs it in some threads only."""
        self.need(instruction.rpartition(" ")[2] if instruction.startswith("@") else instruction)
        self.statement(f"{guard}{instruction} {', '.join(operands)};" if operands else f"{guard}{instruction};")

    def statement(self, text: str) -> None:
        if self.broken:
            raise BuildError(self.broken)
        if self._code is not None:
            self._locate(self._code)
        self.lines.append(INDENT * len(self.path.scopes) + text)

    def need(self, feature: str) -> None:
        """Raise the version to what `feature` takes, or refuse it on this architecture."""
        self.version = max(self.version, required_version(feature, self.target))

    def label(self, stem: str) -> str:
        self._labels[stem] += 1
        return f"${stem}_{self._labels[stem]}"

    def place(self, label: str) -> None:
        if self.broken:
            raise BuildError(self.broken)
        self.lines.append(f"{INDENT * (len(self.path.scopes) - 1)}{label}:")

    def _locate(self, code: CodeType) -> None:
        """A `.loc` when the kernel's Python line changes, so that profilers show it."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None and frame.f_lineno != self._line:
            self._line = frame.f_lineno
            self.lines.append(f"{INDENT * len(self.path.scopes)}.loc 1 {self._line} 0")

    # ---- registers ------------------------------------------------------------------------------------

    def register(self, kind: Type) -> str:
        """The name of a fresh register."""
        if not kind.register:
            raise BuildError(f"{kind} lives in memory only; a register holds it as {kind.widened}")
        _, count = self.registers.get(kind.prefix, (kind, 0))
        self.registers[kind.prefix] = (kind, count + 1)
        return f"%{kind.prefix}{count + 1}"

    def new(
        self, kind: Type, uniformity: Uniformity = Uniformity.LANE, multiple: int = 1, *, top: bool = False
    ) -> Value:
        """A value to be written by the next instruction; top: by the prologue, so that it exists everywhere."""
        return Value(self.builder, kind, self.register(kind), self.path.scopes[0 if top else -1], uniformity, multiple)

    def new_var(self, kind: Type, uniformity: Uniformity) -> Var:
        return Var(self.builder, kind, self.register(kind), self.path.inner, uniformity)

    @property
    def builder(self) -> Emitter:
        """Itself as the `Builder` that it is part of."""
        return self  # type: ignore[return-value]

    # ---- operands -------------------------------------------------------------------------------------

    def read(self, value: Value) -> str:
        """The register of a value that exists here."""
        if value.k is not self.builder:
            raise BuildError(f"{value} belongs to the kernel {value.k.name}, not to {self.name}")
        if value.scope not in self.path:
            raise BuildError(
                f"{value} is used outside of the {value.scope.kind} that defines it, which may not have run; "
                "declare a Var before it with k.var, and .set it inside"
            )
        if isinstance(value, Var) and value.busy:
            raise BuildError(f"{value} is still being computed by wgmma: k.wgmma_commit(), k.wgmma_wait(0) first")
        return value.text

    def operand(self, value: Value | Number, kind: Type) -> str:
        """How an instruction spells `value` where it takes a `kind`."""
        if isinstance(value, Value):
            if value.type is not kind:
                raise BuildError(f"{value} where {kind} is wanted; convert with .to({kind})")
            return self.read(value)
        value = plain(value)
        if not isinstance(value, (int, float)):
            raise BuildError(f"{value!r} where a {kind} is wanted: neither a value of this kernel nor a number")
        text = literal(kind, value)
        if kind in (f16, bf16) or kind.lane in (f16, bf16):  # these have no immediates
            return self.constant(kind, text).text
        return text

    def constant(self, kind: Type, text: str) -> Value:
        value = self.new(kind, Uniformity.BLOCK)
        self.emit(f"mov.{kind.word}", value.text, text)
        return value

    def context(self, scope: Scope) -> Uniformity:
        """The least uniform decision between where `scope` began and here."""
        scopes = self.path.scopes
        return min((s.uniformity for s in scopes[scopes.index(scope) + 1 :]), default=Uniformity.BLOCK)
