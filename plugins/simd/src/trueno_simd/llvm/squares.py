"""A square of numbers, turned in registers: rows of one side become columns of the other.

L rows of L numbers, L lanes a vector, are interleaved log2(L) times: each line is touched once on either side, with no
scalar move.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def turned(builder: Any, vectors: list[Any]) -> list[Any]:
    """The columns of a square whose rows are these LLVM vectors."""
    lanes = len(vectors)
    half, count = lanes // 2, 1
    low = [i // 2 + lanes * (i % 2) for i in range(lanes)]
    orders = [ir.Constant(ir.VectorType(ir.IntType(32), lanes), order) for order in (low, [half + i for i in low])]
    while count < lanes:
        pairs = [(vectors[i], vectors[i + half]) for i in range(half)]
        vectors = [builder.shuffle_vector(a, b, order) for a, b in pairs for order in orders]
        count *= 2
    return vectors


@intrinsic
def square(_: Any, lanes: Any, target: Any, i: Any, down: Any, source: Any, j: Any, across: Any) -> Any:
    """Turn the square at `source[j]`, with rows `across` elements apart, into that at `target[i]`, `down` apart."""
    if not isinstance(lanes, types.IntegerLiteral) or source != target:
        return None
    count = lanes.literal_value

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, target, i, down, source, j, across = values
        scalar = context.get_data_type(signature.args[1].dtype)
        kind = ir.VectorType(scalar, count)
        size = 8 if isinstance(scalar, ir.DoubleType) else 4

        def at(base: Any, first: Any, row: Any, k: int) -> Any:
            place = builder.add(first, builder.mul(row, ir.Constant(ir.IntType(64), k)))
            return builder.bitcast(builder.gep(base, [place], inbounds=True), kind.as_pointer())

        vectors = [builder.load(at(source, j, across, k), align=size) for k in range(count)]
        for k, vector in enumerate(turned(builder, vectors)):
            builder.store(vector, at(target, i, down, k), align=size)
        return context.get_dummy_value()

    return types.void(lanes, target, types.int64, types.int64, source, types.int64, types.int64), emit
