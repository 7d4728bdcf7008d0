"""Declared speeds against measured ones; the report shows them, and nothing fails."""

import pytest

from trueno.testing.rates import OFF, compare
from trueno.testing.suites.rows import chosen_ops, skip_unsound, tell


def test_rates(backend: str, dtype: str, seed: int, request: pytest.FixtureRequest) -> None:
    """Times predicted from `rates`, and times taken here."""
    skip_unsound(backend)
    rows = compare(backend, dtype, seed, chosen_ops(request.config))
    for row in rows:
        tell(request, "rates", row)
    if off := sum(row.off for row in rows):
        tell(
            request,
            "remark",
            f"{off} of {len(rows)} times in {dtype} are more than {OFF:.0f}× off what rates() declares",
        )
