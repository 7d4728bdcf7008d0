"""What a user would write instead: `PEERS["gelu"]` has NumPy's and PyTorch's ways, a file a family."""

from benchmarks.peers import elementwise, matrix, normalization, reductions
from benchmarks.peers.ways import Peers, torch

PEERS: dict[str, Peers] = elementwise.PEERS | reductions.PEERS | normalization.PEERS | matrix.PEERS
FAMILIES = ("arithmetic", "mathematics", "activations", "reductions", "normalization")
"""The families whose every op has a row, and so a peer; of matrix ops those that have a row."""

__all__ = ["FAMILIES", "PEERS", "Peers", "torch"]
