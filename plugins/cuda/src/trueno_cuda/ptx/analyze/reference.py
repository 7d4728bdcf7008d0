"""The reference pages of the analyzer in Markdown, as `docs/reference.py` writes them."""

from importlib import resources

from trueno_cuda.ptx.analyze.rules import HEAD, RULES


def rules_page() -> str:
    """All rules in a table, and what holds for every one."""
    cells = [
        (f"[{r.id}](ptx-{r.id}.md)", r.severity, r.confidence, "waste" if r.performance else "bug", r.sentence)
        for r in RULES.values()
    ]
    rows = [f"| {' | '.join(row)} |" for row in cells]
    return (
        "# Rules of the PTX analyzer\n\n`trueno ptx FILE` reports these; [Read a kernel](../how-to/read-a-kernel.md) "
        "shows how. `--rule` and `--ignore` take the names. Severity high or critical makes the exit code 1."
        "\n\nA comment excuses the findings of a rule on its line, or on the next line where it stands alone; it needs "
        "a reason:\n\n    // ptx: allow(bank-conflict) the array is read once\n\n"
        "| rule | severity | confidence | finds | what |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def rule_page(name: str) -> str:
    """One rule: what it finds, why that matters, what to do, and a kernel with and without it."""
    rule = RULES[name]
    return (
        f"# {rule.id}\n\nSeverity {rule.severity}, confidence {rule.confidence}.\n\n{rule.sentence}\n\n{rule.why}\n\n"
        f"## What to do\n\n{rule.fix}\n\n## Reported\n\n{_code(rule.bad)}\n\n## Not reported\n\n{_code(rule.good)}\n\n"
        f"## Before both stands\n\n{_code(HEAD.rstrip())}\n"
    )


def report_page() -> str:
    """The schema of the JSON report."""
    schema = resources.files(__package__).joinpath("schema.json").read_text("utf-8")
    return (
        "# Report of the PTX analyzer\n\n`trueno ptx --json FILE…` prints an object that this JSON Schema describes. "
        "`live` registers are the text's own (virtual); `real` ones are those of ptxas or nvJitLink.\n\n"
        "```json\n" + schema.rstrip() + "\n```\n"
    )


def _code(text: str) -> str:
    """A block, of a long text its start."""
    lines = text.split("\n")
    if len(lines) > 20:
        lines = [*lines[:6], "…", *lines[-3:]]
    return "\n".join(f"    {line}" for line in lines)
