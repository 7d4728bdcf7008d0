"""Analyzers that know nothing, to test the tables with."""

from collections.abc import Iterable

from .measure import Case, Finding


def silent(case: Case) -> Iterable[Finding]:
    """Finds nothing: no false alarm, and no mutant."""
    return []


def loud(case: Case) -> Iterable[Finding]:
    """Finds everything, everywhere."""
    return [Finding("missing-barrier", "critical", name) for name in case.launches]
