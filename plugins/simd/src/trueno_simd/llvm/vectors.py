"""Short vectors as a Numba type, so that kernels say `s = s + w * x` about 8 or 16 numbers at once.

LLVM vectorizes loops over arrays when it can prove enough about them; what keeps a search for the best scale in
lockstep over sub-blocks it does not find.  Values of these types are LLVM vectors of a fixed count, which every
target splits or pads to its own registers: the same source is right at every ISA level.

Operators work lane by lane on two vectors of one type, or a vector and a number (which is converted to the vector's
element).  Comparisons give vectors of booleans, for `choose` and `any_`.  Integers wrap; `>>` keeps the sign
of signed elements.  Nothing here carries fast-math flags of its own.
"""

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model


class Vector(types.Type):  # type: ignore[misc]
    """`count` numbers of Numba's type `element`."""

    def __init__(self, element: Any, count: int) -> None:
        super().__init__(f"Vector({element}, {count})")
        self.element, self.count = element, count

    @property
    def floats(self) -> bool:
        return isinstance(self.element, types.Float)


def _element(kind: Any) -> Any:
    if kind == types.boolean:
        return ir.IntType(1)
    if isinstance(kind, types.Float):
        return ir.FloatType() if kind.bitwidth == 32 else ir.DoubleType()
    return ir.IntType(kind.bitwidth)


def _llvm(kind: Vector) -> Any:
    return ir.VectorType(_element(kind.element), kind.count)


@register_model(Vector)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, _llvm(kind))


def splat(builder: Any, value: Any, count: int) -> Any:
    """All lanes of an LLVM vector set to one value."""
    kind = ir.VectorType(value.type, count)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), count), [0] * count)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), zeros)


def call(builder: Any, name: str, result: Any, args: Sequence[Any]) -> Any:
    """Call one of LLVM's own functions."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def suffix(kind: Any) -> str:
    """How LLVM's overloaded functions name a type."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return "f32" if isinstance(kind, ir.FloatType) else "f64"


# ---- operators


def _operator(function: Any, emit: Callable[[Any, Vector, Any, Any], Any], *, compares: bool = False) -> None:
    @infer_global(function)
    class _(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) != 2 or not any(isinstance(arg, Vector) for arg in args):
                return None
            vector = next(arg for arg in args if isinstance(arg, Vector))
            operands = []
            for arg in args:
                if arg != vector and not (isinstance(arg, types.Number) and not isinstance(arg, types.Complex)):
                    return None
                operands.append(arg if arg == vector else vector.element)
            result = Vector(types.boolean, vector.count) if compares else vector
            return signature(result, *operands)

    def lowered(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        vector = next(arg for arg in sig.args if isinstance(arg, Vector))
        wide = [
            value if isinstance(arg, Vector) else splat(builder, value, vector.count)
            for arg, value in zip(sig.args, values, strict=True)
        ]
        return emit(builder, vector, *wide)

    for pair in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(function, *pair)(lowered)


def _arithmetic(floats: str, integers: str) -> Any:
    return lambda builder, kind, a, b: getattr(builder, floats if kind.floats else integers)(a, b)


def _compare(word: str) -> Any:
    def emit(builder: Any, kind: Vector, a: Any, b: Any) -> Any:
        if kind.floats:
            return (builder.fcmp_unordered if word == "!=" else builder.fcmp_ordered)(word, a, b)
        signed = getattr(kind.element, "signed", False)
        return (builder.icmp_signed if signed else builder.icmp_unsigned)(word, a, b)

    return emit


def _shift_right(builder: Any, kind: Vector, a: Any, b: Any) -> Any:
    return (builder.ashr if kind.element.signed else builder.lshr)(a, b)


_operator(operator.add, _arithmetic("fadd", "add"))
_operator(operator.sub, _arithmetic("fsub", "sub"))
_operator(operator.mul, _arithmetic("fmul", "mul"))
_operator(operator.truediv, lambda builder, kind, a, b: builder.fdiv(a, b))
_operator(operator.and_, lambda builder, kind, a, b: builder.and_(a, b))
_operator(operator.or_, lambda builder, kind, a, b: builder.or_(a, b))
_operator(operator.xor, lambda builder, kind, a, b: builder.xor(a, b))
_operator(operator.lshift, lambda builder, kind, a, b: builder.shl(a, b))
_operator(operator.rshift, _shift_right)
for _word, _function in (("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge),
                         ("==", operator.eq), ("!=", operator.ne)):  # fmt: skip
    _operator(_function, _compare(_word), compares=True)


# ---- functions


@intrinsic  # type: ignore[untyped-decorator]
def choose(_: Any, mask: Any, a: Any, b: Any) -> Any:
    """a where mask, else b; b or a may be one number."""
    kind = a if isinstance(a, Vector) else b
    if not isinstance(mask, Vector) or not isinstance(kind, Vector):
        return None

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        mask_, *pair = values
        wide = [
            value if isinstance(arg, Vector) else splat(builder, value, kind.count)
            for arg, value in zip(sig.args[1:], pair, strict=True)
        ]
        return builder.select(mask_, *wide)

    operands = [arg if isinstance(arg, Vector) else kind.element for arg in (a, b)]
    return kind(mask, *operands), emit


def _reduction(name: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def reduce(_: Any, a: Any) -> Any:
        if not isinstance(a, Vector):
            return None

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            kind = values[0].type
            return call(builder, f"llvm.vector.reduce.{name}.{suffix(kind)}", kind.element, values)

        return a.element(a), emit

    return reduce


any_, all_ = _reduction("or"), _reduction("and")  # of booleans
most, most_unsigned = _reduction("smax"), _reduction("umax")  # of integers
total = _reduction("add")  # of integers


def _binary(name: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def function(_: Any, a: Any, b: Any) -> Any:
        if not isinstance(a, Vector) or a != b:
            return None

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            kind = values[0].type
            return call(builder, f"llvm.{name}.{suffix(kind)}", kind, values)

        return a(a, b), emit

    return function


larger, larger_unsigned = _binary("smax"), _binary("umax")  # of integers


def _unary(name: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def function(_: Any, a: Any) -> Any:
        if not isinstance(a, Vector):
            return None

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            kind = values[0].type
            return call(builder, f"llvm.{name}.{suffix(kind)}", kind, values)

        return a(a), emit

    return function


absolute, root = _unary("fabs"), _unary("sqrt")


@cache
def filled(kind: Vector) -> Any:
    """A function value -> vector with that value in each lane."""

    @intrinsic  # type: ignore[untyped-decorator]
    def fill(_: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return splat(builder, values[0], kind.count)

        return kind(kind.element), emit

    return fill


@cache
def constant(kind: Vector, numbers: tuple[Any, ...]) -> Any:
    """A function () -> vector of those numbers."""

    @intrinsic  # type: ignore[untyped-decorator]
    def give(_: Any) -> Any:
        return kind(), lambda context, builder, sig, values: ir.Constant(_llvm(kind), list(numbers))

    return give


@cache
def reader(kind: Vector) -> Any:
    """A function address -> vector read from there; no alignment is asked."""

    @intrinsic  # type: ignore[untyped-decorator]
    def read(_: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return builder.load(builder.inttoptr(values[0], _llvm(kind).as_pointer()), align=1)

        return kind(types.intp), emit

    return read


@intrinsic  # type: ignore[untyped-decorator]
def write(_: Any, address: Any, value: Any) -> Any:
    """Put a vector, or one number, at an address; no alignment is asked."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        builder.store(values[1], builder.inttoptr(values[0], values[1].type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.intp, value), emit


@cache
def number_reader(element: Any) -> Any:
    """A function address -> one number of that type."""

    @intrinsic  # type: ignore[untyped-decorator]
    def read(_: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            return builder.load(builder.inttoptr(values[0], _element(element).as_pointer()), align=1)

        return element(types.intp), emit

    return read


@cache
def converted(element: Any) -> Any:
    """A function vector -> the same numbers as `element`: integers cut or extended, floats truncated to integers."""

    @intrinsic  # type: ignore[untyped-decorator]
    def convert(_: Any, a: Any) -> Any:
        if not isinstance(a, Vector):
            return None
        to = Vector(element, a.count)

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            value, kind = values[0], _llvm(to)
            if a.floats:
                return (builder.fptosi if element.signed else builder.fptoui)(value, kind)
            signed = getattr(a.element, "signed", False)
            if to.floats:
                return (builder.sitofp if signed else builder.uitofp)(value, kind)
            have, want = value.type.element.width, kind.element.width
            if have == want:
                return value
            if have > want:
                return builder.trunc(value, kind)
            return (builder.sext if signed else builder.zext)(value, kind)

        return to(a), emit

    return convert


@cache
def bits(kind: Vector) -> Any:
    """A function vector -> the same bits as `kind`."""

    @intrinsic  # type: ignore[untyped-decorator]
    def cast(_: Any, a: Any) -> Any:
        return kind(a), lambda context, builder, sig, values: builder.bitcast(values[0], _llvm(kind))

    return cast


@intrinsic  # type: ignore[untyped-decorator]
def with_lane(_: Any, a: Any, i: Any, value: Any) -> Any:
    """The vector with one number replaced."""
    if not isinstance(a, Vector):
        return None

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        vector, index, number = values
        return builder.insert_element(vector, number, index)

    return a(a, types.intp, a.element), emit
