"""The catalogue's entries of row programs: one per op, with its schedule as a constant."""

from collections.abc import Callable
from dataclasses import replace
from math import isinf
from typing import Any

import numpy as np
from trueno.backend import TABLE, Call, Op, bound, judge
from trueno.errors import KernelError

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Parity, Result, Trial
from trueno_cuda.device.protocol import Device
from trueno_cuda.ptx import Kernel
from trueno_cuda.rows.accuracy import ACCURACY
from trueno_cuda.rows.flat import division
from trueno_cuda.rows.rowprogram import RowKernel, refusal
from trueno_cuda.rows.schedule import Schedule, parse
from trueno_cuda.rows.source import HELD, is_flat, printed

ROWS, ELEMENTS = 3, 200
"""Of a sample: a row is not a whole number of any team's vectors."""
SHORT = 56
"""Elements by which a sample's row is shorter than what the schedule holds that a program gets where none is named."""
BATCHED = ("rms_norm", "softmax", "residual_add", "swiglu")
"""Ops of a transformer's layer whose batched form, with rows along the grid's y, is compared with that of one row."""
VECTORS = 5
"""Of the comparison."""
DEMANDED = (-0.5, 0.75)
"""For float parameters without a default."""
AUTO = "auto"
GROUPS = 4
"""Of a held schedule that names none, where it is printed: a sample's rows say how many they need."""
CONSTANTS = (
    Constant("schedule", AUTO, "flat256x4, held32x8, swept1024x4, long256x4c32 or their like; auto: as usual"),
    Constant("dtype", "float32", "of the elements", ("float32", "float64")),
    GUARDED,
)


def _key(op: Op, dtype: str, guarded: bool) -> Call:
    static = tuple((p.name, p.typical) for p in op.static)
    return Call(op, np.dtype(dtype), op.layout, 2, (1,), static, "cuda_emulated", guarded)


def _natural(op: Op, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """N(0, 1), or numbers inside of the op's domain."""
    if op.domain is None:
        return rng.standard_normal(shape)
    low, high = op.domain
    return low + np.exp(rng.standard_normal(shape)) if isinf(high) else rng.uniform(low, high, shape)


def _flat(op: Op) -> bool:
    return is_flat(op.program(op.layout, **dict(_key(op, "float32", False).static)))


def _forced(op: Op, schedule: str) -> str:
    """A schedule as `printed` takes it; KernelError where the program does not."""
    if schedule == AUTO:
        return ""
    parsed = parse(schedule)
    if (parsed.kind == "flat") != _flat(op):
        fits = " or flat, as flat256x4" if _flat(op) else ", held, swept or long, as held32x8"
        raise KernelError(f"schedule {schedule} does not fit; it must be {AUTO}{fits}")
    return str(parsed if parsed.kind != "held" or parsed.groups else replace(parsed, groups=GROUPS))


def _builder(op: Op) -> Callable[..., tuple[Kernel, ...]]:
    def build(arch: str, *, schedule: str, dtype: str, guarded: bool) -> tuple[Kernel, ...]:
        static = _key(op, dtype, guarded).static
        return printed(op, op.layout, static, guarded, _forced(op, schedule), arch, np.dtype(dtype))

    return build


def _sampler(op: Op) -> Callable[..., Trial]:
    def sample(rng: np.random.Generator, *, schedule: str, dtype: str, guarded: bool) -> Trial:
        n, forced = ELEMENTS, schedule
        if schedule == AUTO:  # what `build` prints, on rows that need all of it
            forced = "" if _flat(op) else HELD
            n = ELEMENTS if _flat(op) else _held(parse(HELD), dtype) - SHORT
        shapes = {"e": (ROWS, n), "w": (n,), "r": (ROWS,), "u": ()}
        operands = [_natural(op, rng, shapes[kind]).astype(dtype) for kind in op.layout]
        return Trial(lambda device: _tried(device, _key(op, dtype, guarded), forced, operands, n))

    return sample


def _held(schedule: Schedule, dtype: str) -> int:
    """Elements of the longest row that a held schedule takes."""
    return schedule.lanes * schedule.groups * 16 // np.dtype(dtype).itemsize


def _tried(device: Device, key: Call, schedule: str, operands: list[np.ndarray[Any, Any]], n: int) -> list[Result]:
    """Results of the op's kernel on rows of n elements, each judged by the program's own bound."""
    op, program = key.op, key.op.program(key.layout, **dict(key.static))
    demanded = iter(DEMANDED)
    params = [float(next(demanded) if p.required else p.default) for p in op.params if p.symbolic]
    outs = []
    for node in (program.nodes[o] for o in program.outputs):
        shape = (ROWS, n) if node.space == "e" else (ROWS,)
        outs.append(device.empty(shape, np.dtype(np.int64) if node.type == "index" else key.dtype))
    if RowKernel(device, key, schedule)(*map(device.to_device, operands), *params, *outs) != 0:
        raise ValueError(f"{op.name} refuses its own sample")
    results = []
    bounds = bound(program, operands, params, key.dtype, ACCURACY)
    for spec, out, one in zip(op.signature.outputs, outs, bounds, strict=True):
        verdict = judge(device.to_host(out).reshape(one.value.shape), one)
        results.append(Result(spec.name, verdict.size, False, verdict.worst, verdict.bad, verdict.index or ()))
    return results


def _comparer(op: Op) -> Callable[..., tuple[Any, Any]]:
    def both(device: Device, rng: np.random.Generator, batched: Kernel, single: Kernel) -> tuple[Any, Any]:
        """Some rows by one launch of the batched kernel, and by one launch each."""
        n = _held(parse(HELD), "float32") - SHORT
        shapes = {"e": (VECTORS, n), "w": (n,)}
        operands = [_natural(op, rng, shapes[kind]).astype(np.float32) for kind in op.layout]
        arrays, kinds = list(map(device.to_device, operands)), [*op.layout, "e"]
        params, width = [float(p.default) for p in op.params if p.symbolic], 4

        def launched(kernel: Kernel, rows: range) -> Any:
            out, flat = device.empty((len(rows), n), np.dtype(np.float32)), _flat(op)
            block = kernel.threads[0] * width if kernel.threads else 1
            y = len(rows) if kernel is batched else 1
            numbers: tuple[int, ...] = (len(rows), n)
            if flat:
                numbers = (n // width, n) if kernel is batched else (n // width, n, n, *division(n), 0)
            pointers = [a.data.ptr + rows[0] * n * 4 * (kind == "e") for a, kind in zip(arrays, kinds, strict=False)]
            launch = device.prepare(kernel, (-(-n // block) if flat else 1, y, 1), numbers)
            launch([*pointers, out.data.ptr], params)
            return device.to_host(out)

        alone = [launched(single, range(i, i + 1)) for i in range(VECTORS)]
        return launched(batched, range(VECTORS)), np.concatenate(alone)

    return both


def _entry(op: Op) -> CatalogueEntry:
    variants: tuple[dict[str, Any], ...] = (
        ({},) if _flat(op) else ({}, {"schedule": "swept128x1"}, {"schedule": "long128x1c4"})
    )
    parity = None
    if op.name in BATCHED:
        single, batched = ({"schedule": f"{'flat256x1' if _flat(op) else HELD}{y}"} for y in ("", "y"))
        variants, parity = (*variants, batched), Parity("grid_y", batched, _comparer(op), single)
    return CatalogueEntry(
        op.name,
        op.family,
        op.doc.partition("\n")[0],
        _builder(op),
        _sampler(op),
        CONSTANTS,
        variants=variants,
        parity=parity,
    )


CATALOGUE = [_entry(op) for op in TABLE.values() if not op.structured and refusal(_key(op, "float32", False)) is None]
