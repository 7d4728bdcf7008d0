"""Values, which are written once, and vars, which may change.

An operator emits one instruction.  Beside its register a value knows two facts that let the builder refuse hazards:
over which threads it is uniform, and which power of two divides it.
"""

import operator
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from trueno_cuda.ptx.aliases import VALUE, instead
from trueno_cuda.ptx.errors import BuildError, UnknownName
from trueno_cuda.ptx.hazards import Scope, Uniformity
from trueno_cuda.ptx.instructions import INSTRUCTIONS, SPECIAL_REGISTERS
from trueno_cuda.ptx.reference_topics import MEMBERS
from trueno_cuda.ptx.types import Type, checked, pred

Number = int | float
OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "true_divide": operator.truediv, "floor_divide": operator.floordiv, "remainder": operator.mod,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne,
}  # fmt: skip
"""What NumPy calls when a scalar of its own stands left of an operator."""


class Emitter(Protocol):
    """What values ask of the kernel under construction; `Builder` is it."""

    @property
    def name(self) -> str:
        """The kernel's."""

    @property
    def names(self) -> Mapping[str, str]:
        """What holds the same from the start on, by register: `n`, a parameter, or `k.tid`."""

    def apply(self, name: str, *args: "Value | Number", out: "Var | None" = None, **options: Any) -> "Value":
        """Emit the instruction that `name` means for these operands."""

    def compare(self, how: str, a: "Value | Number", b: "Value | Number") -> "Value":
        """Emit a comparison."""

    def convert(self, value: "Value", kind: Type, rnd: str | None = None, sat: bool = False) -> "Value":
        """Emit `value.to(kind)`."""

    def reinterpret(self, value: "Value", kind: Type) -> "Value":
        """Emit `value.bits(kind)`."""

    def copy(self, value: "Value") -> "Value":
        """Emit a move to a new register."""

    def assign(self, var: "Var", value: "Value | Number") -> None:
        """Emit a move to the register of a var."""


class Seen(NamedTuple):
    """A var as it was when it was read.  version: how often it had been written before."""

    var: "Var"
    version: int
    uniformity: Uniformity

    @property
    def type(self) -> Type:
        return self.var.type


Origin = tuple[str, tuple[object, ...]]
"""What computed a value: the operation, and its operands as they were then."""


class Value:
    """The result of one instruction.

    k: the kernel under construction; type; text: the register; scope: the branch or loop that defines it, outside of
    which it does not exist; multiple: a power of two that is known to divide it (integers only); origin: what computed
    it, of the operations that `elements` follows.
    """

    __slots__ = ("k", "multiple", "origin", "scope", "text", "type", "uniformity")

    def __init__(
        self,
        k: Emitter,
        kind: Type,
        text: str,
        scope: Scope,
        uniformity: Uniformity = Uniformity.LANE,
        multiple: int = 1,
    ) -> None:
        self.k, self.type, self.text, self.scope = k, kind, text, scope
        self.uniformity, self.multiple = uniformity, multiple
        self.origin: Origin | None = None

    def __repr__(self) -> str:
        return f"{self._said} ({self.type})"

    @property
    def _said(self) -> str:
        """Its name where the author gave one, as a parameter's; else the register."""
        return self.k.names.get(self.text, self.text)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        k = object.__getattribute__(self, "k")
        owner, _, axis = k.names.get(self.text, "").partition(".")
        if owner == "k" and name in ("x", "y", "z") and f"{axis}_y" in SPECIAL_REGISTERS:
            wanted = axis if name == "x" else f"{axis}_{name}"
            raise UnknownName(f"k.{axis}.{name}: k.{axis} is a number, along x; the name is k.{wanted}")
        function = f"k.{name}(x)" if name in INSTRUCTIONS or name in MEMBERS else ""
        hint = f"; here that is {function}" if function else instead(name, VALUE, ("to", "bits", "type"))
        hint = hint.replace("{type}", self.type.name)
        raise UnknownName(f"x.{name} of {self}: a Value has no {name!r}{hint}")

    # ---- what has no meaning while the kernel is built ------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise BuildError(
            f"{self} has no truth while the kernel is built; branch with `with k.when(c):`, choose with "
            "k.select(c, a, b), k.min or k.max, join predicates with & | ~ (a < b < c, and, or, not ask for a truth)"
        )

    def __index__(self) -> NoReturn:
        raise BuildError(
            f"{self} is not a Python int: it exists on the GPU only; loop with `for i in k.range({self._said})`"
        )

    def __float__(self) -> NoReturn:
        raise BuildError(
            f"{self} is not a Python float: it exists on the GPU only; .to(f32) converts it, and k computes with it: "
            "k.sqrt(x), k.exp2(x), ... in place of those of math"
        )

    def __int__(self) -> NoReturn:
        raise BuildError(f"{self} is not a Python int: it exists on the GPU only; .to(s32, 'rz') truncates a float")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise BuildError(f"round of {self}: say k.round(x), which gives a float, or x.to(s32, 'rn')")

    def __floor__(self) -> NoReturn:
        raise BuildError(f"floor of {self}: say k.floor(x), which gives a float, or x.to(s32, 'rm')")

    def __ceil__(self) -> NoReturn:
        raise BuildError(f"ceil of {self}: say k.ceil(x), which gives a float, or x.to(s32, 'rp')")

    def __trunc__(self) -> NoReturn:
        raise BuildError(f"trunc of {self}: say k.trunc(x), which gives a float, or x.to(s32, 'rz')")

    def __pow__(self, other: object) -> NoReturn:
        raise BuildError(f"** on {self}: PTX has no powers; say x * x, or k.exp2(y * k.log2(x)) for x above 0")

    def __rpow__(self, other: object) -> NoReturn:
        raise BuildError(f"** on {self}: PTX has powers of 2 alone: k.exp2(x), and a ** x is k.exp2(x * log2(a))")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: Any) -> "Value":
        """What NumPy does with a scalar of its own and a value: the operator. Other functions are refused."""
        meant = OPERATORS.get(ufunc.__name__) if method == "__call__" else None
        numbers = [n.item() if not isinstance(n, Value) and getattr(n, "ndim", 1) == 0 else n for n in inputs]
        if meant is not None and all(isinstance(n, (Value, int, float)) for n in numbers):
            return meant(*numbers)  # type: ignore[no-any-return]
        raise BuildError(
            f"NumPy's {ufunc.__name__} of {self}: it exists on the GPU only; compute with k, as k.sqrt(x), k.max(a, b)"
        )

    def __iter__(self) -> NoReturn:
        raise BuildError(f"{self} is one value, not a list; a load gives a list only with vec=2 or more")

    def _written_once(self, other: "Value | Number") -> "Value":
        raise BuildError(
            f"{self._said} is a Value and is written once; start an accumulator with k.var({self.type}, 0), "
            "or give the result a new name"
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = _written_once
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _written_once

    # ---- operators ------------------------------------------------------------------------------------

    def __add__(self, other: "Value | Number") -> "Value":
        return self.k.apply("add", self, other)

    def __radd__(self, other: Number) -> "Value":
        return self.k.apply("add", self, other)

    def __sub__(self, other: "Value | Number") -> "Value":
        return self.k.apply("sub", self, other)

    def __rsub__(self, other: Number) -> "Value":
        return self.k.apply("sub", other, self)

    def __mul__(self, other: "Value | Number") -> "Value":
        return self.k.apply("mul", self, other)

    def __rmul__(self, other: Number) -> "Value":
        return self.k.apply("mul", self, other)

    def __truediv__(self, other: "Value | Number") -> "Value":
        return self.k.apply("div", *self._dividing("/", self, other))

    def __rtruediv__(self, other: Number) -> "Value":
        return self.k.apply("div", *self._dividing("/", other, self))

    def __floordiv__(self, other: "Value | Number") -> "Value":
        return self.k.apply("div", *self._dividing("//", self, other))

    def __rfloordiv__(self, other: Number) -> "Value":
        return self.k.apply("div", *self._dividing("//", other, self))

    def __mod__(self, other: "Value | Number") -> "Value":
        return self.k.apply("rem", *self._dividing("%", self, other))

    def __rmod__(self, other: Number) -> "Value":
        return self.k.apply("rem", *self._dividing("%", other, self))

    def __and__(self, other: "Value | Number") -> "Value":
        return self.k.apply("and_", self, other)

    def __rand__(self, other: Number) -> "Value":
        return self.k.apply("and_", self, other)

    def __or__(self, other: "Value | Number") -> "Value":
        return self.k.apply("or_", self, other)

    def __ror__(self, other: Number) -> "Value":
        return self.k.apply("or_", self, other)

    def __xor__(self, other: "Value | Number") -> "Value":
        return self.k.apply("xor", self, other)

    def __rxor__(self, other: Number) -> "Value":
        return self.k.apply("xor", self, other)

    def __lshift__(self, other: "Value | Number") -> "Value":
        return self.k.apply("shl", self, other)

    def __rshift__(self, other: "Value | Number") -> "Value":
        return self.k.apply("shr", self, other)

    def __neg__(self) -> "Value":
        return self.k.apply("neg", self)

    def __abs__(self) -> "Value":
        return self.k.apply("abs", self)

    def __invert__(self) -> "Value":
        return self.k.apply("not_", self)

    def __lt__(self, other: "Value | Number") -> "Value":
        return self.k.compare("lt", self, other)

    def __le__(self, other: "Value | Number") -> "Value":
        return self.k.compare("le", self, other)

    def __gt__(self, other: "Value | Number") -> "Value":
        return self.k.compare("gt", self, other)

    def __ge__(self, other: "Value | Number") -> "Value":
        return self.k.compare("ge", self, other)

    def __eq__(self, other: "Value | Number") -> "Value":  # type: ignore[override]
        return self.k.compare("eq", self, other)

    def __ne__(self, other: "Value | Number") -> "Value":  # type: ignore[override]
        # A NaN differs from everything, itself too, as in Python.
        return self.k.compare("neu" if self.type.kind == "f" else "ne", self, other)

    __hash__ = object.__hash__

    def _dividing(self, sign: str, a: "Value | Number", b: "Value | Number") -> tuple["Value | Number", ...]:
        kind = self.type
        if sign == "/" and kind.kind != "f":
            raise BuildError(f"/ on {kind}: use // for integers, or convert with .to(f32)")
        if sign != "/" and kind.kind == "s":
            name = {"//": "div", "%": "rem"}[sign]
            raise BuildError(
                f"{sign} on {kind}: PTX rounds to zero and Python down; say k.{name}(a, b), which is PTX's"
            )
        if sign != "/" and kind.kind != "u":
            raise BuildError(f"{sign} on {kind}: it is for unsigned integers; floats have / and k.floor")
        return a, b

    # ---- conversions ----------------------------------------------------------------------------------

    def to(self, kind: Type, rnd: str | None = None, *, sat: bool = False) -> "Value":
        """This number as another type.

        rnd: `rn` to nearest, `rz` to zero, `rm` down, `rp` up.  Narrowing floats and integers to floats round to
        nearest unless told; a float becomes an integer only with `rnd` given.  sat: clamp instead of wrapping.
        """
        return self.k.convert(self, checked(kind, ".to", ".to(f32)"), rnd, sat)

    def bits(self, kind: Type) -> "Value":
        """The same bits under another type of the same width."""
        return self.k.reinterpret(self, checked(kind, ".bits", ".bits(u32)"))


class Var(Value):
    """A register that may change: `+=` and its like, `set`, `fma`, `update`.

    busy: an asynchronous multiplication owns the register until it is waited for.  version: how often it was written.
    """

    __slots__ = ("busy", "version")

    def __init__(self, k: Emitter, kind: Type, text: str, scope: Scope, uniformity: Uniformity) -> None:
        super().__init__(k, kind, text, scope, uniformity)
        self.busy, self.version = False, 0

    def set(self, value: Value | Number) -> None:
        """Become `value`, of the same type or a Python number."""
        self.k.assign(self, value)

    def update(self, name: str, *operands: Value | Number, **options: Any) -> "Var":
        """Become k.NAME(self, *operands): `highest.update("max", x)`."""
        self.k.apply(name, self, *operands, out=self, **options)
        return self

    def fma(self, a: Value | Number, b: Value | Number, **options: Any) -> None:
        """Add a · b, rounded once."""
        self.k.apply("fma", a, b, self, out=self, **options)

    @property
    def value(self) -> Value:
        """What it holds now, which stays when it changes."""
        return self.k.copy(self)

    def __iadd__(self, other: Value | Number) -> "Var":
        return self.update("add", other)

    def __isub__(self, other: Value | Number) -> "Var":
        return self.update("sub", other)

    def __imul__(self, other: Value | Number) -> "Var":
        return self.update("mul", other)

    def __itruediv__(self, other: Value | Number) -> "Var":
        self._dividing("/", self, other)
        return self.update("div", other)

    def __ifloordiv__(self, other: Value | Number) -> "Var":
        self._dividing("//", self, other)
        return self.update("div", other)

    def __imod__(self, other: Value | Number) -> "Var":
        self._dividing("%", self, other)
        return self.update("rem", other)

    def __iand__(self, other: Value | Number) -> "Var":
        return self.update("and_", other)

    def __ior__(self, other: Value | Number) -> "Var":
        return self.update("or_", other)

    def __ixor__(self, other: Value | Number) -> "Var":
        return self.update("xor", other)

    def __ilshift__(self, other: Value | Number) -> "Var":
        return self.update("shl", other)

    def __irshift__(self, other: Value | Number) -> "Var":
        return self.update("shr", other)


def plain(number: Any) -> Any:
    """A scalar of NumPy's as the Python number that it is; anything else as it stands."""
    if isinstance(number, Value) or type(number) in (int, float, bool):
        return number
    if isinstance(number, Integral):
        return int(number)
    return float(number) if isinstance(number, Real) else number


def seen(value: object) -> object:
    """An operand as it is now: a var may change."""
    return Seen(value, value.version, value.uniformity) if isinstance(value, Var) else value


def is_predicate(value: object) -> bool:
    return isinstance(value, Value) and value.type is pred


def multiple(value: object) -> int:
    """The largest power of two that is known to divide it; of zero, as large as any index needs."""
    if isinstance(value, Value):
        return value.multiple
    if isinstance(value, int):
        return value & -value if value else 1 << 40
    return 1


def least_uniform(*values: object) -> Uniformity:
    """Over which threads a result of these is the same: numbers are the same everywhere."""
    return min((v.uniformity for v in values if isinstance(v, Value)), default=Uniformity.BLOCK)
