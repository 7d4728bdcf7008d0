"""Every op on every backend that is installed here, float32 and float64: the kit's own suite, run over the table.

A failure prints the case and its seed; `--trueno-seed` (with `-p trueno.testing.plugin`) draws other operands.
"""

from trueno.testing.conformance import (  # noqa: F401 - pytest collects what is imported here
    pytest_generate_tests,
    seed,
    test_manners,
    test_values,
)
