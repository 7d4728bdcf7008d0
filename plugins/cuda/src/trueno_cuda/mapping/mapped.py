"""The plan of a model, and the part of it that a kernel or a line of Python names."""

import re

from trueno.errors import ParameterError, suggestion

from trueno_cuda.mapping import ENGINE, engine
from trueno_cuda.mapping.backend import planned
from trueno_cuda.mapping.model import Model
from trueno_cuda.mapping.origin import same_file
from trueno_cuda.mapping.plan import Plan, joined
from trueno_cuda.mapping.reference import Reference

TOKENS = 512
PLACE = re.compile(r"(.+\.py)(?::(\d+))?")


def mapped(
    model: Model, name: str, tokens: int = 0, prefill: bool = False, arch: str = "sm_90",
    engine_name: str = ENGINE, real: bool = True,
) -> Plan:  # fmt: skip
    """The plan of a model; ParameterError for more tokens than its context has, or an engine that is not there."""
    room = model.context - (not prefill)
    if tokens > room:
        raise ParameterError(f"ptx-map: --tokens is {tokens}, and {model.path} has a context of {model.context}")
    tokens = tokens or min(TOKENS, room)
    backend = planned(arch)
    if name == "fused":
        steps = engine.steps(engine_name, backend, model.path, tokens, prefill)
    else:
        steps = list(Reference(backend, model, tokens, prefill).steps())
    facts = {"name": name, "prefill": prefill, "tokens": tokens, "engine": engine_name if name == "fused" else None}
    return joined(model.record, backend, steps, facts, real)


def named(plan: Plan, name: str) -> list[str]:
    """The kernels of a name: a whole one, one without its constants, or a part of one."""
    kernels = plan.record["kernels"]
    exact = [k["name"] for k in kernels if name in (k["name"], k["base"])]
    found = exact or [k["name"] for k in kernels if name in k["name"]]
    if not found:
        known = dict.fromkeys(k["base"] for k in kernels)
        raise ParameterError(
            f"ptx-map: the plan has no kernel {name!r}{suggestion(name, known) or ';'} it has {', '.join(known)}"
        )
    return found


def placed(plan: Plan, text: str) -> list[str]:
    """The kernels of a name, or those that a file's functions, or the one around a line, write."""
    match = PLACE.fullmatch(text)
    if match is None:
        return named(plan, text)
    path, line = match[1], match[2]
    kernels = [k for k in plan.record["kernels"] if k["path"] and same_file(k["path"], path)]
    found = [k["name"] for k in kernels if line is None or k["line"] <= int(line) <= k["last_line"]]
    if not found:
        places = dict.fromkeys(f"{k['path']}:{k['line']}" for k in kernels or plan.record["kernels"] if k["path"])
        raise ParameterError(
            f"ptx-map: no function at {text} writes a kernel of this plan; those do: {', '.join(places)}"
        )
    return found
