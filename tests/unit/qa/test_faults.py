"""Each gate fails when what it guards is broken: without that, a gate would be no gate."""

import pytest

pytest.importorskip("trueno_cuda")
pytest.importorskip("trueno_scalar")

from trueno.qa import registry
from trueno.qa.registry import Gates, collected, run
from trueno.settings import settings
from trueno_cuda.gates import add
from unit.qa.faults import FAULTS

PLANTED = [(gate, *one) for gate, several in FAULTS.items() for one in several]


def gates():
    """All gates, wherever the plugin's entry point is installed."""
    ours = Gates()
    add(ours)
    return {one.id: one for one in collected([("trueno-cuda", ours)])}


def test_every_gate_has_a_fault():
    assert list(gates()) == list(registry.TITLES) == [gate for gate in gates() if gate in FAULTS]


@pytest.mark.parametrize("gate, name, plant, sentence", PLANTED, ids=[f"{p[0]}-{p[1]}" for p in PLANTED])
def test_a_gate_sees_a_planted_fault(monkeypatch, gate, name, plant, sentence):
    one = gates()[gate]  # declared before anything is broken
    try:
        plant(monkeypatch)
        (outcome,) = run([one])
    finally:
        settings.override("TRUENO_BACKEND", None)
    if outcome.result == "skipped":
        pytest.skip(outcome.reason)
    assert outcome.result == "failed", f"{gate} passes although {name.replace('_', ' ')}: {outcome.measured}"
    assert sentence in outcome.reason
