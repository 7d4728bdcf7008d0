"""A plan as plain data: steps with their launches, kernels with what the analyzer knows of them, and totals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

from trueno_cuda.catalogue import parity
from trueno_cuda.mapping.backend import PlannedBackend
from trueno_cuda.mapping.device import Launch
from trueno_cuda.mapping.origin import origin
from trueno_cuda.mapping.steps import Step
from trueno_cuda.mapping.work import computed, moved
from trueno_cuda.ptx import Kernel
from trueno_cuda.ptx.analyze.launch import Launch as Known
from trueno_cuda.ptx.analyze.machine import Machine, occupancy
from trueno_cuda.ptx.analyze.report import Analysis, analysis
from trueno_cuda.ptx.analyze.rules import USUAL

NOTE = "floors, not measurements: the larger of bytes / bandwidth and flops / peak of the data sheet, and a launch"

MOST_REGISTERS = 255
"""Of a thread."""


@dataclass(frozen=True)
class Plan:
    """record: what `--json` prints.  analyses: of each kernel, by its name in the record."""

    record: dict[str, Any]
    analyses: dict[str, Analysis]


@dataclass
class Used:
    """A kernel of the plan.  launch: its first one."""

    name: str
    launch: Launch


def joined(model: dict[str, Any], backend: PlannedBackend, steps: Iterable[Step], facts: dict[str, Any], real: bool
           ) -> Plan:  # fmt: skip
    """The plan of some steps.  facts: of the plan itself.  real: whether to ask ptxas for registers."""
    card, kernels = backend.machine, _Kernels()
    launches: list[dict[str, Any]] = []
    count = 0
    for number, step in enumerate(steps):
        count += 1
        flops = _flops(backend, step.launches)
        for launch, tensors, work in zip(step.launches, step.tensors, flops, strict=True):
            nbytes = moved(backend.planner, launch)
            seconds, bound = floor(card, launch.kernel, nbytes, work)
            launches.append({
                "number": len(launches), "step": number, "layer": step.layer, "op": step.name,
                "kernel": kernels.name(launch), "grid": list(launch.grid), "block": list(launch.block),
                "shared": launch.shared, "numbers": launch.named, "tensors": list(tensors), "bytes": nbytes,
                "flops": work, "seconds": seconds, "bound": bound,
            })  # fmt: skip
    analyses = {used.name: _analyzed(used, backend, real) for used in kernels.used.values()}
    records = [_kernel(used, analyses[used.name], card, launches) for used in kernels.used.values()]
    record = {
        "model": model,
        "plan": facts,
        "machine": {
            "arch": card.arch, "target": backend.device.arch, "card": card.card, "multiprocessors": card.sms,
            "bandwidth": card.bandwidth, "flops": card.flops, "tensor_flops": card.tensor,
            "launch_seconds": card.launch,
        },
        "note": NOTE,
        "summary": {"steps": count, "launches": len(launches), "kernels": len(records), **_total(launches)},
        "kernels": records,
        "launches": launches,
        "parity": [_parity(pair, records) for pair in parity.pairs(backend.device.arch)],
    }  # fmt: skip
    return Plan(record, analyses)


def _parity(pair: parity.KernelParity, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batched kernel of the catalogue beside its form for one vector, and how often the plan launches either."""
    own = [k for k in records if k["base"] == pair.name or k["base"].startswith(f"{pair.name}_")]
    return parity.record(pair) | {"launches": sum(k["launches"] for k in own)}


def chosen(plan: Plan, names: Sequence[str]) -> Plan:
    """The part of a plan that some of its kernels are; the summary is theirs."""
    record = dict(plan.record)
    record["kernels"] = [k for k in record["kernels"] if k["name"] in names]
    record["launches"] = [one for one in record["launches"] if one["kernel"] in names]
    steps = len({one["step"] for one in record["launches"]})
    record["summary"] = {"steps": steps, "launches": len(record["launches"]), "kernels": len(record["kernels"]),
                         **_total(record["launches"])}  # fmt: skip
    return Plan(record, {name: plan.analyses[name] for name in names})


def _total(launches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(one[name] for one in launches) for name in ("bytes", "flops", "seconds")}


class _Kernels:
    """The kernels of a plan, by their text; two texts of one name get a number."""

    def __init__(self) -> None:
        self.used: dict[str, Used] = {}
        self._names: dict[str, int] = {}

    def name(self, launch: Launch) -> str:
        text = launch.kernel.text
        if text not in self.used:
            name = launch.kernel.name
            self._names[name] = number = self._names.get(name, 0) + 1
            self.used[text] = Used(name if number == 1 else f"{name}#{number}", launch)
        return self.used[text].name


def _flops(backend: PlannedBackend, launches: Sequence[Launch]) -> list[float]:
    result: list[float] = []
    for _, group in groupby(launches, key=lambda one: id(one.request)):
        result += computed(backend.planner, list(group))
    return result


def floor(card: Machine, kernel: Kernel, nbytes: float, flops: float) -> tuple[float, str]:
    """Seconds that a launch takes at least, and what decides: memory, arithmetic, or the launch itself."""
    times = {"memory": nbytes / card.bandwidth, "arithmetic": flops / peak(card, kernel.text)}
    bound = max(times, key=lambda name: times[name])
    return times[bound] + card.launch, bound if times[bound] > card.launch else "launch"


def peak(card: Machine, text: str) -> float:
    """Operations per second of the fastest unit that a kernel uses: tensor cores, dp4a, or fma in float32."""
    if "wgmma.mma_async" in text or "mma.sync" in text:
        return 2 * card.tensor if ".s32.s8" in text or ".s32.u8" in text else card.tensor
    return 4 * card.flops if "dp4a" in text else card.flops


def _analyzed(used: Used, backend: PlannedBackend, real: bool) -> Analysis:
    launch = used.launch
    numbers = {f"arg_{name}": value for name, value in launch.named.items()}
    known = Known(launch.block, launch.grid, numbers)
    return analysis(used.name, launch.kernel.text, known, USUAL, backend.device.arch, real)


def _kernel(used: Used, result: Analysis, card: Machine, launches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a report says of a kernel: who wrote it, how often it runs, and the analyzer's record of its entry."""
    (entry,) = result.record["entries"]
    kernel, place = used.launch.kernel, origin(used.launch.kernel)
    own = [one for one in launches if one["kernel"] == used.name]
    if entry["occupancy"] is not None:  # the text does not say how much shared memory a launch adds
        before, threads = entry["occupancy"], prod(used.launch.block)
        warps = -(-threads // 128) * 4
        most = min(
            MOST_REGISTERS, card.registers // (warps * 256) * 8
        )  # as many as let a block run: ptxas gives no more
        registers = min(before["registers"], most)
        now = occupancy(card, threads, registers, used.launch.shared)
        entry["occupancy"] = before | {
            "registers": registers, "shared": used.launch.shared, "warps": now.warps, "blocks": now.blocks,
            "fraction": round(now.fraction, 4), "limit": now.limit,
        }  # fmt: skip
    return {
        "name": used.name,
        "base": base(kernel),
        "path": place.path if place else None,
        "line": place.line if place else None,
        "last_line": place.last if place else None,
        "function": place.function if place else None,
        "constants": {name: str(value) for name, value in kernel.constants.items()},
        "launches": len(own),
        **_total(own),
        **{name: entry[name] for name in ("instructions", "registers", "occupancy", "memory", "roofline", "findings")},
    }


def base(kernel: Kernel) -> str:
    """A kernel's name without its constants, as its text's first line has it."""
    return kernel.text.partition("\n")[0].removeprefix("// ").partition(":")[0]
