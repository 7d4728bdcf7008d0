"""One step of a plan: the launches of one op, where it is in the model, and the tensors that it reads."""

from dataclasses import dataclass

from trueno_cuda.mapping.device import Launch


@dataclass(frozen=True, slots=True)
class Step:
    """layer: its number; `embedding` and `output` are what is before and after the layers.

    name: its row in the reference plan, or the ops that run as one.  tensors: by name, for each launch.
    """

    layer: int | str
    name: str
    tensors: tuple[tuple[str, ...], ...]
    launches: tuple[Launch, ...]
