"""Generated from the op table by `python -m trueno._stubs`; edit the table instead."""

# mypy: disable-error-code="overload-overlap,misc,override"

import numpy as np
from collections.abc import Sequence
from numpy.typing import NDArray
from trueno._types import Backend, Dtype, Foreign, Host, Operand
from trueno.batch import Batch
from trueno.caches import Pages
from trueno.caches.step import CacheStep
from typing import Any, Literal, overload

Array = np.ndarray[Any, Any]

class KVCache:
    """The keys and values of `layers` layers: heads of `head_dim` numbers, and values of `value_dim` (0: the same)."""

    format: str
    capacity: int
    layers: int
    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        value_dim: int = 0,
        dtype: Dtype | Literal["q8_0", "f32", "f16", "bf16"] = "float16",
        capacity: int,
        sequences: int = 1,
        page: int = 0,
        device: Backend = "",
    ) -> None: ...
    @property
    def page(self) -> int:
        """Tokens of a page."""
    @property
    def device(self) -> str:
        """The device on which the pages are, or "host"."""
    @property
    def nbytes(self) -> int:
        """Bytes of all pages of all layers."""
    @property
    def used(self) -> int:
        """Bytes of the pages that hold tokens; a page that sequences share counts once."""
    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequences that there are."""
    def length(self, sequence: int) -> int:
        """Tokens of a sequence that every layer has."""
    def pages(self, layer: int) -> tuple[Pages, Pages]:
        """The keys and the values of one layer, as ops and batches take them; the memory itself."""
    def table(self, sequences: Sequence[int]) -> Array:
        """The page tables of these sequences, [sequences, most pages of one]; 0 where a sequence has no page."""
    def lengths(self, sequences: Sequence[int], layer: int=0) -> Array:
        """The tokens of these sequences in one layer."""
    def read(self, layer: int, sequence: int) -> tuple[Array, Array]:
        """Copies of the keys and the values of a sequence in one layer, float32 [tokens, heads, numbers of a head]."""
    def _place(self, layer: int, sequence: int) -> tuple[Array, Array]: ...
    def new(self) -> int:
        """The number of a new sequence without tokens."""
    def fork(self, sequence: int) -> int:
        """A new sequence with the same tokens, on the same pages."""
    def truncate(self, sequence: int, length: int) -> None:
        """Forget the tokens of a sequence from `length` on, in every layer; one with fewer stays as it is."""
    def release(self, sequence: int) -> None:
        """Forget a sequence; its pages are free, but for those that others share."""
    def defragment(self) -> None:
        """Move the used pages to the beginning, those of a sequence side by side: page tables change."""
    def reserve(self, sequences: Sequence[int], tokens: int, layer: int=0) -> Array:
        """The slots [sequences · tokens] of the next tokens of one layer, with pages for them."""
    def _check(self, sequences: Any, tokens: Any, layer: int) -> list[int]:
        """Sequences as a list; ParameterError for a layer, sequences or tokens that cannot be reserved or counted."""
    def _listed(self, sequences: Any) -> list[int]:
        """Sequences as a list of their numbers; ParameterError for anything else, and for one that is not there."""
    def commit(self, sequences: Sequence[int], tokens: int, layer: int | None=None) -> None:
        """Count tokens that were written to reserved slots; layer: only in this one."""
    def append(self, layer: int, k: Operand, v: Operand, sequences: int | Sequence[int]) -> None:
        """Add tokens to one layer: k[t,hk,d] and v[t,hk,e] to a sequence, or [b,t,hk,…] to b, float32."""
    @overload
    def attend(
        self,
        layer: int,
        q: Host,
        sequences: int | Sequence[int],
        *,
        scale: float = 0.0,
        window: int = 0,
        softcap: float = 0.0,
    ) -> NDArray[Any]:
        """Causal attention of the last t tokens: q[t,hq,d] of one sequence, or q[b,t,hq,d] of b; y[…,t,hq,e]."""
    @overload
    def attend(
        self,
        layer: int,
        q: Foreign,
        sequences: int | Sequence[int],
        *,
        scale: float = 0.0,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Any: ...
    def record(self, batch: Batch, sequences: int) -> CacheStep:
        """One new token of each of so many sequences, in a batch: its `run` serves every token."""
    def _held(self, layer: int, sequence: int) -> tuple[Array, Array]:
        """The keys and values of a sequence: views of float32 on neighbouring pages, otherwise copies."""
    def _many(self, what: str, sequences: int | Sequence[int], **arrays: Any) -> tuple[list[int], list[Any]]:
        """Sequences as a list, and arrays [sequences, tokens, heads, numbers]."""
    def __repr__(self) -> str: ...
