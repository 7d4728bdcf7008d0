"""Whether and how float32's matmul tries AMX's tiles; the rest, or what they do not suit, is left to register tiles."""

from functools import cache
from typing import Any

from trueno_simd.kernels.amx.pack import STRIP_STEP32
from trueno_simd.kernels.amx.product import SIDE, multiply, over, places, slab_of
from trueno_simd.llvm.amx import Tiles
from trueno_simd.llvm.calls import address_of
from trueno_simd.llvm.jit import inner, special

LEAST = 448**3  # m n k from which on packing pays
LEAST_K, MOST_K = 32, 1 << 20  # for which the error is proved (`product`), and no sum overflows (`pack.exact`)
SMALL = (LEAST * LEAST_K).bit_length() - 1  # m k · k n is less in bits: no product of such operands is tried
SHAPE32 = (256, 256, 128, 512)  # as `product.multiply` takes it; the best of 54 on two cores of Emerald Rapids

pack_piece = block_piece = None  # `float32` gives the functions below copies that have them


@inner
def no_room(m, n, k):
    return 0


@inner
def leave(a, b, c, m, n, k, scratch, finish, more, above):
    return 0


@inner
def room(m, n, k):
    """Bytes that `attempt` needs; 0 where it is not to be called."""
    if m * n * k < LEAST or min(m, n) < SIDE or k < LEAST_K or k > MOST_K:
        return 0
    return places(4, STRIP_STEP32, m, n, slab_of(SHAPE32[0], k), 0)[4]


@inner
def attempt(a, b, c, m, n, k, scratch, finish, more, above):
    """1 if it has computed and finished C, 0 if not."""
    return multiply(4, STRIP_STEP32, address_of(pack_piece), address_of(block_piece), a, b, c, m, n, k, scratch,
                    SHAPE32, finish, more, above)  # fmt: skip


@cache
def float32(tiles: Tiles) -> tuple[Any, Any]:
    """The functions `(room, attempt)` over one form of the tiles."""
    pieces = dict(zip(("pack_piece", "block_piece"), over(tiles, 32), strict=True))
    return room, inner(special(attempt, f"attempt_{tiles.name}32", pieces))
