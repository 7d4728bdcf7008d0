"""Mutants for compute-sanitizer in one file: drawn, confirmed and judged by our rules where there is no GPU.

The archive has `index.json`, the texts, and the operands of each origin.  `sanitizer` reads it, and needs neither nvcc
nor the emulator.
"""

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from trueno_cuda.ptx.emulate import Module
from trueno_cuda.ptx.emulate.launch import scalar

from .faults import FAULTS
from .launches import Work
from .measure import Analyzer, Judge
from .mutants import Mutant, mutants, proof
from .origins import SEED, Origin

TEXT_ALONE = {
    "infinite-loop", "no-path-to-exit", "empty-loop", "dead-code", "redundant-move", "placeholder-code",
    "register-pressure", "predicate-pressure", "bank-conflict", "uncoalesced-access", "missing-entry",
    "loop-branch-to-end", "load-type-mismatch",
}  # fmt: skip
"""Rules about style and speed, about loops without an end, and about results that are wrong and break no rule of
memory: a run-time checker does not look for them."""
NEWEST = "9.0"
"""The ISA version that texts of a newer one are given, so that a driver of CUDA 13.0 loads them."""
ENDLESS = ("it does not end", "it does not complete")


def kinds() -> list[str]:
    """The faults that a run-time checker could see."""
    return [fault.id for fault in FAULTS.values() if fault.rules[0] not in TEXT_ALONE]


def for_hopper(text: str) -> bool:
    """Whether a GPU of compute capability 9.0 can load it."""
    match = re.search(r"^\s*\.target\s+sm_(\d+)([af]?)", text, re.M)
    return match is not None and (int(match[1]) <= 90 if not match[2] else match[1] == "90")


def loadable(text: str) -> str:
    return re.sub(r"^(\s*\.version\s+)(9\.[1-9]\d*|[1-9]\d+\.\d+)", rf"\g<1>{NEWEST}", text, count=1, flags=re.M)


def why_not(mutant: Mutant) -> str:
    """Why a mutant is left out; empty if the emulator's run shows something that a checker could see too.

    Faults that are confirmed by construction are run as well: some do no harm with these operands.
    """
    shown = proof(replace(mutant, fault=replace(mutant.fault, by="emulator")))
    if not shown or shown.startswith("it cannot be launched"):
        return "no effect in the emulator's run"
    if shown in ENDLESS:
        return "it would not end"
    return "a wrong result alone" if shown == "wrong result" else ""


def save(text: str, entry: str, work: Work) -> bytes:
    """The operands as .npz: arrays as `p0`, and the bytes of numbers and structs as `v1`, by their places."""
    params = Module(text).kernel(entry).params
    if len(params) != len(work.args):
        raise ValueError(f"{entry} takes {len(params)} operands, not {len(work.args)}")
    arrays = {}
    for place, (param, value) in enumerate(zip(params, work.args, strict=True)):
        if isinstance(value, np.ndarray) and param.type.bits == 64 and not param.array:
            arrays[f"p{place}"] = value
        else:
            data = value if isinstance(value, bytes) else scalar(entry, param, value)
            arrays[f"v{place}"] = np.frombuffer(data, np.uint8)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def three(size: Any) -> list[int]:
    return [int(n) for n in (*(size if isinstance(size, Iterable) else (size,)), 1, 1)[:3]]


def prepare(
    origins: Iterable[Origin], seed: int, per_fault: int, analyzer: Analyzer, path: Path, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the archive; its index."""
    judge, rows = Judge(analyzer), []
    left_out: dict[str, Counter[str]] = {fault: Counter() for fault in kinds()}
    places: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, mutant in enumerate(mutants(origins, seed, per_fault, kinds())):
            fault, origin = mutant.fault, mutant.origin
            reason = "not for this GPU" if not for_hopper(mutant.text) else why_not(mutant)
            if reason:
                left_out[fault.id][reason] += 1
                continue
            if origin.name not in places:
                places[origin.name] = _place(archive, origin, len(places))
            text = f"mutants/{number:04}-{fault.id}.ptx"
            archive.writestr(text, loadable(mutant.text))
            rows.append({"mutant": mutant.name, "fault": fault.id, "rule": fault.rules[0], "static": fault.static,
                         "origin": origin.name, "ptx": text, "ours": judge.verdict(mutant).right})  # fmt: skip
        index = {**facts, "seed": seed, "per_fault": per_fault, "origins": places, "mutants": rows,
                 "left_out": {fault: dict(count) for fault, count in left_out.items() if count}}  # fmt: skip
        archive.writestr("index.json", json.dumps(index, indent=1))
    return index


def _place(archive: zipfile.ZipFile, origin: Origin, number: int) -> dict[str, Any]:
    """Write an origin and its operands; how it is launched."""
    one = origin.launch
    ptx, file = f"origins/{number:03}.ptx", f"origins/{number:03}.npz"
    archive.writestr(ptx, loadable(origin.text))
    archive.writestr(file, save(origin.text, origin.entry, one.make(np.random.default_rng(SEED))))
    return {"ptx": ptx, "operands": file, "entry": origin.entry, "grid": three(one.grid), "block": three(one.block),
            "shared": int(one.shared)}  # fmt: skip
