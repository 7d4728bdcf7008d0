"""Arithmetic: the instructions in `trueno_cuda.ptx.instructions`, and those that its table cannot express."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from trueno_cuda.ptx.aliases import KERNEL, instead
from trueno_cuda.ptx.conversions import Conversions
from trueno_cuda.ptx.errors import BuildError, UnknownName
from trueno_cuda.ptx.hazards import Uniformity
from trueno_cuda.ptx.instructions import (
    CLOCKS,
    COMPARISONS,
    INSTRUCTIONS,
    OPTIONS,
    SPECIAL_REGISTERS,
    STATEMENTS,
    Form,
)
from trueno_cuda.ptx.reference_topics import MEMBERS
from trueno_cuda.ptx.types import Type, checked, pred, u32
from trueno_cuda.ptx.values import Number, Value, Var, is_predicate, least_uniform, multiple, plain, seen


class Arithmetic(Conversions):
    """Adds values, vars and arithmetic."""

    def __getattr__(self, name: str) -> Any:
        if name in INSTRUCTIONS:
            return lambda *args, **options: self.apply(name, *args, **options)
        if name in SPECIAL_REGISTERS:
            return self._special(name)
        if name in CLOCKS:
            return lambda: self._clock(*CLOCKS[name])
        if name in STATEMENTS:
            return lambda: self.emit(STATEMENTS[name])
        if name.startswith("_") and (name.endswith("_") or not name.startswith("__")):
            raise AttributeError(name)
        known = [*INSTRUCTIONS, *SPECIAL_REGISTERS, *CLOCKS, *STATEMENTS, *MEMBERS]
        raise UnknownName(f"k.{name}: no PTX operation has this name{instead(name, KERNEL, known)}")

    # ---- the table ------------------------------------------------------------------------------------

    def apply(self, name: str, *args: Value | Number, out: Var | None = None, **options: Any) -> Value:
        """Emit the instruction that `name` means for these operands."""
        name, args = _shifted(name, tuple(map(plain, args)))
        form = self._form(name, args)
        if (same := _neutral(name, args)) is not None and out is None:
            self.read(same)
            return same
        sources = [
            _known(name, a) if t is None else self.operand(a, t) for a, t in zip(args, form.operands, strict=True)
        ]
        if name in ("shl", "shr") and isinstance(args[1], int) and args[1] >= form.result.bits:
            raise BuildError(f"{name} of a {form.result} by {args[1]} shifts everything out")
        if out is None:
            result = self.new(form.result, self._uniformity(name, args), _multiple(name, args, form))
            result.origin = name, tuple(map(seen, args))
        else:
            result = self._written(out, form.result, *args)
        self.emit(_with_options(name, form.opcode, options), result.text, *sources)
        return result

    def _form(self, name: str, args: Sequence[Value | Number]) -> Form:
        forms = INSTRUCTIONS[name]
        kinds = [a.type if isinstance(a, Value) else None for a in args]
        for form in forms:
            if len(form.operands) == len(kinds) and all(
                k is None or k is t for k, t in zip(kinds, form.operands, strict=True)
            ):
                if not any(kinds):
                    break
                return form
        arities = {len(form.operands) for form in forms}
        types = list(dict.fromkeys(k.name for k in kinds if k is not None))
        if len(args) not in arities:
            raise BuildError(f"k.{name} takes {min(arities)} operands, not {len(args)}")
        if not types:
            raise BuildError(f"k.{name} of Python numbers alone: compute it in Python, or make one a k.var")
        taken = list(dict.fromkeys(f.operands[0].name for f in forms if f.operands[0] is not None))
        if len(types) > 1:
            raise BuildError(f"k.{name} takes operands of one type, not {' and '.join(types)}; convert with .to(...)")
        raise BuildError(f"k.{name} takes {', '.join(taken)}, not {types[0]}; convert with .to(...)")

    def _uniformity(self, name: str, args: Sequence[Value | Number]) -> Uniformity:
        whole_warps = self.shape is not None and (self.shape[0] % 32 == 0 or self.shape[1:] == (1, 1))
        if whole_warps and args[0] is self._specials.get("tid"):
            shift = args[1] if name == "shr" else 5 if name == "div" and not isinstance(args[1], Value) else 0
            if isinstance(shift, int) and shift >= 5 and (name == "shr" or multiple(args[1]) >= 32):
                return Uniformity.WARP  # the number of the warp
        return least_uniform(*args)

    def _written(self, var: Var, kind: Type, *sources: object) -> Var:
        """`var`, about to be changed by an instruction with a result of type `kind`."""
        if not isinstance(var, Var):
            raise BuildError(f"{var!r} is written once; only a Var (k.var) can be changed")
        if var.type is not kind:
            raise BuildError(f"{var} cannot take a {kind}; convert with .to({var.type})")
        self.read(var)
        var.uniformity = min(var.uniformity, least_uniform(*sources), self.context(var.scope))
        var.version += 1
        return var

    # ---- special registers ----------------------------------------------------------------------------

    @cached_property
    def _specials(self) -> dict[str, Value]:
        """The registers read so far, by name."""
        return {}

    def _special(self, name: str) -> Value:
        """Read once, at the top: these never change."""
        if name not in self._specials:
            text, kind, scope = SPECIAL_REGISTERS[name]
            self.need(text)
            level = Uniformity[scope.upper()]
            if self.shape is not None and name in ("tid_y", "tid_z"):
                rows = self.shape[0] * (self.shape[1] if name == "tid_z" else 1)
                level = Uniformity.WARP if rows % 32 == 0 else level
            value = self._specials[name] = self.new(kind, level, top=True)
            value.origin = name, ()
            self.names[value.text] = f"k.{name}"
            self.prologue.append(f"mov.{kind.word} {value.text}, {text};")
        return self._specials[name]

    @property
    def warp(self) -> Value:
        """Index of this thread's warp in its block."""
        if "warp" not in self._specials:
            tid, x, y = self._special("tid"), *(self.shape or (1, 1, 1))[:2]
            if self.shape is None or self.shape[1:] != (1, 1):
                if x % 32:
                    raise BuildError("k.warp needs a one-dimensional block, or one whose x is a multiple of 32")
                for row, pitch in (("tid_y", x), ("tid_z", x * y)):
                    above, sum_ = self._special(row), self.new(u32, top=True)
                    self.prologue.append(f"mad.lo.u32 {sum_.text}, {above.text}, {pitch}, {tid.text};")
                    tid = sum_
            value = self._specials["warp"] = self.new(u32, Uniformity.WARP, top=True)
            value.origin = "warp", ()
            self.names[value.text] = "k.warp"
            self.prologue.append(f"shr.u32 {value.text}, {tid.text}, 5;")
        return self._specials["warp"]

    def _clock(self, text: str, kind: Type) -> Value:
        value = self.new(kind)
        self.emit(f"mov.{kind.word}", value.text, text)
        return value

    # ---- vars, moves, choices -------------------------------------------------------------------------

    def var(self, kind: Type | Value, start: Value | Number = 0) -> Var:
        """A mutable register: `k.var(f32, 0.0)`, or `k.var(x)` which starts as the value x."""
        if isinstance(kind, Value):
            start, kind = kind, kind.type
        kind, start = checked(kind, "k.var", "k.var(f32, 0.0)"), plain(start)
        text = ("1" if start else "0") if kind is pred and isinstance(start, bool) else self.operand(start, kind)
        var = self.new_var(kind, least_uniform(start))
        if kind is pred and not isinstance(start, Value):
            self.emit("setp.ne.u32", var.text, text, "0")
        else:
            self.emit(f"mov.{kind.word}", var.text, text)
        return var

    def vars(self, kind: Type, count: int, start: Value | Number = 0) -> list[Var]:
        """A fragment of `count` vars, such as the accumulators of k.mma."""
        return [self.var(kind, start) for _ in range(count)]

    def assign(self, var: Var, value: Value | Number) -> None:
        text = self.operand(value, var.type)
        self.emit(f"mov.{var.type.word}", self._written(var, var.type, value).text, text)

    def copy(self, value: Value) -> Value:
        """A Value with the current value of `value`, which may be a Var."""
        result = self.new(value.type, value.uniformity, value.multiple)
        result.origin = "copy", (seen(value),)
        self.emit(f"mov.{value.type.word}", result.text, self.read(value))
        return result

    def const(self, kind: Type, number: Number) -> Value:
        """A number as a value, where two operands must have a type."""
        kind, number = checked(kind, "k.const", "k.const(f32, 1.0)"), plain(number)
        value = self.new(kind, Uniformity.BLOCK, multiple(number))
        self.emit(f"mov.{kind.word}", value.text, self.operand(number, kind))
        return value

    def multiple_of(self, value: Value, power: int) -> Value:
        """`value`, with the author's assertion that `power` (of two) divides it: for indices of vectors."""
        if power < 1 or power & (power - 1):
            raise BuildError(f"k.multiple_of({value}, {power}): promise a power of two")
        same = Value(self, value.type, self.read(value), value.scope, value.uniformity, max(power, value.multiple))
        same.origin = "copy", (seen(value),)
        return same

    def compare(self, how: str, a: Value | Number, b: Value | Number) -> Value:
        """A predicate: eq ne lt le gt ge, and with a final `u` true for a NaN; num, nan."""
        if how not in COMPARISONS:
            raise BuildError(f"k.compare: {how!r} is not a comparison; known: {' '.join(COMPARISONS)}")
        a, b = plain(a), plain(b)
        kind = next((v.type for v in (a, b) if isinstance(v, Value)), None)
        if kind is None or kind.kind not in "usf":
            raise BuildError(f"k.compare: {a!r} and {b!r} cannot be compared; of predicates, a ^ b is a != b")
        if isinstance(a, Value) and isinstance(b, Value) and a.type is not b.type:
            raise BuildError(f"a comparison takes operands of one type, not {a.type} and {b.type}; use .to(...)")
        result = self.new(pred, least_uniform(a, b))
        result.origin = how, (seen(a), seen(b))
        self.emit(f"setp.{how}.{kind}", result.text, self.operand(a, kind), self.operand(b, kind))
        return result

    def select(self, condition: Value, a: Value | Number, b: Value | Number) -> Value:
        """a if `condition` is true, else b; both are computed."""
        if not is_predicate(condition):
            raise BuildError(f"k.select: {condition!r} is not a predicate; compare first, as in k.select(i < n, a, b)")
        a, b = plain(a), plain(b)
        kind = next((v.type for v in (a, b) if isinstance(v, Value)), None)
        if kind is None or kind is pred:
            raise BuildError("k.select chooses between values; of two numbers, make one a k.const")
        result = self.new(kind, least_uniform(condition, a, b), min(multiple(a), multiple(b)))
        self.emit(f"selp.{kind.word}", result.text, self.operand(a, kind), self.operand(b, kind), self.read(condition))
        return result

    def copysign(self, magnitude: Value | Number, sign: Value | Number) -> Value:
        """`magnitude` with the sign of `sign`: f32 and f64, at least one of them a Value."""
        return self.apply("with_sign", sign, magnitude)  # PTX has the sign first

    # ---- the way out ----------------------------------------------------------------------------------

    def asm(self, text: str, out: Type | None = None, ins: Sequence[Value] = ()) -> Value | None:
        """Verbatim PTX, for instructions that the tables lack: `k.asm("brev.b32 {out}, {0};", u32, [x])`.

        Each use is listed in the kernel's `escapes`; only the operands' scope and the version are checked.
        The text is a format string: double the braces of a vector.
        """
        result = None if out is None else self.new(out)
        if not text.isascii():
            raise BuildError(f"k.asm: {text!r} is not ASCII, which ptxas demands even of comments")
        for instruction in text.split(";"):
            self.need(re.sub(r"^@\S+\s+", "", instruction.strip()))
        line = text.format(*(self.read(v) for v in ins), out="" if result is None else result.text)
        self.escapes.append(text)
        self.statement(line if line.endswith(";") else line + ";")
        return result


def _known(name: str, number: object) -> str:
    if not isinstance(number, int):
        raise BuildError(
            f"k.{name}: its last operand is part of the instruction and must be a Python int, not {number!r}"
        )
    return str(number)


def _neutral(name: str, args: Sequence[Value | Number]) -> Value | None:
    """The operand that is the result already: x + 0, x * 1, of integers.  Not a Var, which may change later."""
    if len(args) != 2 or name not in ("add", "sub", "mul", "shl", "shr", "or_"):
        return None
    value, number = (
        args if isinstance(args[0], Value) else args[::-1] if name in ("add", "mul", "or_") else (None, None)
    )
    fits = isinstance(number, int) and number == (1 if name == "mul" else 0) and not isinstance(number, bool)
    return value if fits and type(value) is Value and value.type.integer else None


def _shifted(name: str, args: tuple[Value | Number, ...]) -> tuple[str, tuple[Value | Number, ...]]:
    """Division of an unsigned number by a power of two as a shift or a mask: ptxas divides by it as by any other."""
    if name not in ("div", "rem") or len(args) != 2:
        return name, args
    a, b = args
    power = isinstance(a, Value) and a.type.kind == "u" and type(b) is int and b > 0 and not b & b - 1
    if not power or b >= 1 << a.type.bits:  # type: ignore[union-attr, operator]
        return name, args
    return ("shr", (a, b.bit_length() - 1)) if name == "div" else ("and_", (a, b - 1))  # type: ignore[union-attr, operator]


def _multiple(name: str, args: Sequence[Value | Number], form: Form) -> int:
    """A power of two that certainly divides the result."""
    if not form.result.integer:
        return 1
    multiples = [multiple(a) for a in args]
    match name:
        case "add" | "sub" | "min" | "max" | "or_" | "xor":
            return min(multiples)
        case "mul" | "mul_wide":
            return multiples[0] * multiples[1]
        case "mad" | "mad_wide":
            return min(multiples[0] * multiples[1], multiples[2])
        case "and_":
            return max(multiples)
        case "shl" if isinstance(args[1], int):
            return multiples[0] << args[1]
        case "shr" if isinstance(args[1], int):
            return max(multiples[0] >> args[1], 1)
    return 1


def _with_options(name: str, opcode: str, options: dict[str, Any]) -> str:
    """The opcode with its placeholders filled."""
    chosen = {"rnd": ".rn", "ftz": "", "sat": "", "nan": "", "relu": ""}
    for option, value in options.items():
        if f"{{{option}}}" not in opcode:
            has = [o for o in OPTIONS if f"{{{o}}}" in opcode]
            raise BuildError(f"k.{name}: no option {option!r} for this type; it has {', '.join(has) or 'none'}")
        words = OPTIONS[option]
        word = (words[0] if value else "") if isinstance(value, bool) else value
        if word not in (*words, ""):
            raise BuildError(f"k.{name}: {option}={value!r} is not one of {', '.join(words)}")
        chosen[option] = f".{word}" if word else ""
    return opcode.format(**chosen)
