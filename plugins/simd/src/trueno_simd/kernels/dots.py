"""Dot products of a few rows with four keys at a time: every sum has a register, and one tree of shuffles adds them up.

A tile of r rows and four keys keeps 4 r vectors of sums; d advances by a vector.  At the end the 4 r vectors become one
with a sum in each lane: at each level pairs of vectors are blended, so that it takes about three instructions a sum.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels.tile import VECTOR_BYTES, at
from trueno_simd.llvm.jit import outer

KEYS = 4  # of a tile
LANES = VECTOR_BYTES // 4
MOST = max(1, LANES // KEYS)  # rows of a tile
_I32, _I64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_KIND = ir.VectorType(_FLOAT, LANES)


def _shuffled(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


def _tree(builder: Any, sums: list[Any]) -> Any:
    """One vector of len(sums) lanes: lane i is the sum of vector i's lanes."""
    count, step = len(sums), 1
    while len(sums) > 1:
        joined = []
        for i in range(0, len(sums), 2):
            a, b = sums[i], sums[i + 1]
            own = [lane + LANES * bool(lane & step) for lane in range(LANES)]
            other = [(lane ^ step) + LANES * bool(lane & step) for lane in range(LANES)]
            joined.append(builder.fadd(_shuffled(builder, a, b, own), _shuffled(builder, a, b, other)))
        sums, step = joined, 2 * step
    value, width = sums[0], LANES
    while width > count:
        width //= 2
        halves = (_shuffled(builder, value, value, [i + start for i in range(width)]) for start in (0, width))
        value = builder.fadd(*halves)
    return value


def _tile(rows: int) -> Any:
    """A function of one tile of that many rows; rows from `valid` on repeat the last one."""

    @intrinsic
    def tile(
        _: Any, q: Any, q_row: Any, k: Any, k_row: Any, out: Any, out_row: Any, n: Any, valid: Any, keys: Any
    ) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            q, q_row, k, k_row, out, out_row, n, valid, keys = values

            def place(base: Any, stride: Any, i: int, count: Any) -> Any:
                if i == 0:
                    return base
                last = builder.sub(count, _I64(1))
                index = builder.select(builder.icmp_signed("<", _I64(i), last), _I64(i), last)
                return builder.add(base, builder.mul(stride, index))

            row_places = [place(q, q_row, i, valid) for i in range(rows)]
            key_places = [place(k, k_row, j, keys) for j in range(KEYS)]
            before = builder.block
            body, end = builder.append_basic_block("d"), builder.append_basic_block("d.end")
            builder.branch(body)
            builder.position_at_end(body)
            shift = builder.phi(_I64)
            shift.add_incoming(_I64(0), before)
            sums = [builder.phi(_KIND) for _ in range(rows * KEYS)]

            def load(base: Any) -> Any:
                return builder.load(at(builder, builder.add(base, shift), _KIND), align=4)

            vectors = [load(p) for p in key_places]
            for i, row in enumerate(row_places):
                factor = load(row)
                for j, vector in enumerate(vectors):
                    total = sums[i * KEYS + j]
                    product = builder.fmul(factor, vector, flags=("contract",))
                    total.add_incoming(ir.Constant(_KIND, [0.0] * LANES), before)
                    total.add_incoming(builder.fadd(total, product, flags=("contract",)), body)
            following = builder.add(shift, _I64(VECTOR_BYTES))
            shift.add_incoming(following, body)
            builder.cbranch(builder.icmp_signed("<", following, builder.mul(n, _I64(4))), body, end)
            builder.position_at_end(end)
            finals = [total.incomings[1][0] for total in sums]
            scores = _tree(builder, finals)
            for i in range(rows):
                four = _shuffled(builder, scores, scores, [i * KEYS + j for j in range(KEYS)])
                builder.store(four, at(builder, place(out, out_row, i, valid), four.type), align=4)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), emit

    return tile


one, two, four = _tile(1), _tile(min(2, MOST)), _tile(MOST)


@outer
def products(q, q_row, k, k_row, out, out_row, n, rows, keys):
    """out[i, j] = q[i] . k[j] for all rows and keys; n is whole vectors, and 4 keys at a time are written.

    Addresses, with rows in bytes apart; `out` has room for whole tiles of keys.
    """
    for j in range(0, keys, KEYS):
        left, place, target = keys - j, k + j * k_row, out + 4 * j
        i = 0
        while rows - i > 2:
            four(q + i * q_row, q_row, place, k_row, target + i * out_row, out_row, n, min(rows - i, MOST), left)
            i += MOST
        if rows - i > 1:
            two(q + i * q_row, q_row, place, k_row, target + i * out_row, out_row, n, min(rows - i, 2), left)
            i += min(2, MOST)
        while rows - i > 0:
            one(q + i * q_row, q_row, place, k_row, target + i * out_row, out_row, n, 1, left)
            i += 1
