"""matvec y[m] = a[m,k] x[k].

The floor is one read of the matrix; rows go to the threads in even shares.  A matrix that the second caches hold is
taken ROWS rows at a time, so that x is loaded once for all of them.  Of one that the last cache holds that cost
bandwidth: a single stream, row after row, runs at its floor, while the first cache holds x.  What comes from memory is
read side by side again: more requests are under way, which matters where others use the memory, too.

Measured on two cores of a Zen 5 with other work on them, float32, best of many in one process, ROWS at a time, one row
at a time, NumPy's OpenBLAS: 2048x2048 93, 78 and 91 µs, where a sum of the matrix takes 84; 1024x1024 28, 22 and 27.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, F64, number, overlaps, reader, source, target
from trueno_simd.kernels.table import KERNELS, PRODUCTS, Product
from trueno_simd.kernels.tile import WIDE, address, at, call, masks, size_of, vector
from trueno_simd.llvm.calls import address_of, call_finish, call_piece, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

ROWS, VECTORS = (8 if WIDE else 4), 2  # rows at a time, vectors of sums for each
LONE_VECTORS = 8  # of sums, for a row alone
FAR, LAST = 3 << 20, 32 << 20  # bytes of a matrix that no second cache holds, and that many last caches hold
LONE_FROM, LONE_TO = 1 << 11, 1 << 14  # bytes of the rows of such a matrix that are taken alone
AHEAD = 2048  # bytes by which they are prefetched
CHUNK = 1 << 16  # bytes of the matrix that justify a separate chunk
SHARES = 8  # chunks at most


def _dots(typing: Any, like: Any, rows: int, vectors: int, ahead: int) -> Any:
    """The code of `dots` for so many rows, each with so many vectors of sums.

    It prefetches the matrix `ahead` bytes ahead; 0: not at all.
    """
    kind, lanes, size = vector(like)
    scalar, suffix, group = kind.element, f"v{lanes}f{size * 8}", vectors * lanes
    free = ("reassoc", "nsz", "contract")

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        _, a, a_row, x, k, y, valid = values

        def const(value: int) -> Any:
            return ir.Constant(ir.IntType(64), value)

        zero = ir.Constant(kind, [0.0] * lanes)
        last = builder.sub(valid, const(1))
        a_rows = [a]
        for i in range(1, rows):
            row = builder.select(builder.icmp_signed("<", const(i), last), const(i), last)
            a_rows.append(builder.add(a, builder.mul(a_row, row)))
        full = builder.mul(builder.sdiv(k, const(group)), const(group))

        def loop(name: str, start: Any, stop: Any, step: int, sums: list[list[Any]], mask: bool) -> list[list[Any]]:
            """Walk p from start to stop by `step` numbers; returns the sums after it."""
            before = builder.block
            head, body, end = (builder.append_basic_block(f"{name}.{part}") for part in ("head", "body", "end"))
            builder.branch(head)
            builder.position_at_end(head)
            p = builder.phi(ir.IntType(64))
            p.add_incoming(start, before)
            running = [[builder.phi(kind) for _ in row] for row in sums]
            for row, sums_row in zip(running, sums, strict=True):
                for phi, value in zip(row, sums_row, strict=True):
                    phi.add_incoming(value, before)
            builder.cbranch(builder.icmp_signed("<", p, stop), body, end)
            builder.position_at_end(body)
            shift = builder.mul(p, const(size))
            lane = masks(builder, builder.sub(stop, p), lanes, 1)[0] if mask else None

            def load(base: Any, j: int) -> Any:
                pointer = at(builder, builder.add(builder.add(base, shift), const(j * lanes * size)), kind)
                if lane is None:
                    return builder.load(pointer, align=size)
                args = [pointer, ir.Constant(ir.IntType(32), size), lane, zero]
                return call(builder, f"llvm.masked.load.{suffix}.p0", kind, args)

            loaded = [load(x, j) for j in range(step // lanes)]
            for i in range(rows):
                for j in range(len(loaded) if ahead and lane is None else 0):
                    place = builder.add(builder.add(a_rows[i], shift), const(j * lanes * size + ahead))
                    pointer = at(builder, place, ir.IntType(8))
                    call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *(ir.IntType(32)(v) for v in (0, 3, 1))])
                for j, value in enumerate(loaded):
                    product = builder.fmul(load(a_rows[i], j), value, flags=("contract",))
                    running[i][j].add_incoming(builder.fadd(running[i][j], product, flags=("contract",)), builder.block)
                for j in range(len(loaded), vectors):
                    running[i][j].add_incoming(running[i][j], builder.block)
            p.add_incoming(builder.add(p, const(step)), builder.block)
            builder.branch(head)
            builder.position_at_end(end)
            return running

        sums = [[zero] * vectors for _ in range(rows)]
        sums = loop("pairs", const(0), full, group, sums, mask=False)
        sums = loop("rest", full, k, lanes, sums, mask=True)
        for i in range(rows):
            total = sums[i][0]
            for other in sums[i][1:]:
                total = builder.fadd(total, other)
            function = ir.FunctionType(scalar, [scalar, kind])
            fold = tile.declare(builder, f"llvm.vector.reduce.fadd.{suffix}", function)
            folded = builder.call(fold, [ir.Constant(scalar, -0.0), total], fastmath=free)
            with builder.if_then(builder.icmp_signed("<", const(i), valid)):
                builder.store(folded, at(builder, builder.add(y, const(i * size)), scalar))
        return context.get_dummy_value()

    return types.void(like, *[types.intp] * 6), emit


@intrinsic
def dots(typing: Any, like: Any, a: Any, a_row: Any, x: Any, k: Any, y: Any, valid: Any) -> Any:
    """y[i] = sum over p of a[i, p] x[p] for ROWS rows; those from `valid` on repeat the last and are not stored."""
    return _dots(typing, like, ROWS, VECTORS, 0)


@intrinsic
def lone_dot(typing: Any, like: Any, a: Any, a_row: Any, x: Any, k: Any, y: Any, valid: Any) -> Any:
    """The same for one row."""
    return _dots(typing, like, 1, LONE_VECTORS, AHEAD)


@outer
def rows_of(like, job, index):
    """y for some rows."""
    a, x, y, m, k, share, finish, more = job
    size = size_of(like)
    start, stop = index * share, min((index + 1) * share, m)
    if FAR < m * k * size <= LAST and LONE_FROM <= k * size <= LONE_TO:
        for i in range(start, stop):
            lone_dot(like, a + i * k * size, 0, x, k, y + i * size, 1)
    else:
        for i in range(start, stop, ROWS):
            dots(like, a + i * k * size, k * size, x, k, y + i * size, min(stop - i, ROWS))
    if finish:
        call_finish(finish, more, 0, 1, start, stop - start)


JOB, PRODUCT_JOB = reader(8), reader(7)


@outer
def rows32(args, index):
    rows_of(F32, JOB(args), index)
    return 0


@outer
def rows64(args, index):
    rows_of(F64, JOB(args), index)
    return 0


@inner
def shares(count, unit, size, most):
    """Split `count` rows or columns into chunks of whole units: the share, and how many."""
    wanted = min(max(size // CHUNK, 1), most)
    share = ((count + wanted - 1) // wanted + unit - 1) // unit * unit
    return share, (count + share - 1) // share


@inner
def times(like, piece, a, x, y, m, k, finish, more):
    if m:
        share, chunks = shares(m, ROWS, m * k * size_of(like), SHARES)
        parallel_for(address_of(piece), pack((a, x, y, m, k, share, finish, more)), chunks)
    return 0


@outer
def times32(args, i):
    a, x, y, m, k, finish, more = PRODUCT_JOB(args)
    return times(F32, rows32, a, x, y, m, k, finish, more)


@outer
def times64(args, i):
    a, x, y, m, k, finish, more = PRODUCT_JOB(args)
    return times(F64, rows64, a, x, y, m, k, finish, more)


@inner
def fits(a, x, y):
    """Whether the operands of matvec agree with its result."""
    return x.size == a.shape[1] and y.size == a.shape[0] and not overlaps(y, a) and not overlaps(y, x)


@inner
def run(multiply_at, a, x, y, scratch, finish, more):
    """matvec by the compiled function at the address `multiply_at`, and its rows finished.  It needs no scratch."""
    return call_piece(multiply_at, pack((address(a), address(x), address(y), y.size, x.size, finish, more)), 0)


def _matvec32(a, x, out):
    return times(F32, rows32, address(a), address(x), address(out), out.size, x.size, 0, 0) if fits(a, x, out) else -1


def _matvec64(a, x, out):
    return times(F64, rows64, address(a), address(x), address(out), out.size, x.size, 0, 0) if fits(a, x, out) else -1


def _times32():
    return address_of(times32)


def _times64():
    return address_of(times64)


PRODUCTS["matvec"] = Product(fits, run, (2, 1, 1), {"float32": _times32, "float64": _times64}.__getitem__)


@KERNELS.add("matvec", rates=Rates(0.2e-6, 4e10, 8e10))
def matvec(device: None, call: Call) -> Kernel:
    """a[m,k] x[k] -> out[m]."""
    kind = number(call.dtype)
    signature = types.intp(source(kind, 2), source(kind, 1), target(kind, 1))
    return kernel_entry(signature)(_matvec32 if kind == types.float32 else _matvec64)
