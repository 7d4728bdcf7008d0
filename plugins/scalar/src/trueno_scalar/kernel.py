"""The kernel of a row program: check the call, choose a schedule, run it with NumPy's warnings off.

A schedule is compiled at its first use, so that a first call compiles only what it runs.
"""

from collections.abc import Callable
from contextvars import Context
from typing import Any

import numpy as np
from trueno.backend import Call, lower

from trueno_scalar.functions import QUIET
from trueno_scalar.schedule import ONE, SCHEDULES, Schedules

# NumPy's error state is a context variable.  Running in a copy of a context that ignores all errors costs
# 20 ns where `with np.errstate(...)` costs 500, and each call has its own copy: threads and re-entry are safe.
_IGNORE = Context()
_IGNORE.run(np.seterr, all="ignore")


def ignoring(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` with NumPy neither warning nor raising."""
    return _IGNORE.copy().run(function, *args)


def apart(operands: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
    """Whether it is obvious that no result shares memory: each owns its own, and no operand is a view or a result.

    It takes 0.1 µs, where may_share_memory takes 0.2 for each pair; `clash` decides the other cases.
    """
    for y in outs:
        if not y.flags.owndata:
            return False
        for x in operands:
            if x.base is not None or x is y:
                return False
    return len(outs) < 2 or len({id(y) for y in outs}) == len(outs)


def clash(operands: tuple[Any, ...], outs: tuple[Any, ...], hazards: frozenset[tuple[int, int]] = frozenset()) -> int:
    """0: no result shares memory with anything.  1: some result is an operand of the same extent.  −1: refuse."""
    alias = 0
    for k, y in enumerate(outs):
        for j, x in enumerate(operands):
            if x is not y and not np.may_share_memory(x, y):
                continue
            same = x.shape == y.shape and x.strides == y.strides
            if not same or x.__array_interface__["data"][0] != y.__array_interface__["data"][0] or (k, j) in hazards:
                return -1
            alias = 1
        if any(np.may_share_memory(y, other) for other in outs[:k]):
            return -1
    return alias


def row_kernel(call: Call) -> Callable[..., int]:
    """The kernel for a row program's key."""
    program = call.op.program(call.layout, **dict(call.static))
    plan = lower(program, "cache")
    schedules = Schedules(plan, call.dtype, call.rank, call.guarded)
    names = schedules.namespace()
    hazards = frozenset((k, schedules.slot[x]) for k, x in plan.hazards)
    names |= {"ignore": _IGNORE, "clash": clash, "HAZARDS": hazards, "NDARRAY": np.ndarray, "INT64": np.dtype(np.int64)}
    texts: dict[str, str] = {}

    def late(schedule: str, alias: bool) -> Callable[..., int]:
        name = f"run_{schedule}{'_alias' * alias}"

        def first(*args: Any) -> int:
            texts[name] = schedules.text(schedule, alias)
            exec(compile(texts[name], f"<trueno_scalar {call.op.name} {name}>", "exec"), names)
            return names[name](*args)  # type: ignore[no-any-return]

        return first

    for alias in (False, True):
        for schedule in SCHEDULES:
            names[f"run_{schedule}{'_alias' * alias}"] = late(schedule, alias)
    texts["kernel"] = _entry(schedules)
    exec(compile(texts["kernel"], f"<trueno_scalar {call.op.name}>", "exec"), names)
    kernel = names["kernel"]
    kernel.text = texts  # for people: the source that ran, by schedule
    return kernel  # type: ignore[no-any-return]


def _entry(s: Schedules) -> str:
    """Source of the kernel itself: lengths, dtypes, memory, then one of the schedules."""
    program, rank = s.program, s.rank
    nodes = program.nodes
    expected = {"e": "shape", "w": "shape[1:]", "r": "shape[:1]", "u": "()"}
    if rank == 1:
        expected |= {"w": "shape", "r": "()"}
    names = [f"x{j}" for j in range(len(s.kinds))] + [f"y{k}" for k in range(len(program.outputs))]
    shapes = [expected[kind] for kind in s.kinds]
    shapes += ["shape" if k in s.element_outputs else expected["r"] for k in range(len(program.outputs))]
    dtypes = ["D"] * len(s.kinds)
    dtypes += [{"T": "D", "bool": "BOOL", "index": "INT64"}[nodes[o].type] for o in program.outputs]
    source = s.shape_of()
    wrong = [f"len(shape) != {rank}"]
    wrong += [f"{x}.shape != {shape}" for x, shape in zip(names, shapes, strict=True) if f"{x}.shape" != source]
    wrong += [f"{x}.__class__ is not NDARRAY" for x in names]  # a masked array would lose its mask
    if len(program.outputs) > 1:  # for a single one NumPy raises before it writes
        wrong += [f"not y{k}.flags.writeable" for k in range(len(program.outputs))]
    strange = " and ".join(f"{x}.dtype is {d}" for x, d in zip(names, dtypes, strict=True))
    differ = " or ".join(f"{x}.dtype != {d}" for x, d in zip(names, dtypes, strict=True))
    xs, ys = names[: len(s.kinds)], names[len(s.kinds) :]
    # `apart`, unrolled.
    plain = [f"{y}.flags.owndata" for y in ys] + [f"{x}.base is None" for x in xs]
    plain += [f"{x} is not {y}" for y in ys for x in xs]
    plain += [f"{a} is not {b}" for i, a in enumerate(ys) for b in ys[:i]]
    quiet = not s.guarded and not program.params and all(n.kind in QUIET or not n.args for n in nodes)
    run = "" if quiet else "ignore.copy().run("
    close = "(" if quiet else ", "

    def choose(suffix: str) -> list[str]:
        def go(schedule: str) -> str:
            return f"return {run}run_{schedule}{suffix}{close}{s.arguments})"

        if rank == 1:
            big = "flat" if s.flat else "long"
            return [f"if shape[0] <= {ONE}:", f"    {go('one')}", go(big)]
        if s.flat:
            return [f"if shape[0] * shape[1] <= {ONE}:", f"    {go('one')}", go("flat")]
        return [
            "height, n = shape",
            f"if n <= {s.narrow} and height >= 64:",
            f"    {go('across')}",
            f"if height * n <= {ONE}:",
            f"    {go('one')}",
            f"if n <= {s.tile}:",
            f"    {go('rows')}",
            go("long"),
        ]

    lines = [
        f"shape = {source}",
        f"if {' or '.join(wrong)}:",
        "    return -1",
        f"if not ({strange}) and ({differ}):",
        "    return -1",
        f"if {' and '.join(plain)}:",
        *(f"    {line}" for line in choose("")),
        f"alias = clash(({''.join(f'{x}, ' for x in xs)}), ({''.join(f'{y}, ' for y in ys)}), HAZARDS)",
        "if alias < 0:",
        "    return -1",
        "if alias == 0:",
        *(f"    {line}" for line in choose("")),
        *choose("_alias"),
    ]
    text = "\n".join(f"    {line}" for line in lines)
    return f"def kernel({s.arguments}):\n{text}\n"
