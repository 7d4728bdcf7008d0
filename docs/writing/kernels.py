"""The page of CUDA kernels: the plugin's catalogue, with the figures of `benchmarks/results` that name a kernel."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from docs.writing.markdown import table

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
FILE = re.compile(r"(?P<date>\d{4}-\d\d-\d\d)-nvidia-(?P<card>[a-z0-9]+)-")
ROWS = {"matmul, our PTX": "matmul", "matmul bfloat16, our PTX": "matmul_wgmma"}
"""Rows of the benchmarks that have another name than their kernel.  The row `matmul` is cuBLAS where that is there."""
SMALL = "small matmul bfloat16, our PTX"
HEADING = """# CUDA kernels

Every kernel of the CUDA backend is generated PTX, and has an entry in a catalogue beside its source: what it does, a
small sample with an independent result, and its floor, the least that any kernel has to move or compute. This page is
that catalogue.

{count}.

```
trueno ptx list                # the kernels, with the constants of their builds
trueno ptx emit softmax        # the PTX of one
trueno ptx run softmax         # its sample on the emulator: needs no GPU
trueno ptx check softmax       # the same on a GPU
```

**measured** is a share of a peer's speed in the same run: of a copy that moves as many bytes, or of cuBLAS. More than
1 is faster than the peer. A kernel without a figure has no row of its own in `benchmarks/results`; that it is right is
tested. The figures are of {sources}."""
HEAD = ("kernel", "what it does", "floor", "measured")
Row = tuple[str, str, str, str]
TYPES = " bfloat16"
PEERS = {"copy": "a copy", "torch": "cuBLAS"}
"""What a figure is a share of, by the peer's name in the files."""


def kernels_page() -> str:
    """Every kernel by family, with its floor and what was measured; and the batched forms."""
    from trueno_cuda import counting

    families: dict[str, list[Row]] = defaultdict(list)
    several = Counter(entry.name for entry, _ in counting.printed())
    for entry, kernel in counting.printed():
        name = f"`{entry.name}`" + (f": `{counting.base(kernel)}`" if several[entry.name] > 1 else "")
        row = name, entry.help.rstrip("."), counting.floor(kernel), measured(entry.name)
        families[entry.family].append(row)
    parts = [HEADING.format(count=counting.sentence(counting.distinct()[1]), sources=_sources())]
    for family, members in families.items():
        parts += [f"## {family.capitalize()}", _family(members)]
    return "\n\n".join([*parts, "## Batched forms", _parity()])


def _family(rows: list[Row]) -> str:
    """A table of one family, without a column that would say the same, or nothing, in each row."""
    floors = {row[2] for row in rows}
    kept = [0, 1, *([2] if len(floors) > 1 else []), *([3] if any(row[3] for row in rows) else [])]
    text = table(tuple(HEAD[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]).rstrip("\n")
    return text if len(floors) > 1 else f"Floor of each: {floors.pop()}.\n\n{text}"


def _parity() -> str:
    """The pairs of `KernelParity`."""
    from trueno_cuda.catalogue import registry

    rows = [
        (f"`{entry.name}`", f"`{pair.strategy}`", _set(pair.batched), _set(pair.single))
        for entry in registry.catalogue().values()
        if (pair := entry.parity) is not None
    ]
    return (
        "These kernels compute several vectors in one launch, and their results have the same bits as those of a "
        "launch per vector. With `grid_y` the vectors are along the grid's y; with `register_unroll` each thread has "
        "them in registers. `trueno ptx parity` compares the texts of each pair, and runs both.\n\n"
        + table(("kernel", "strategy", "batched build", "single build"), rows)
    )


def _set(constants: Any) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in constants.items()) or "the defaults"


@cache
def figures() -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """The records that name a kernel, each with its file: by kernel, from the newest file that has any of it."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for path in sorted(p for p in RESULTS.glob("*.json") if FILE.match(p.name)):
        here: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for record in json.loads(path.read_text("utf-8"))["records"]:
            if name := subject(record):
                here[name].append((path.stem, record))
        found |= here
    return found


def subject(record: dict[str, Any]) -> str:
    """The kernel that a record measures; empty if it measures something else, or if its result was wrong."""
    if record["value"] is None or record["problem"]:
        return ""
    if record["group"] == "lz4_gpu" and record["shape"].endswith(", cuda"):
        return "" if " level" in record["name"] else str(record["name"])
    if record["group"] != "cuda" or record["peer"] not in PEERS or record["name"] == "matmul":
        return ""
    if record["name"] == SMALL:
        return _product(record["shape"])
    return ROWS.get(record["name"], record["name"].removesuffix(TYPES))


class H200:
    """What the choice of a product's kernel asks of a device."""

    arch, sms, shared = "sm_90a", 132, 227 * 1024


def _product(shape: str) -> str:
    """The entry of the kernel that a small bfloat16 product takes on an H200: of rows, terms and columns."""
    from trueno_cuda.kernels.gemm.choice import choose_tensor
    from trueno_cuda.kernels.gemm.problem import Problem
    from trueno_cuda.ptx import bf16

    m, depth, n = map(int, shape.split("×"))
    choice = choose_tensor(Problem(m, n, depth), bf16, H200())
    return f"matmul_{choice.name.split('_')[0]}" + "_cluster" * (choice.blocks > 1)


def measured(entry: str) -> str:
    """The figures of an entry in words; empty if there are none."""
    by_peer: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, record in figures().get(entry, ()):
        kind = "bfloat16" if record["name"].endswith(TYPES) else ""
        by_peer[record["peer"], kind].append(record["value"])
    parts = []
    for (peer, kind), values in by_peer.items():
        scale, unit = (1.0, f"of {PEERS[peer]}") if peer else (1e-9, "GB/s of pages")
        digits = 2 if peer else 0
        least, most = (f"{one(values) * scale:.{digits}f}" for one in (min, max))
        span = least if least == most else f"{least} to {most}"
        parts.append(f"{span} {unit}{f' in {kind}' if kind else ''}")
    return ", ".join(parts)


def _sources() -> str:
    """The files, with date and card."""
    files: Iterable[str] = sorted({file for records in figures().values() for file, _ in records})
    listed = []
    for file in files:
        match = FILE.match(file)
        assert match is not None  # only such files are read
        listed.append(f"{match['date']} on an NVIDIA {match['card'].upper()} (`{file}`)")
    return " and of ".join(listed)
