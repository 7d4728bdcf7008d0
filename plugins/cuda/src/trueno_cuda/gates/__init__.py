"""This plugin's gates of `trueno qa`: kernels that run, batched kernels, the map of a model, and the analyzer.

`add` is the function of the entry point in the group `trueno.gates`.  A gate is handed a measurement: `note` reports
facts, `need` fails with a sentence, `skip` gives a reason, `python` and `command` run child processes.
"""

from typing import Any


def add(to: Any) -> None:
    """Declare the gates."""
    from trueno_cuda.gates import batched, explain, kernels, model  # start-up: they load every kernel

    for module in (kernels, batched, model, explain):
        for gate, check in module.GATES.items():
            to.add(gate, check)
