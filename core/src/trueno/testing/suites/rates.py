"""Declared speeds against measured ones; the report shows them, and nothing fails."""

import pytest

import trueno
from trueno.testing.rates import OFF, compare
from trueno.testing.suites.rows import chosen_ops, skip_unsound, tell


def test_rates(backend: str, dtype: str, seed: int, request: pytest.FixtureRequest) -> None:
    """Times predicted from `rates`, and times measured here."""
    skip_unsound(backend)
    if (devices := trueno.backends()[backend].devices) and all(d.software for d in devices):
        pytest.skip("software emulates the device: its rates are not used for a ranking")
    rows = compare(backend, dtype, seed, chosen_ops(request.config))
    for row in rows:
        tell(request, "rates", row)
    if off := sum(row.off for row in rows):
        tell(
            request,
            "remark",
            f"{off} of {len(rows)} times in {dtype} are more than {OFF:.0f}× off what rates() declares",
        )
