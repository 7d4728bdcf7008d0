"""Several threads at once."""

from trueno.testing.threads import check_threads


def test_threads(backend: str, dtype: str, seed: int) -> None:
    """Eight threads calling some ops at once get what one would."""
    check_threads(backend, dtype, seed)
