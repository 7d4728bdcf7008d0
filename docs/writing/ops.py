"""The reference of the ops: a page for each family, and a table of all."""

import re
from functools import cache, partial
from itertools import groupby
from typing import Any

from docs.writing.beside import BESIDE, NONE
from docs.writing.markdown import code, table
from docs.writing.speed import sentence

DTYPES = ("float32", "float64", "float16", "bfloat16")
APPROXIMATED = ("div", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "log1p_unit",
                "tanh", "erf", "sin", "cos", "atan", "pow")  # fmt: skip
"""The steps of a program that a backend need not round correctly."""
CORRECT = {"div": 0.5, "sqrt": 0.5}
"""The errors of those that are correctly rounded where a backend states no other."""
DIGITS = 4


def families() -> list[tuple[str, list[Any]]]:
    """The table's ops by family, both in the order of declaration."""
    from trueno.ops import TABLE

    return [(family, list(ops)) for family, ops in groupby(TABLE.values(), key=lambda op: op.family)]


def call_text(op: Any) -> str:
    """How the op is called: `rms_norm(x, w, *, eps=1e-06, out=None)`."""
    from trueno.dispatch.parameters import parameters

    shown, keyword = [], False
    for p in parameters(op):
        if p.kind is p.KEYWORD_ONLY and not keyword:
            shown.append("*")
            keyword = True
        shown.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"{op.name}({', '.join(shown)})"


def listed(doc: str) -> str:
    """A docstring as Markdown: its closing lines (`Shapes: …`, `Edges: …`, `Source: …`) become a list."""
    text, field, rest = doc.partition("\nShapes: ")
    if not field:
        return doc
    items = re.sub(r"^([A-Z][a-z]+): ", r"- **\1:** ", f"Shapes: {rest}", flags=re.MULTILINE)
    return f"{text.rstrip()}\n\n{items}"


def pages() -> dict[str, Any]:
    """The path and the writer of each page."""
    from trueno.ops import FAMILIES

    return {"reference/ops/index.md": index_page} | {
        f"reference/ops/{family}.md": partial(family_page, family) for family in FAMILIES
    }


def index_page() -> str:
    """All ops in a table, each with a link."""
    count = sum(len(ops) for _, ops in families())
    intro = (
        f"# Ops\n\nAll {count} ops, by family. Each is a function of `trueno`, an awaitable one of `trueno.aio`, and a "
        "method of `trueno.Batch`; most are methods of `Vector` and `Matrix`. The last columns say in which dtypes a "
        "backend has kernels: 32 is float32, 64 is float64, 16 is float16 and bfloat16. \\* means: for some of the "
        "formats of blocks. The reference takes all of them, and calls in 16 bits without a kernel are computed in "
        "float32 and rounded once. `cuda_emulated` takes what `cuda` takes.\n"
    )
    parts = [intro]
    names = list(_backends())
    for family, ops in families():
        rows = []
        for op in ops:
            link = f"[`{op.name}`]({family}.md#{op.name})"
            rows.append((link, op.doc.partition("\n")[0].rstrip("."), *_short(op).values()))
        head = ("op", "meaning", *names)
        parts.append(f"\n## [{family.capitalize()}]({family}.md)\n\n{table(head, rows)}")
    return "".join(parts)


@cache
def family_page(family: str) -> str:
    """The ops of a family with all that is known about each."""
    ops = dict(families())[family]
    intro = (
        f"# {family.capitalize()}\n\nA signature names the axes of each operand: `...` is any number of leading axes, "
        f"`n` the row's. Examples show {DIGITS} digits, after `import numpy as np` and `import trueno`.\n"
    )
    return "".join([intro, *map(_entry, ops)])


def _entry(op: Any) -> str:
    from trueno.ops import ALIASES

    aliases = [alias for alias, name in ALIASES.items() if name == op.name]
    also = f" Also spelled {code(aliases)}." if aliases else ""
    beside = BESIDE.get(op.name)
    call = example(op)
    shown = result(call)
    rows = []
    if beside:
        row = " (of one row)" if beside.one_row else ""
        rows += [
            f"- **{name}:** {_said(text)}{row}" for name, text in (("NumPy", beside.numpy), ("PyTorch", beside.torch))
        ]
    rows += [f"- **Accuracy:** {accuracy(op)}.", f"- **Backends:** {'; '.join(_long(op))}."]
    doc = listed(op.doc).rstrip()
    rows += [f"- **Speed:** {figures}."] if (figures := sentence(op.name)) else []
    listing = "\n".join([doc if "- **Shapes:**" in doc else f"{doc}\n", *rows])
    return (
        f"\n## {op.name}\n\n    trueno.{call_text(op)}\n\n`{op.signature_text}`.{also}\n\n{listing}\n\n"
        f'```python\n{call}\n```\n\n```text title="Output"\n{shown}\n```\n'
    )


def _said(expression: str) -> str:
    return NONE if expression == NONE else f"`{expression}`"


def example(op: Any) -> str:
    """A call of the op: its lines, of which the last is an expression."""
    if op.name in BESIDE and BESIDE[op.name].example:
        return BESIDE[op.name].example
    values = {0: "[-1.0, 0.5, 2.0]", 1: "[-1.0, 0.5, 2.0]", 2: "[[1.0, 2.0], [3.0, 4.0]]"}
    others = {0: "[4.0, 2.0, -3.0]", 1: "[4.0, 2.0, -3.0]", 2: "[[0.0, 1.0], [1.0, 0.0]]"}
    if op.domain:
        values[0] = "[0.5, 1.0, 2.0]" if op.domain[1] > 1 else "[-0.5, 0.0, 0.5]"
    if any(len(spec.dims) == 2 for spec in op.signature.inputs):
        values[1] = others[1] = "[1.0, -1.0]"
    operands = [(others if i == 1 else values)[len(spec.dims)] for i, spec in enumerate(op.signature.inputs)]
    return f"trueno.{op.name}({', '.join(operands)})"


def result(call: str) -> str:
    """What an example shows, computed by the reference."""
    import numpy as np
    import trueno

    *before, last = call.splitlines()
    names = {"np": np, "trueno": trueno}
    with trueno.use("reference"), np.printoptions(precision=DIGITS, suppress=True):
        exec("\n".join(before), names)
        return repr(eval(last, names))


def accuracy(op: Any) -> str:
    """How exact the op is: by the entry, by the sum of products that it is, or by the steps of its program."""
    if op.name in BESIDE and BESIDE[op.name].exact:
        return BESIDE[op.name].exact
    if op.structured:
        if op.chain is not None:
            return "a sum of k products errs by at most (k + 4) · u · Σ\\|a·b\\|, u half a unit in the last place of 1"
        return "each result is rounded at most once"
    kinds = {node.kind for node in op.program().nodes}
    parts = []
    for kind in (kind for kind in APPROXIMATED if kind in kinds):
        errors = {name: _ulp(backend, kind) for name, backend in _backends().items()}
        rough = [f"{ulp:g} ulp on {name}" for name, ulp in errors.items() if ulp > 0.5]
        parts += [f"`{kind}` within {', '.join(rough)}"] if rough else []
    return "; ".join([*parts, "every other step is rounded once" if parts else "every step is rounded once"])


def _ulp(backend: Any, kind: str) -> float:
    return float(backend.accuracy.ulp.get(kind, CORRECT.get(kind, backend.accuracy.default)))


@cache
def _backends() -> dict[str, Any]:
    """The backends, from the fastest on; what they take is asked without a device."""
    from trueno_cuda.backend import CudaBackend
    from trueno_scalar.backend import ScalarBackend
    from trueno_simd.backend import SimdBackend
    from trueno_wgpu.backend import WgpuBackend

    return {"simd": SimdBackend(), "scalar": ScalarBackend(), "wgpu": WgpuBackend(), "cuda": CudaBackend()}


@cache
def _taken(name: str) -> dict[str, tuple[dict[str, int], int]]:
    """By backend, in how many of the op's formats it has a kernel in each dtype, and how many there are."""
    import ml_dtypes
    import numpy as np
    from trueno.discovery.protocol import Call
    from trueno.ops import TABLE

    op = TABLE[name]
    rank = max(len(op.signature.inputs[0].dims), 1)
    static = {p.name: p.typical for p in op.static}
    choices = next((p.choices for p in op.static if p.name == "format"), None) or (static.get("format"),)
    statics = [tuple((static | ({"format": one} if "format" in static else {})).items()) for one in choices]
    sizes = (10,) * len(op.signature.inputs)
    taken = {}
    for backend, of in _backends().items():
        counts = {}
        for text in DTYPES:
            dtype = np.dtype(ml_dtypes.bfloat16 if text == "bfloat16" else text)
            calls = [Call(op, dtype, op.layout, rank, sizes, one) for one in statics]
            counts[text] = sum(of.supports(call) is None for call in calls)
        taken[backend] = counts, len(statics)
    return taken


def _long(op: Any) -> list[str]:
    """A phrase for each group of backends that take the same dtypes."""
    phrases: dict[str, list[str]] = {}
    for backend, (counts, formats) in _taken(op.name).items():
        dtypes = [text for text in DTYPES if counts[text]] if _computes(op) else [""] * bool(max(counts.values()))
        some = f" ({max(counts.values())} of {formats} formats)" if 0 < max(counts.values()) < formats else ""
        phrases.setdefault(", ".join(dtypes) + some if dtypes else "none", []).append(backend)
    return [f"{', '.join(names)}: {what}".removesuffix(": ") for what, names in phrases.items()]


def _computes(op: Any) -> bool:
    """Whether an operand has a float dtype: others are bytes and indices, and the dtype of the call says nothing."""
    return any(not spec.type for spec in op.signature.inputs)


def _short(op: Any) -> dict[str, str]:
    """The dtypes that each backend takes, in bits."""
    short = {}
    for backend, (counts, formats) in _taken(op.name).items():
        bits = dict.fromkeys(text[-2:] if _computes(op) else "yes" for text in DTYPES if counts[text])
        short[backend] = " ".join(bits) + ("*" if 0 < max(counts.values()) < formats else "") or "–"
    return short


def summary() -> str:
    """A row a family, for the README."""
    rows = [f"| {family} | {' '.join(f'`{op.name}`' for op in ops)} |" for family, ops in families()]
    return "\n".join(["| family | ops |", "|---|---|", *rows])
