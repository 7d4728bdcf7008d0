"""Several threads at once."""

import pytest

from trueno.testing.calls import explained
from trueno.testing.suites.rows import none_of, quick, skip_unsound
from trueno.testing.threads import ROUNDS, check_threads


def test_threads(backend: str, dtype: str, seed: int, request: pytest.FixtureRequest) -> None:
    """Eight threads calling some ops at once get the same results as one."""
    skip_unsound(backend)
    wrong = []
    try:
        check_threads(backend, dtype, seed, 3 if quick(request) else ROUNDS)
    except AssertionError as error:
        wrong.append(str(error))
    except Exception as error:
        wrong.append(f"{backend}: a call in one of several threads {explained(error)}")
    none_of(wrong)
