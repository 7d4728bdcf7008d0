"""What a user would write instead: `peers_of(op)` has NumPy's and PyTorch's ways.

A file a family holds what is written by hand: several steps, or a binding that is faster than the public function.
`trueno.cli.peers` finds what bears the op's name or an alias, so a new op needs no row here.
"""

from functools import partial
from typing import Any

from trueno.cli import peers as by_name
from trueno.ops.op import Op

from benchmarks.peers import elementwise, matrix, normalization, reductions
from benchmarks.peers.ways import Peers, Way, a_way, torch
from benchmarks.timing import Thunk, bind

PEERS: dict[str, Peers] = elementwise.PEERS | reductions.PEERS | normalization.PEERS | matrix.PEERS
FAMILIES = ("arithmetic", "mathematics", "activations", "reductions", "normalization")
"""The families whose operands `Arena` makes from one shape."""

__all__ = ["FAMILIES", "PEERS", "Peers", "peers_of", "torch"]


def peers_of(op: Op) -> Peers:
    """The row of an op; for a library that the row leaves out, the function that bears the op's name.

    NumPy's last resort is the op's body, one call a step.  PyTorch may have none.
    """
    row = PEERS.get(op.name, Peers())
    return Peers(
        (_numpy(op),) if row.numpy is None else row.numpy,
        (_torch(op),) if row.torch is None else row.torch,
    )


def _numpy(op: Op) -> Way:
    @a_way
    def way(*operands: Any, out: Any, scratch: Any, **params: Any) -> Thunk:
        functions = by_name.numpy_functions(op, operands, params, out)
        return _bound(functions[0]) if functions else by_name.meaning(op, operands, params)

    return way


def _torch(op: Op) -> Way:
    @a_way
    def way(*operands: Any, out: Any, scratch: Any, **params: Any) -> Thunk | None:
        call = by_name.torch_peer(op, operands, params, out)
        return None if call is None else _bound(call)

    return way


def _bound(call: Any) -> Thunk:
    """The call, as cheap as those that are written by hand."""
    return bind(call.func, *call.args, **call.keywords) if isinstance(call, partial) else call
