"""A plan as lines for a terminal: layers that are alike once, then the kernels and where they are written."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from trueno.backend import columns, counted

from trueno_cuda.mapping.plan import Plan
from trueno_cuda.ptx.analyze.render import figures

LAYER = re.compile(r"^blk\.\d+\.")
HEADING = ("op", "kernel", "grid", "block", "moves", "flops", "floor", "bound by", "tensors")
RIGHT = (4, 5, 6)


def lines(plan: Plan) -> Iterator[str]:
    """The whole plan."""
    record = plan.record
    yield from head(record)
    for title, launches in groups(record["launches"]):
        yield f"\n{title}"
        yield from table(launches)
    yield f"\n{counted(len(record['kernels']), 'kernel')}"
    yield from columns([(" name", "launches", "floor", "registers", "occupancy", "written by"),
                        *map(_kernel, record["kernels"])], (1, 2, 3, 4))  # fmt: skip
    yield f"\n{parity(record)}"
    yield from (f"  {one['batched']}: {sentence}" for one in record["parity"] for sentence in one["violations"])
    yield f"\n{total(record)}"


def parity(record: dict[str, Any]) -> str:
    """How many batched kernels match their forms for one vector, by their texts."""
    good = sum(not one["violations"] for one in record["parity"])
    used = [one["kernel"] for one in record["parity"] if one["launches"]]
    return (
        f"parity: {good} of {len(record['parity'])} batched kernels match their form for one vector, by the text alone "
        f"(trueno ptx parity runs them); this plan launches {', '.join(used) or 'none of them'}"
    )


def chosen(plan: Plan) -> Iterator[str]:
    """Some kernels, each with all that the analyzer knows and with its launches."""
    record = plan.record
    yield from head(record)
    for kernel in record["kernels"]:
        yield f"\n{kernel['name']}, {kernel['instructions']} instructions"
        yield from columns([(f"  {name}", value) for name, value in facts(kernel)])
        for title, launches in groups([one for one in record["launches"] if one["kernel"] == kernel["name"]]):
            yield f"  {title}"
            yield from (f"  {line}" for line in table(launches))
    yield f"\n{total(record)}"


def users(plan: Plan) -> Iterator[str]:
    """Where some kernels are used: layers and tensors."""
    for kernel in plan.record["kernels"]:
        yield f"{kernel['name']}, written by {written(kernel)}"
        own = [one for one in plan.record["launches"] if one["kernel"] == kernel["name"]]
        rows = [
            (f"  {where(one['layer'])}", one["op"], ", ".join(one["tensors"]) or "no tensor of the model")
            for one in own
        ]
        yield from columns(rows)
    yield total(plan.record)


def head(record: dict[str, Any]) -> Iterator[str]:
    """What was planned, for which card."""
    m, p, card = record["model"], record["plan"], record["machine"]
    tied = ", tied" if m["tied"] else ""
    yield (
        f"{m['path']}: {m['architecture']}, {counted(m['layers'], 'layer')} of width {m['width']}, {m['heads']} heads "
        f"on {m['kv_heads']}, feed-forward {m['feed']}, vocabulary {m['vocabulary']}{tied}"
    )
    what = f"a prompt of {counted(p['tokens'], 'token')}" if p["prefill"] else f"one token after {p['tokens']}"
    yield (
        f"plan {p['name']}: {what}, on one {card['card']} ({card['arch']}, {card['multiprocessors']} multiprocessors; "
        f"kernels for {card['target']})"
    )
    yield f"{record['note']} ({card['launch_seconds'] * 1e6:.2f} µs)"


def groups(launches: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Launches by layer; layers with the same launches, of other tensors, are listed once."""
    by_layer: dict[int | str, list[dict[str, Any]]] = {}
    for one in launches:
        by_layer.setdefault(one["layer"], []).append(one)
    alike: dict[Any, list[int | str]] = {}
    for layer, own in by_layer.items():
        key = tuple((one["op"], one["kernel"], *one["grid"], one["bytes"], _short(one)) for one in own)
        alike.setdefault((isinstance(layer, str) and layer, key), []).append(layer)
    return [
        (f"{spans(layers)}: {_many(len(by_layer[layers[0]]))}{' each' if len(layers) > 1 else ''}", by_layer[layers[0]])
        for layers in alike.values()
    ]


def spans(layers: Sequence[int | str]) -> str:
    """`layer 3`, `layers 0 to 2, 5 and 7`, or the name of what is no layer."""
    numbers = [n for n in layers if isinstance(n, int)]
    if not numbers:
        return str(layers[0])
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    words = [w for a, b in parts for w in ([f"{a} to {b}"] if b > a + 1 else [str(n) for n in range(a, b + 1)])]
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"layer{'s' * (len(numbers) > 1)} {text}"


def table(launches: Sequence[dict[str, Any]]) -> list[str]:
    """Launches with a line each."""
    rows = [
        (f" {one['op']}", one["kernel"], "x".join(map(str, one["grid"])), "x".join(map(str, one["block"])),
         size(one["bytes"]), quantity(one["flops"]), duration(one["seconds"]), one["bound"], _short(one))
        for one in launches
    ]  # fmt: skip
    return columns([(f" {HEADING[0]}", *HEADING[1:]), *rows], RIGHT)


def where(layer: int | str) -> str:
    return f"layer {layer}" if isinstance(layer, int) else layer


def written(kernel: dict[str, Any]) -> str:
    """The place of the function that writes a kernel."""
    return f"{kernel['path']}:{kernel['line']} {kernel['function']}" if kernel["path"] else "a file that is gone"


def facts(kernel: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A kernel's lines of a report."""
    yield "written by", written(kernel)
    if kernel["constants"]:
        yield "constants", " ".join(f"{name}={value}" for name, value in kernel["constants"].items())
    yield from figures({"assumed": False, "notes": [], **kernel})
    found = counted(len(kernel["findings"]), "finding") if kernel["findings"] else "none"
    yield "findings", found


def total(record: dict[str, Any]) -> str:
    """The last line."""
    s = record["summary"]
    text = f"{_many(s['launches'])} in {counted(s['steps'], 'step')}, of {counted(s['kernels'], 'kernel')}"
    return f"{text}: {size(s['bytes'])}, {quantity(s['flops'])} flops, at least {duration(s['seconds'])}"


def _many(launches: int) -> str:
    return "1 launch" if launches == 1 else f"{launches} launches"


def _kernel(kernel: dict[str, Any]) -> tuple[str, ...]:
    registers, occupancy = kernel["registers"], kernel["occupancy"]
    used = str(registers["real"]) if registers["real"] is not None else f"{registers['live_words']} live"
    share = f"{occupancy['fraction']:.0%}" if occupancy else ""
    return f" {kernel['name']}", str(kernel["launches"]), duration(kernel["seconds"]), used, share, written(kernel)


def _short(launch: dict[str, Any]) -> str:
    """Its tensors without the layer's number."""
    return " ".join(LAYER.sub("", name).removesuffix(".weight") for name in launch["tensors"])


def size(nbytes: float) -> str:
    """`4.1 MB`."""
    return quantity(nbytes, "B", 1)


def quantity(number: float, unit: str = "", digits: int = 1) -> str:
    """`4.1 M`, with a unit behind the factor."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.{digits}f} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def duration(seconds: float) -> str:
    """`12.3 µs`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds:.2f} s"
