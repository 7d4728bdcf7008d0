"""A plan as one HTML file that needs no network: its kernels, its launches with filters, and each kernel's own part."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from trueno_cuda.mapping.plan import Plan
from trueno_cuda.mapping.show import duration, facts, head, parity, quantity, size, total, where, written
from trueno_cuda.ptx.analyze.drawing import markup
from trueno_cuda.ptx.analyze.page import section, style


def html(plan: Plan) -> str:
    """The page."""
    record = plan.record
    kernels, launches = record["kernels"], record["launches"]
    anchors = {kernel["name"]: f"k{k}" for k, kernel in enumerate(kernels)}
    layers = list(dict.fromkeys(one["layer"] for one in launches))
    values = {
        "STYLE": style(),
        "TITLE": markup(f"{record['model']['path']}: {record['plan']['name']} plan"),
        "HEAD": "".join(f"<p>{markup(line)}</p>" for line in (*head(record), total(record))),
        "PARITY": "".join(_pair(one) for one in record["parity"]),
        "MATCHING": markup(parity(record)),
        "KERNELS": "".join(_row(kernel, record["summary"]["seconds"], anchors) for kernel in kernels),
        "LAYERS": "".join(f'<option value="{markup(str(n))}">{markup(str(n))}</option>' for n in layers),
        "NAMES": "".join(f"<option>{markup(kernel['name'])}</option>" for kernel in kernels),
        "LAUNCHES": "".join(_launches(launches, anchors)),
        "SECTIONS": "".join(_part(kernel, plan, anchors[kernel["name"]]) for kernel in kernels),
    }
    page = files(__package__).joinpath("page.html").read_text("utf-8")
    for name, value in values.items():
        page = page.replace(f"<!--{name}-->", value)  # of which no value has one: `<` is escaped
    return page


def _breakable(text: str) -> str:
    """A long name or path as HTML that a narrow column breaks between its parts, not inside of a word or a number."""
    return markup(text).replace("/", "/<wbr>").replace("_", "_<wbr>")


def _row(kernel: dict[str, Any], whole: float, anchors: dict[str, str]) -> str:
    """A kernel with its share of the plan's time."""
    registers, occupancy, name = kernel["registers"], kernel["occupancy"], kernel["name"]
    used = str(registers["real"]) if registers["real"] is not None else f"{registers['live_words']} live"
    share = 100 * kernel["seconds"] / whole if whole else 0.0
    filled = f"{occupancy['fraction']:.0%}" if occupancy else ""
    return (
        f'<tr><td class="name"><a href="#{anchors[name]}">{_breakable(name)}</a></td>'
        f'<td class="number"><button type="button" data-kernel="{markup(name)}">{kernel["launches"]}</button></td>'
        f'<td class="number">{duration(kernel["seconds"])}</td>'
        f'<td class="share" title="{share:.1f} %"><span style="width:{share:.0f}px"></span></td>'
        f'<td class="number">{used}</td><td class="number">{filled}</td>'
        f'<td class="name">{_breakable(written(kernel))}</td></tr>'
    )


def _pair(one: dict[str, Any]) -> str:
    """A batched kernel beside its form for one vector."""
    names = "".join(
        f'<td class="name">{markup(one[name])}</td>' for name in ("kernel", "strategy", "batched", "single")
    )
    said = markup("; ".join(one["violations"]) or "matches")
    return f'<tr>{names}<td>{said}</td><td class="number">{one["launches"]}</td></tr>'


def _launches(launches: list[dict[str, Any]], anchors: dict[str, str]) -> Iterator[str]:
    before: Any = None
    for one in launches:
        first = ' class="first"' if one["layer"] != before else ""
        before = one["layer"]
        grid, block = ("x".join(map(str, one[name])) for name in ("grid", "block"))
        name = markup(one["kernel"])
        yield (
            f'<tr{first} data-layer="{markup(str(one["layer"]))}" data-kernel="{name}" '
            f'data-seconds="{one["seconds"]!r}">'
            f'<td class="number soft">{one["number"]}</td><td>{markup(where(one["layer"]))}</td>'
            f'<td class="name">{_breakable(one["op"])}</td>'
            f'<td class="name"><a href="#{anchors[one["kernel"]]}">{_breakable(one["kernel"])}</a></td>'
            f'<td>{grid} × {block}</td><td class="number">{size(one["bytes"])}</td>'
            f'<td class="number">{quantity(one["flops"])}</td><td class="number">{duration(one["seconds"])}</td>'
            f'<td>{one["bound"]}</td><td class="name">{_breakable(", ".join(one["tensors"]))}</td></tr>'
        )


def _part(kernel: dict[str, Any], plan: Plan, anchor: str) -> str:
    """A kernel's text, with its control flow and its accesses, below what the report says of it."""
    analysis = plan.analyses[kernel["name"]]
    (entry,) = [one for one in analysis.entries if one.function.entry]
    (place,) = [text for name, text in facts(kernel) if name == "written by"]
    return (
        f'<details id="{anchor}"><summary>{markup(kernel["name"])}, <span class="soft">{markup(place)}</span></summary>'
        f"{''.join(section(f'{anchor}-text', analysis, entry, most=0))}</details>"
    )
