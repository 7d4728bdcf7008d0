"""The backend's side effects: imports, prints, changes, forks."""

from trueno.testing.hygiene import discovery_problems, force_cpu_problems, fork_problems, probe_problems
from trueno.testing.suites.rows import none_of, skip_unsound


def test_discovery(backend: str) -> None:
    """Listing the backends imports none of its code."""
    none_of(discovery_problems(backend))


def test_probes(backend: str) -> None:
    """Probes are ok, and the same each time; they print nothing and leave the process unchanged."""
    none_of(probe_problems(backend))


def test_fork(backend: str) -> None:
    """After probe(1) a process may fork, and its child may compute."""
    skip_unsound(backend)
    none_of(fork_problems(backend))


def test_force_cpu(backend: str) -> None:
    """TRUENO_FORCE_CPU=1 keeps a GPU's backend out of the process, and a CPU's in."""
    none_of(force_cpu_problems(backend))
