"""The kit's tests: modules for a backend's declarations, behaviour, kernels, values, threads, and rates.

pytest collects them through `-p trueno.testing.plugin`, or from your own test module:

    from trueno.testing.suites import *
    BACKEND = "acme"
"""

from trueno.testing.suites.behaviour import test_discovery, test_force_cpu, test_fork, test_probes
from trueno.testing.suites.declared import test_arrays, test_manifest, test_names, test_protocol, test_records
from trueno.testing.suites.kernels import test_kernels
from trueno.testing.suites.rates import test_rates
from trueno.testing.suites.rows import every_layout, pytest_generate_tests, seed
from trueno.testing.suites.threads import test_threads
from trueno.testing.suites.values import test_manners, test_values

__all__ = [
    "every_layout",
    "pytest_generate_tests",
    "seed",
    "test_arrays",
    "test_discovery",
    "test_force_cpu",
    "test_fork",
    "test_kernels",
    "test_manifest",
    "test_manners",
    "test_names",
    "test_probes",
    "test_protocol",
    "test_rates",
    "test_records",
    "test_threads",
    "test_values",
]
