"""The kernel of a row program: check the call, choose a schedule, run it with NumPy's warnings off.

A schedule is compiled at its first use, so that a first call compiles only what it runs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from trueno.backend import Call, lower

from trueno_scalar.operands import QUIETLY, clash
from trueno_scalar.rows.functions import QUIET
from trueno_scalar.rows.schedule import ONE, SCHEDULES, Schedules


def row_kernel(call: Call) -> Callable[..., int]:
    """The kernel for a row program's key."""
    program = call.op.program(call.layout, **dict(call.static))
    plan = lower(program, "cache")
    schedules = Schedules(plan, call.dtype, call.rank, call.guarded)
    names = schedules.namespace()
    hazards = frozenset((k, schedules.slot[x]) for k, x in plan.hazards)
    names |= {"ignore": QUIETLY, "clash": clash, "HAZARDS": hazards, "NDARRAY": np.ndarray, "INT64": np.dtype(np.int64)}
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
    texts["kernel"] = _front(schedules)
    exec(compile(texts["kernel"], f"<trueno_scalar {call.op.name}>", "exec"), names)
    kernel = names["kernel"]
    kernel.text = texts  # for people: the source that ran, by schedule
    return kernel  # type: ignore[no-any-return]


def _front(s: Schedules) -> str:
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
            f"if n <= {s.short_row} and height >= 64:",
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
