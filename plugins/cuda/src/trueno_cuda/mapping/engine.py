"""The fused plan: what the CUDA backend launches for one step of an engine.

An engine is a module with a function `step(path, backend, tokens, prefill)`.  It loads the model on that backend and
computes a prompt of so many tokens or, without `prefill`, one token after so many; it returns the model's arrays and
matrices there by their names.  Everything that it launches is the plan, so it launches nothing else: a cache gets its
tokens by `reserve` and `commit`.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import groupby
from os import getcwd
from typing import Any

from trueno.backend import SharedOp
from trueno.errors import ParameterError

from trueno_cuda.mapping.backend import PlannedBackend
from trueno_cuda.mapping.device import Launch, Request, TensorMap
from trueno_cuda.mapping.steps import Step

BLOCK = re.compile(r"blk\.(\d+)\.")
HASHED = re.compile(r"_[0-9a-f]{16}$")


def imported(name: str) -> Any:
    """The engine's module, also of the current folder; ParameterError if there is none, or it has no `step`."""
    here = getcwd()
    added = here not in sys.path
    sys.path += [here] * added
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ParameterError(
                f"ptx-map: the engine {name} needs the module {error.name}, which is missing"
            ) from None
        raise ParameterError(
            f"ptx-map: --plan fused records what an engine computes, and there is no module {name} here; run it in a "
            "clone of the project, name another one with --engine, or take --plan reference"
        ) from None
    finally:
        if added and here in sys.path:
            sys.path.remove(here)
    if not callable(getattr(module, "step", None)):
        raise ParameterError(f"ptx-map: the engine {name} has no function step(path, backend, tokens, prefill)")
    return module


def steps(engine: str, backend: PlannedBackend, path: str, tokens: int, prefill: bool) -> list[Step]:
    """What the engine launches, in order."""
    module, planner = imported(engine), backend.planner
    planner.launches.clear()
    names = module.step(path, backend.name, tokens, prefill)
    if not isinstance(names, Mapping):
        raise ParameterError(f"ptx-map: the engine {engine} returned {type(names).__name__}, not a dict of tensors")
    by_address = {getattr(x, "bytes", x).data.ptr: str(name) for name, x in names.items()}
    return list(_steps(backend, list(planner.launches), by_address))


def _steps(backend: PlannedBackend, launches: list[Launch], names: dict[int, str]) -> Iterator[Step]:
    """The launches of each call as a step.  One without a tensor of its own is where the one before it is."""
    planner = backend.planner
    layer: int | str = "embedding"
    for _, group in groupby(launches, key=lambda one: id(one.request)):
        own = tuple(group)
        tensors = []
        for launch in own:
            addresses = [p.address if isinstance(p, TensorMap) else p for p in launch.pointers]
            found = [names[at] for p in addresses if (at := planner.memory(p).ptr) in names]
            tensors.append(tuple(dict.fromkeys(found)))
        every = [name for some in tensors for name in some]
        blocks = [int(match[1]) for name in every if (match := BLOCK.match(name))]
        if blocks:
            layer = max(blocks)
        elif every and layer != "embedding":
            layer = "output"
        yield Step(layer, called(own[0].request), tuple(tensors), own)


def called(request: Request | None) -> str:
    """The ops that a call runs as one, for people."""
    if request is None:
        return "copy"
    op: Any = request.call.op
    if isinstance(op, SharedOp):
        names = Counter(HASHED.sub("", member.op.name) for member in op.members)
        return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    return HASHED.sub("", op.name)
