"""How long a row program runs, and what follows from it: its pieces, and from which size on it may use several threads.

Known from the program and the sizes alone, never from the number of threads, which results must not depend on; and
without Numba, because selecting a backend needs it.
"""

from typing import TYPE_CHECKING, Final

from trueno.backend import Rates

from trueno_simd.llvm.caches import uncached

if TYPE_CHECKING:
    from trueno.backend import Program

ROWS: Final = Rates(launch_s=0.15e-6, flops=3e10, bytes=1.2e11)
"""Of row programs in float32 on one core: from 15 (argmax) to 60 (exp) flops per nanosecond."""
COMPENSATED_S: Final = 1.1e-9
"""An element of a compensated sum in float64, which no vector instruction adds."""
PIECE_NS: Final = 2_000
"""Time of a piece at least, on one core with its operands in the cache: ten times what its hand-over takes."""


def _streams(program: "Program") -> int:
    """Arrays of a row's length: operands and results."""
    return sum(kind == "e" for _, kind in program.operands) + sum(
        program.nodes[o].space == "e" for o in program.outputs
    )


def element_ns(program: "Program", itemsize: int) -> float:
    """Nanoseconds of an element of a row, computed by one core with its operands in the cache."""
    moved = _streams(program) * itemsize
    compensated = itemsize == 8 and any(node.kind == "fsum" for node in program.nodes)
    computed = program.flops[0] * itemsize / 4 / ROWS.flops
    return max(computed, moved / ROWS.bytes, COMPENSATED_S * compensated, 1e-12) * 1e9


def stream(program: "Program", itemsize: int, last_cache: int) -> int:
    """Elements from which on results bypass a last cache of so many bytes."""
    return round(uncached(last_cache) / (max(_streams(program), 1) * itemsize))


def piece(program: "Program", itemsize: int, rank: int) -> int:
    """Elements of a piece at least: of rows computed whole, or of one pass over a long row."""
    from trueno.backend import lower  # start-up: probes need no table of ops

    passes = len(lower(program).passes) if rank == 1 else 1
    return round(PIECE_NS * passes / element_ns(program, itemsize))
