"""The pages about PTX: the CUDA plugin writes them."""

from pathlib import Path

SOURCES = Path(__file__).parents[2] / "plugins/cuda/src/trueno_cuda"


def builder_page() -> str:
    """All that a kernel may say, as its builder tells it."""
    from trueno_cuda.ptx.reference import page as builder

    return builder()


def findings_page() -> str:
    """What the emulator finds, each with an example."""
    from trueno_cuda.ptx.emulate.findings import page as findings

    return findings()


def analyzer_rules_page() -> str:
    """The analyzer's rules in a table."""
    from trueno_cuda.ptx.analyze.reference import rules_page

    return rules_page()


def analyzer_report_page() -> str:
    """The schema of the analyzer's JSON."""
    from trueno_cuda.ptx.analyze.reference import report_page

    return report_page()


def analyzer_rule_page(name: str) -> str:
    """One rule of the analyzer."""
    from trueno_cuda.ptx.analyze.reference import rule_page

    return rule_page(name)


def rules() -> list[str]:
    """The rules' names: each has a file, which is not imported for this."""
    folder = SOURCES / "ptx/analyze/rules"
    return sorted(p.stem.replace("_", "-") for p in folder.glob("*.py") if "\nRULE = " in p.read_text("utf-8"))
