"""Branches and loops: `with k.when(c)`, `for i in k.range(n)`, `with k.loop() as loop`.

No label is ever typed.  Each branch and each body is a scope of its own: what is defined in it does not exist outside,
because it may not have run.  A scope also knows over which threads the decision to enter it is the same, so that a
barrier that some threads never reach is refused.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from trueno_cuda.ptx.arithmetic import Arithmetic
from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.hazards import Pending, Scope, Uniformity
from trueno_cuda.ptx.types import Type, s32, u32
from trueno_cuda.ptx.values import Value, is_predicate, least_uniform, multiple, plain, seen


class Loop:
    """A loop without its own end: `loop.leave_if(c)`."""

    def __init__(self, k: "Control", scope: Scope, label: str) -> None:
        self.k, self.scope, self.label = k, scope, label
        self.left: Pending | None = None  # what is pending where the loop is left

    def leave_if(self, condition: Value) -> None:
        """Leave the loop if `condition`, a predicate, is true."""
        k = self.k
        if self.scope not in k.path:
            raise BuildError("leave_if: the loop is closed already")
        text = k.condition(condition, "leave_if")
        inner = k.path.scopes[k.path.scopes.index(self.scope) :]
        self.scope.uniformity = min(condition.uniformity, *(b.uniformity for b in inner))
        if self.left is None:
            self.left = k.path.pending.copy()
        else:
            self.left.join(k.path.pending)
        k.emit(f"@{text} bra", f"{self.label}_end")


class Control(Arithmetic):
    """Adds branches and loops."""

    def condition(self, value: Value | bool, what: str) -> str:
        """The register of a predicate that controls `what`."""
        if isinstance(value, bool):
            raise BuildError(f"{what}({value}): this is known while the kernel is built; use Python's own if")
        if not is_predicate(value):
            raise BuildError(f"{what}: {value!r} is not a predicate; compare, as in {what}(i < n)")
        return self.read(value)

    @contextmanager
    def _scope(self, scope: Scope) -> Iterator[Scope]:
        self.path.open(scope)
        yield scope
        self.path.close(scope)

    def _opening(self, how: str) -> object:
        """Record a branch or loop until it is entered: one that no `with` or `for` opens guards nothing."""
        note = object()
        self.unopened[note] = how, sys._getframe(2).f_lineno
        return note

    # ---- branches -------------------------------------------------------------------------------------

    def when(self, condition: Value) -> AbstractContextManager[None]:
        """Run the body where `condition`, a predicate, is true: `with k.when(i < n):`.

        BuildError: for a Python bool, which Python's own if is for, and for return, break or continue in the body.
        """
        return self._when(condition, self._opening("with k.when(c):"))

    @contextmanager
    def _when(self, condition: Value, note: object) -> Iterator[None]:
        del self.unopened[note]
        text = self.condition(condition, "k.when")
        label = self.label("when")
        self.emit(f"@!{text} bra", f"{label}_end")
        before = self.path.pending.copy()
        with self._scope(Scope("k.when branch", condition.uniformity, condition=(seen(condition), True))):
            yield
        self.place(f"{label}_end")
        taken = self.path.pending.copy()
        self.path.pending.join(before)
        self.last_when = (len(self.lines), label, condition, before, taken)

    def otherwise(self) -> AbstractContextManager[None]:
        """Run the body where the condition of the preceding k.when is false: `with k.otherwise():`.

        BuildError: if anything is between the two.
        """
        return self._otherwise(self._opening("with k.otherwise():"))

    @contextmanager
    def _otherwise(self, note: object) -> Iterator[None]:
        del self.unopened[note]
        if self.last_when is None or self.last_when[0] != len(self.lines):
            raise BuildError("k.otherwise() must follow a k.when branch at once, in the same block")
        _, label, condition, before, taken = self.last_when
        self.lines.pop()
        self.emit("bra", f"{label}_done")
        self.place(f"{label}_end")
        self.path.pending = before
        with self._scope(Scope("k.otherwise branch", condition.uniformity, condition=(seen(condition), False))):
            yield
        self.place(f"{label}_done")
        self.path.pending.join(taken)

    # ---- loops ----------------------------------------------------------------------------------------

    def range(
        self,
        start: Value | int,
        stop: Value | int | None = None,
        step: Value | int = 1,
        *,
        unroll: int | bool = 1,
    ) -> Iterator[Value]:
        """Count on the GPU: `for i in k.range(n)`; the body is emitted once and runs many times.

        Bounds are Python ints or values of one integer type; the index has that type, or u32.  `stop + step` must
        not overflow it.  unroll=4 emits the body four times per iteration (constant bounds only, the rest follows);
        unroll=False asks ptxas not to unroll.
        """
        return self._range(start, stop, step, unroll, self._opening("for i in k.range(n):"))

    def _range(
        self, start: Value | int, stop: Value | int | None, step: Value | int, unroll: int | bool, note: object
    ) -> Iterator[Value]:
        del self.unopened[note]
        start, step = plain(start), plain(step)
        stop = None if stop is None else plain(stop)
        if stop is None:
            start, stop = 0, start
        kind, up = self._counting(start, stop, step)
        fixed = isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)
        turns = len(range(start, stop, step)) if fixed else 1
        copies = int(unroll) or 1
        if copies != 1 and not fixed:
            raise BuildError("k.range: unroll needs bounds that are known while the kernel is built")
        if turns == 0:
            return
        whole, rest = divmod(turns, copies)
        index = self.new(kind, least_uniform(start, stop, step), min(multiple(start), multiple(step)))
        self.emit(f"mov.{kind.word}", index.text, self.operand(start, kind))
        if whole:
            yield from self._turns(index, stop, step, start if fixed else None, whole, copies, up, unroll is not False)
        for _ in range(rest):
            yield from self._turn(index, step, Scope("k.range body"))

    def _counting(self, *bounds: Value | int) -> tuple["Type", bool]:
        """Type of the index, and whether it goes up."""
        step = bounds[2]
        kinds = {b.type for b in bounds if isinstance(b, Value)}
        if len(kinds) > 1 or any(not t.integer or t.bits < 32 for t in kinds):
            raise BuildError(f"k.range: bounds of one type u32, s32, u64 or s64, not {sorted(map(str, kinds))}")
        if step is not None and isinstance(step, int) and step == 0:
            raise BuildError("k.range: a step of 0 never ends")
        signed = any(isinstance(b, int) and b < 0 for b in bounds)
        kind = kinds.pop() if kinds else (s32 if signed else u32)
        if isinstance(step, Value) and kind.kind == "s":
            raise BuildError("k.range: a step that is a value must be unsigned, else its direction is not known")
        for bound in bounds:
            self.operand(bound, kind)
        if isinstance(bounds[1], int) and isinstance(step, int):
            self.operand(bounds[1] + step, kind)  # the index after the last turn
        return kind, not (isinstance(step, int) and step < 0)

    def _turns(
        self, index: Value, stop: Value | int, step: Value | int, start: Value | int | None,
        whole: int, copies: int, up: bool, unroll: bool,
    ) -> Iterator[Value]:  # fmt: skip
        label = self.label("for")
        if start is not None and isinstance(start, int) and isinstance(step, int):
            stop = start + whole * copies * step  # the rest of an unrolled loop follows behind it
        leave, again = ("ge", "lt") if up else ("le", "gt")
        before = self.path.pending.copy()
        if start is None:
            guard = self.compare(leave, index, stop)
            self.emit(f"@{guard.text} bra", f"{label}_end")
        if not unroll:
            self.statement('.pragma "nounroll";')
        self.place(label)
        scope = Scope("k.range body", index.uniformity, repeats=True)
        for _ in range(copies):
            yield from self._turn(index, step, scope)
        back = self.compare(again, index, stop)
        self.emit(f"@{back.text} bra", label)
        if start is None:
            self.place(f"{label}_end")
        self.path.pending.loop_edge(scope.head)
        if start is None:
            self.path.pending.join(before)

    def _turn(self, index: Value, step: Value | int, scope: Scope) -> Iterator[Value]:
        """One copy of the body, in a scope of its own, and the step to the next index."""
        inner = Scope(scope.kind, scope.uniformity, scope.repeats, scope.head, scope.heading)
        self.path.open(inner)
        item = Value(self, index.type, index.text, inner, index.uniformity, index.multiple)
        try:
            yield item
        except GeneratorExit:  # `break`, `return`, or an exception: the body cannot be closed any more
            self.broken = (
                "a k.range body was left early: break and return run while the kernel is built, the loop runs on the "
                "GPU; use `with k.loop() as loop` and loop.leave_if(c)"
            )
            raise
        self.emit(f"add.{index.type.word}", index.text, index.text, self.operand(step, index.type))
        self.path.close(inner)

    def loop(self) -> AbstractContextManager[Loop]:
        """Repeat until `loop.leave_if(c)`: `with k.loop() as loop:`.

        The first `leave_if` may be anywhere; a loop without one would never end and is refused.  A Var that
        changes between iterations must be declared before the loop.
        """
        return self._loop(self._opening("with k.loop() as loop:"))

    @contextmanager
    def _loop(self, note: object) -> Iterator[Loop]:
        del self.unopened[note]
        label = self.label("loop")
        self.place(label)
        with self._scope(Scope("k.loop body", Uniformity.BLOCK, repeats=True)) as scope:
            loop = Loop(self, scope, label)
            yield loop
            if loop.left is None:
                raise BuildError("k.loop: nothing leaves this loop; say loop.leave_if(c) in its body")
            self.emit("bra", label)
        self.place(f"{label}_end")
        self.path.pending.loop_edge(scope.head)
        self.path.pending.join(loop.left)
