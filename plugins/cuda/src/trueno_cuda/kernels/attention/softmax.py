"""The weights of the scores that a thread holds, tile after tile: what is summed so far is brought to each new maximum.

Scores are powers of two; -Inf is a key that is not seen.  The largest weight of a row is 1, or `top`.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from trueno_cuda.kernels.attention.form import LOG2_E, Form, Part, Row, masked, scaled
from trueno_cuda.ptx import Value, f64, s32, u32
from trueno_cuda.rows import elementary64


class Softmax:
    """Of `count` rows that `lanes` lanes side by side hold together.  lane: a thread's number among them.

    rows: writes what is known of the rows, where it is needed: few tiles ask, so it need not stay in registers.
    top: the logarithm of what the largest weight is.
    """

    def __init__(
        self, k: Any, p: Any, form: Form, part: Part, rows: Callable[[], Sequence[Row]], count: int, lanes: int,
        lane: Value, top: int = 0,
    ) -> None:  # fmt: skip
        self.k, self.p, self.form, self.part, self.rows, self.lanes, self.top = k, p, form, part, rows, lanes, top
        self.most = k.vars(form.wide, count, -inf)
        self.sums = k.vars(form.wide, count, 0.0)
        if form.extra == "sinks":  # a key whose value is 0: its weight is the first
            for r, most, total in zip(rows(), self.most, self.sums, strict=True):
                sink = p.sinks.load(r.head, where=r.live)
                sink = sink if sink.type is form.wide else sink.to(form.wide)
                most.set(sink * LOG2_E)
                own = k.select(most == -inf, k.const(form.wide, 0.0), 2.0**top)
                total.set(k.select(lane == 0, own, 0.0))

    def exp2(self, x: Value) -> Value:
        """2^x; of float32 without the subnormals, which no sum of weights misses."""
        power: Value = elementary64.exp2(self.k, x) if x.type is f64 else self.k.exp2(x, ftz=True)
        return power

    def scale(self, scores: Sequence[Sequence[Any]], keys: Sequence[Value], rows: Sequence[Row]) -> None:
        """Sums of products become scores: capped, with the numbers of a mask, of which `rows` know."""
        k, p, form = self.k, self.p, self.form
        if not (form.capped or form.extra == "mask" or (form.raw and not form.late)):
            return
        for i, line in enumerate(scores):
            for key, score in zip(keys, line, strict=True):
                value = scaled(k, p, form, score)
                if form.extra == "mask":
                    value = masked(k, form, value, rows[i], key, rows[i].live & (key < self.part.high))
                score.set(value)

    def unseen(self, scores: Sequence[Sequence[Any]], keys: Sequence[Value]) -> None:
        """Set the scores of keys that a row does not see to -Inf."""
        k = self.k
        for r, line in zip(self.rows(), scores, strict=True):
            first, end = self._span(r, self.part.high)
            count = k.max(end - first, 0).bits(u32)
            for key, score in zip(keys, line, strict=True):
                score.set(k.select(key - first.bits(u32) < count, score, -inf))

    def _span(self, r: Row, high: Value) -> tuple[Value, Value]:
        """The first key that a row sees, and the one behind the last."""
        k, p = self.k, self.p
        first = k.max(r.position - p.back.bits(s32), 0)
        return first, k.min(r.position + p.ahead.bits(s32) + 1, high.bits(s32))

    def weights(self, scores: Sequence[Sequence[Any]]) -> list[Value]:
        """Scores become weights; gives what the sums of products so far are multiplied by, one number per row."""
        k, late, olds = self.k, self.form.late, []
        for most, total, line in zip(self.most, self.sums, scores, strict=True):
            top = self._most(line)
            now = k.max(k.warp_max(top, self.lanes), most)
            use = k.select(now == -inf, 0.0, now)
            if late:
                least = k.fma(k.neg(use), self.p.factor, float(self.top))
                old = self.exp2((most - use) * self.p.factor)
            else:
                least = k.neg(use) + float(self.top) if self.top else k.neg(use)
                old = self.exp2(most - use)
            most.set(now)
            for score in line:
                score.set(self.exp2(k.fma(score, self.p.factor, least) if late else score + least))
            total.set(k.fma(total, old, self._sum(line)))
            olds.append(old)
        return olds

    def _most(self, line: Sequence[Any]) -> Any:
        k, values = self.k, list(line)
        while len(values) > 1:
            values = [k.max(*values[i : i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
        return values[0]

    def _sum(self, line: Sequence[Any]) -> Any:
        values = list(line)
        while len(values) > 1:
            values = [values[i] + values[i + 1] if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
        return values[0]

    def finish(self) -> list[tuple[Row, Any]]:
        """Rows, each with a function from a sum of products to the result: 0 where it saw no key."""
        k, done = self.k, []
        for r, total in zip(self.rows(), self.sums, strict=True):
            whole = k.warp_sum(total, self.lanes)
            nothing = whole == 0.0
            if self.form.extra == "sinks":
                first, end = self._span(r, self.part.high)
                nothing = first >= end
            over = k.rcp(whole)
            done.append((r, lambda x, over=over, nothing=nothing: k.select(nothing, 0.0, x * over)))
        return done
