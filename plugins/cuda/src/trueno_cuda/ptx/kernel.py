"""From a Python function to PTX: `@kernel(threads=256)`, then `.build(arch="sm_90", N=4096)`.

The function's signature is the kernel's interface.  Annotated positional parameters are what a launch passes,
keyword-only ones are constants of the build: they may steer Python, and are part of the kernel's name.
"""

import contextlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final, Literal

from trueno_cuda.ptx.asynchronous import Mbarrier
from trueno_cuda.ptx.body import fault
from trueno_cuda.ptx.builder import DYNAMIC, Builder, Param, ParamType, Shared
from trueno_cuda.ptx.control import Loop
from trueno_cuda.ptx.errors import BuildError, suggestion
from trueno_cuda.ptx.instructions import CLOCKS, INSTRUCTIONS, STATEMENTS
from trueno_cuda.ptx.pointers import Array, Pointer
from trueno_cuda.ptx.targets import Target, Version, target
from trueno_cuda.ptx.types import TensorMap, Type, ptr
from trueno_cuda.ptx.values import Value, Var

Shape = tuple[int, int, int]
OVERLAPPING: Final = 90
"""Architectures from this number on have griddepcontrol."""
CALLS: Final = frozenset(
    {n for n in dir(Builder) if not n.startswith("_") and callable(getattr(Builder, n))}
    | {*INSTRUCTIONS, *CLOCKS, *STATEMENTS}
)
"""Names after `k.` that have a meaning only when they are called."""
BUILDERS: Final = frozenset(c.__name__ for c in Builder.__mro__[:-1])
POINTERS: Final = frozenset({Pointer.__name__, Array.__name__})
OWNERS: Final = BUILDERS | POINTERS | {Value.__name__, Var.__name__, Mbarrier.__name__, Loop.__name__}
"""Classes whose methods a kernel calls."""
OURS: Final = (str(Path(__file__).parent), str(Path(contextlib.__file__)))
"""Files whose frames are left out of the end of a BuildError's traceback."""


@dataclass(frozen=True)
class Kernel:
    """PTX, and everything that a launcher needs to know about it.

    threads: of a block along x, y, z, or None where the launch decides, up to `max_threads`.
    static_shared, dynamic_shared: bytes; a launch passes the second, and must raise the driver's limit above 48 KiB.
    cluster: blocks of a cluster.  escapes: each use of k.asm.  early: whether all of it waits for the previous grid, so
    that it may be started before that has ended.  late: whether it may read before it waits; only a launcher
    that knows that nothing in flight writes what it reads there may start it early.
    emitter: the code of the Python function that wrote it.
    """

    name: str
    text: str
    arch: str
    version: str
    params: tuple[Param, ...]
    constants: dict[str, Any]
    threads: Shape | None
    max_threads: int
    static_shared: int
    dynamic_shared: int
    cluster: Shape | None = None
    escapes: tuple[str, ...] = ()
    early: bool = False
    late: bool = False
    emitter: CodeType | None = field(default=None, compare=False, repr=False)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, in bytes."""
        return self.static_shared + self.dynamic_shared

    @property
    def param_bytes(self) -> int:
        """Size of the packed parameters."""
        return max((p.offset + p.bytes for p in self.params), default=0)

    @property
    def key(self) -> str:
        """A name of this exact text, for caches."""
        return sha256(self.text.encode("ascii")).hexdigest()

    def behind(self) -> "Kernel":
        """The same, to be started early: for launches that come directly behind one that has waited itself, when
        nothing in flight writes what a late kernel reads before it waits.
        """
        return replace(self, early=self.early or self.late)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Source:
    """A kernel's Python function with the arguments of `@kernel`."""

    function: Callable[..., None]
    threads: int | tuple[int, ...] | str | None = None
    max_threads: int | None = None
    blocks_per_sm: int | None = None
    cluster: int | tuple[int, ...] | None = None
    registers: int | None = None
    overlap: bool | Literal["late"] = False
    params: dict[str, ParamType] = field(init=False)
    defaults: dict[str, inspect.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        params, constants = _interface(self.function)
        object.__setattr__(self, "params", params)
        object.__setattr__(self, "defaults", constants)
        if (self.threads is None) == (self.max_threads is None):
            raise BuildError(
                f"@kernel on {self.name}: give either threads=256, or max_threads= where the launch decides"
            )
        if self.overlap not in (True, False, "late"):
            raise BuildError(f"@kernel on {self.name}: overlap={self.overlap!r} is not True, False or 'late'")

    @property
    def name(self) -> str:
        return self.function.__name__

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise BuildError(f"{self.name} is a kernel: {self.name}.build(arch=...) writes its PTX, a launcher runs that")

    def build(self, arch: str = "sm_80", *, loc: bool = False, **constants: Any) -> Kernel:
        """The kernel for one architecture and these constants.

        loc: with Python's lines, for profilers and for what the emulator finds.

        BuildError: a constant that is missing, unknown or of the wrong type, or a misuse inside the kernel.
        """
        where, chosen = target(arch), self._constants(constants)
        threads = self._threads(chosen)
        name = _mangle(self.name, chosen)
        k = Builder(name, where, threads, self.function.__code__ if loc else None)
        if message := fault(self.function, CALLS):
            raise BuildError(message)
        operands = [k.bind(n, t) for n, t in self.params.items()]
        if self.overlap and where.number >= OVERLAPPING:
            k.early = True
        k.late = self.overlap == "late"
        if k.early and not k.late:
            k.wait_for_previous_grid()
        self._traced(k, operands, chosen)
        k.close()
        cluster = None if self.cluster is None else _shape(self.cluster, "cluster", self.name)
        limits = self._limits(k, threads, cluster)
        params = k.params(self.params)
        text, shared = self._text(k, where, params, limits, chosen, loc)
        if not text.isascii():
            raise BuildError(f"{name}: the text is not ASCII")
        most = threads[0] * threads[1] * threads[2] if threads else self.max_threads or 0
        return Kernel(
            name, text, arch, _spelled(k.version), params, chosen, threads, most, shared.static, shared.dynamic,
            cluster, tuple(k.escapes), k.early and not k.late, k.early and k.late,
            emitter=_emitter(self.function),
        )  # fmt: skip

    def _traced(self, k: Builder, operands: list[Any], constants: dict[str, Any]) -> None:
        """Run the function; an error's traceback ends in its own line, or in that of a function that it calls."""
        try:
            result: object = self.function(k, *operands, **constants)  # type: ignore[func-returns-value]
        except BuildError as error:
            raise error.with_traceback(_own(error.__traceback__)) from error.__cause__
        except TypeError as error:
            if not (message := _miscalled(str(error))):
                raise
            raise BuildError(message).with_traceback(_own(error.__traceback__)) from None
        if result is not None:
            raise BuildError(f"{self.name} returns {result!r}: a kernel returns nothing; store it, as out.store(i, y)")

    def _constants(self, given: dict[str, Any]) -> dict[str, Any]:
        """All constants, in the order of the signature."""
        for name in given:
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "none"
                raise BuildError(
                    f"{self.name} has no constant {name!r}{suggestion(name, self.defaults)}; it has {known}"
                )
        chosen = {}
        for name, parameter in self.defaults.items():
            if name not in given and parameter.default is parameter.empty:
                raise BuildError(f"{self.name}: the constant {name} is missing: build({name}=...)")
            value = given.get(name, parameter.default)
            wanted = parameter.annotation
            if isinstance(wanted, type) and (
                type(value) is not wanted and not (wanted is float and type(value) is int)
            ):
                raise BuildError(
                    f"{self.name}: the constant {name} is {value!r}, and must be of type {wanted.__name__}"
                )
            chosen[name] = value
        return chosen

    def _threads(self, constants: dict[str, Any]) -> Shape | None:
        if self.threads is None:
            return None
        threads = self.threads
        if isinstance(threads, str):
            if threads not in constants:
                raise BuildError(f"@kernel(threads={threads!r}) on {self.name}: it has no such constant")
            threads = constants[threads]
        shape = _shape(threads, "threads", self.name)
        if shape[0] * shape[1] * shape[2] > 1024:
            raise BuildError(f"{self.name}: {shape} are more than 1024 threads a block")
        return shape

    def _limits(self, k: Builder, threads: Shape | None, cluster: Shape | None) -> list[str]:
        """Performance directives of the entry."""
        shape = threads or (self.max_threads or 1, 1, 1)
        lines = [f"{'.reqntid' if threads else '.maxntid'} {', '.join(map(str, shape))}"]
        if self.blocks_per_sm is not None:
            lines.append(f".minnctapersm {self.blocks_per_sm}")
        if self.registers is not None:
            lines.append(f".maxnreg {self.registers}")
        if cluster is not None:
            k.need(".reqnctapercluster")
            lines.append(f".reqnctapercluster {', '.join(map(str, cluster))}")
        return lines

    def _text(
        self,
        k: Builder,
        where: Target,
        params: tuple[Param, ...],
        limits: list[str],
        constants: dict[str, Any],
        loc: bool,
    ) -> tuple[str, Shared]:
        declared, addresses, shared = k.lay_out()
        summary = " ".join(f"{n}={_word(v)}" for n, v in constants.items())
        lines = [f"// {self.name}{': ' + summary if summary else ''}", f".version {_spelled(k.version)}"]
        lines += [f".target {where.name}", ".address_size 64", ""]
        if loc:
            path = self.function.__code__.co_filename.encode("ascii", "replace").decode()
            lines += [f'.file 1 "{path}"', ""]
        if shared.dynamic:
            align = max(a.root.align for a in k.arrays)
            lines += [f".extern .shared .align {align} .b8 {DYNAMIC}[];", ""]
        entry = ",\n".join(f"    {_declared(p)}" for p in params)
        lines += [f".visible .entry {k.name}(", entry, ")"] if entry else [f".visible .entry {k.name}()"]
        registers = [f".reg .{t.register} %{p}<{n + 1}>;" for p, (t, n) in k.registers.items()]
        body = [f"    {line}" for line in (*registers, *declared)] + [""]
        body += [f"    {line}" for line in (*k.prologue, *addresses)]
        lines += [*limits, "{", *body, *k.lines, "    ret;", "}", ""]
        return "\n".join(lines), shared


def kernel(
    function: object = None,
    /,
    *,
    threads: int | tuple[int, ...] | str | None = None,
    max_threads: int | None = None,
    blocks_per_sm: int | None = None,
    cluster: int | tuple[int, ...] | None = None,
    registers: int | None = None,
    overlap: bool | Literal["late"] = False,
) -> Callable[[Callable[..., None]], Source]:
    """Make a Python function a kernel.

    threads: of a block, as 256, (32, 8), or the name of a constant; or max_threads, and the launch decides.
    blocks_per_sm: the least number that must fit, which bounds the registers; registers: bounds them directly.
    cluster: blocks of a cluster (sm_90).
    overlap: from sm_90 on the kernel begins with a wait for the previous grid, so that a launcher may start it early.
    Every thread waits, before anything else: a grid that ended sooner would let its successor read what its predecessor
    still writes.  Letting the next one start as early (k.launch_next_grid) made replayed batches slower: 1.05 us a
    kernel on an H200, 0.97 without, 1.20 with neither.
    overlap="late": the kernel says itself where it waits, with k.wait_previous(), and may read before that what no
    kernel in flight writes, as the weights of a model.  A launcher that does not know whether that holds starts the
    kernel when the previous one has ended.
    """
    if function is not None:
        name = getattr(function, "__name__", repr(function))
        raise BuildError(f"@kernel on {name}: call it, as @kernel(threads=256)")
    return lambda function: Source(function, threads, max_threads, blocks_per_sm, cluster, registers, overlap)


def _interface(function: Callable[..., None]) -> tuple[dict[str, ParamType], dict[str, inspect.Parameter]]:
    """Launch parameters and constants."""
    params: dict[str, ParamType] = {}
    constants: dict[str, inspect.Parameter] = {}
    name = function.__name__
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise BuildError(f"@kernel on {name}: a plain function is wanted")
    if inspect.isgeneratorfunction(function):
        raise BuildError(f"{name}: a `yield` makes it a generator, which writes nothing; a kernel stores its results")
    k, *rest = (*inspect.signature(function, eval_str=True).parameters.values(), None)
    if k is None or k.kind is not k.POSITIONAL_OR_KEYWORD or isinstance(k.annotation, (Type, ptr, TensorMap)):
        reason = "it has no parameter" if k is None else f"its first parameter is {k}"
        raise BuildError(f"{name}: {reason}; the builder comes first: def {name}(k, x: ptr(f32), ...)")
    for p in filter(None, rest):
        if p.kind is p.KEYWORD_ONLY:
            if p.name in ("arch", "loc"):
                raise BuildError(f"{name}: {p.name} is an argument of build() and cannot name a constant")
            constants[p.name] = p
        elif p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty:
            raise BuildError(f"{name}({p}): a launch passes all parameters; constants stand behind the *")
        elif not isinstance(p.annotation, (Type, ptr, TensorMap)):
            raise BuildError(
                f"{name}: annotate {p.name} with a type such as f32, u32 or ptr(f32); the launch passes it"
            )
        else:
            params[p.name] = p.annotation
    return params, constants


def _emitter(function: Callable[..., None]) -> CodeType:
    """The function that writes the kernel: the one that `function` names as its `body` or wraps, or itself."""
    body: Callable[..., Any] = inspect.unwrap(getattr(function, "body", function))
    return getattr(body, "__func__", body).__code__


def _own(traceback: TracebackType | None) -> TracebackType | None:
    """The author's part of a traceback: without the frame that asks, and without the builder's at the end."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    while len(frames) > 1 and frames[-1].tb_frame.f_code.co_filename.startswith(OURS):
        frames.pop()
    chain = None
    for frame in reversed(frames[1:]):
        chain = TracebackType(chain, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return chain


def _miscalled(message: str) -> str:
    """Python's message for a wrong call of the builder, such as `Pointer.store() takes 3 ...`, in builder's terms."""
    match = re.fullmatch(r"(\w+)\.(\w+)\(\) (.*)", message)
    if match is None or match[1] not in OWNERS:
        return ""
    owner, name, detail = match.groups()
    hint = "; an index of two dimensions is a tuple: .store((row, column), value)" if owner in POINTERS else ""
    return f"{'k.' if owner in BUILDERS else '.'}{name}() {detail}{hint}"


def _shape(given: int | tuple[int, ...], what: str, name: str) -> Shape:
    sizes = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(sizes) <= 3 or not all(type(n) is int and n > 0 for n in sizes):
        raise BuildError(f"@kernel({what}={given!r}) on {name}: one to three positive ints")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _word(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value).encode("ascii", "backslashreplace").decode()


def _mangle(name: str, constants: dict[str, Any]) -> str:
    """`rms_norm_N4096_V4`: one name per choice of constants; a digest replaces what an identifier cannot contain."""
    parts = [f"{n}{int(v) if isinstance(v, bool) else _word(v)}" for n, v in constants.items()]
    plain = "_".join([name, *parts])
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", plain) and len(plain) < 128:
        return plain
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BuildError(f"the kernel's name {name!r} is not an ASCII identifier; define it with def")
    digest = sha256(repr(parts).encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', plain)[:96]}_{digest}"


def _declared(param: Param) -> str:
    if isinstance(param.type, ptr):
        return f".param .u64 .ptr .global .align {param.align} arg_{param.name}"
    if isinstance(param.type, TensorMap):
        return f".param .align 64 .b8 arg_{param.name}[128]"
    return f".param .{param.type.word} arg_{param.name}"


def _spelled(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
