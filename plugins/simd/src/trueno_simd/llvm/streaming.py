"""Stores that bypass the caches, for results that no cache could keep.

An ordinary store first reads its line from memory.  A whole line written by one nontemporal store needs no reading, but
LLVM's vectorizer makes such stores only of aligned pointers, and results begin anywhere.  So a kernel computes a chunk
into its frame, which stays in the first cache, and `flush` copies it line by line.  The values are the same bits.
"""

from typing import Any

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.llvm.jit import inner

LINE = 64  # bytes

_LINE = ir.VectorType(ir.IntType(32), LINE // 4)


@intrinsic
def at(_: Any, base: Any, i: Any) -> Any:
    """The address of the element at position `i`, as a number."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(builder.gep(values[0], [values[1]], inbounds=True), ir.IntType(64))

    return int64(base, i), emit


@intrinsic
def _copy_line(_: Any, target: Any, source: Any) -> Any:
    """A line from anywhere to where a line begins."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, source = (builder.inttoptr(v, _LINE.as_pointer()) for v in values)
        store = builder.store(builder.load(source, align=4), target, align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(int64, int64), emit


@intrinsic
def _copy(_: Any, target: Any, source: Any, count: Any) -> Any:
    """`count` bytes."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(v, byte) for v in values[:2])
        cgutils.raw_memcpy(builder, target, source, values[2], 1)
        return context.get_dummy_value()

    return types.void(int64, int64, int64), emit


@intrinsic
def fence(_: Any) -> Any:
    """Nontemporal stores are seen by other threads before what this thread stores next."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def prefetch(_: Any, address: Any) -> Any:
    """Bring a line towards the first cache; the address may be anything."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(values[0], pointer), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(int64), emit


@inner
def fetch(address, count):  # type: ignore[no-untyped-def]
    """Ask for `count` bytes, which the next chunk reads: while a chunk is stored, memory would read nothing."""
    for k in range(0, count, LINE):
        prefetch(address + k)


@inner
def into_line(address, size):  # type: ignore[no-untyped-def]
    """Elements of `size` bytes by which an address lies behind the beginning of a line."""
    return address % LINE // size


@inner
def flush(target, source, count):  # type: ignore[no-untyped-def]
    """Copy `count` bytes past the caches, but for those that fill no line."""
    head = min(-target % LINE, count)
    _copy(target, source, head)
    stop = head + (count - head) // LINE * LINE
    for k in range(head, stop, LINE):
        _copy_line(target + k, source + k)
    _copy(target + stop, source + stop, count - stop)
