"""Calls from compiled code that Numba cannot express: functions and tuples as int64, and CPython's own."""

import ctypes
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

_I64, _I32 = ir.IntType(64), ir.IntType(32)
_FROM_PYTHON: Final = (
    "PyThread_acquire_lock", "PyThread_release_lock",
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_SetInterrupt",
)  # fmt: skip
for _name in _FROM_PYTHON:
    llvm.add_symbol(_name, ctypes.cast(getattr(ctypes.pythonapi, _name), ctypes.c_void_p).value)


def _c_function(name: str, result: Any, *arguments: Any, then: Any = None) -> Any:
    """An intrinsic that calls a C function of CPython; int64 stands for a pointer."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(result, [_I64 for _ in values] + [type_ for type_, _ in arguments])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        answer = builder.call(function, [*values, *(type_(constant) for type_, constant in arguments)])
        return answer if result == _I64 else context.get_dummy_value()

    if then is None:

        @intrinsic
        def call(typing: Any) -> Any:
            return (int64 if result == _I64 else types.void)(), code
    else:

        @intrinsic
        def call(typing: Any, pointer: Any) -> Any:
            return types.void(int64), code

    return call


interrupt = _c_function("PyErr_SetInterrupt", ir.VoidType())  # allowed without the GIL
lock = _c_function("PyThread_acquire_lock", _I32, (_I32, 1), then=int64)
unlock = _c_function("PyThread_release_lock", ir.VoidType(), then=int64)
release_gil = _c_function("PyEval_SaveThread", _I64)
acquire_gil = _c_function("PyEval_RestoreThread", ir.VoidType(), then=int64)


def new_lock() -> int:
    """A taken lock.  CPython's own: compiled code can wait for it without the GIL, and on every platform."""
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
    acquire = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
        ("PyThread_acquire_lock", ctypes.pythonapi)
    )
    handle = allocate()
    if not handle:
        raise MemoryError("threads: no lock")
    acquire(handle, 1)
    return int(handle)


# ---- functions and tuples as int64


@intrinsic
def address_of(typing: Any, dispatcher: Any) -> Any:
    """Address of a jitted int64(int64, int64): a symbol of the calling code, so it may be cached."""
    return int64(dispatcher), lambda c, b, s, v: _address(c, b, dispatcher, (int64, int64))


def _address(context: Any, builder: Any, dispatcher: Any, arguments: tuple[Any, ...]) -> Any:
    compiled = dispatcher.dispatcher.get_compile_result(int64(*arguments))
    context.active_code_library.add_linking_library(compiled.library)
    function = context.declare_function(builder.module, compiled.fndesc)
    return builder.ptrtoint(function, _I64)


@intrinsic
def region_address(typing: Any, dispatcher: Any) -> Any:
    return int64(dispatcher), lambda c, b, s, v: _address(c, b, dispatcher, (int64,) * 4)


@intrinsic
def finish_address(typing: Any, dispatcher: Any) -> Any:
    """Address of a jitted int64(args, first, height, left, width), which finishes a block of a result."""
    return int64(dispatcher), lambda c, b, s, v: _address(c, b, dispatcher, (int64,) * 5)


def _call(context: Any, builder: Any, address: Any, values: Any) -> Any:
    """Call by Numba's convention, int32 f(int64 *result, i8 **exception, ...); -1 if it raised."""
    text = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(_I32, [_I64.as_pointer(), text.as_pointer()] + [_I64 for _ in values])
    result, exception = cgutils.alloca_once(builder, _I64), cgutils.alloca_once(builder, text)
    function = builder.inttoptr(address, kind.as_pointer())
    status = builder.call(function, [result, exception, *values])
    fine = builder.icmp_signed("==", status, _I32(0))
    return builder.select(fine, builder.load(result), _I64(-1))


@intrinsic
def call_piece(typing: Any, function: Any, args: Any, i: Any) -> Any:
    return int64(int64, int64, int64), lambda c, b, s, v: _call(c, b, v[0], v[1:])


@intrinsic
def call_region(typing: Any, enter: Any, function: Any, args: Any, chunks: Any, work: Any) -> Any:
    return int64(*(int64,) * 5), lambda c, b, s, v: _call(c, b, v[0], v[1:])


@intrinsic
def call_finish(typing: Any, function: Any, args: Any, first: Any, height: Any, left: Any, width: Any) -> Any:
    return int64(*(int64,) * 6), lambda c, b, s, v: _call(c, b, v[0], v[1:])


@intrinsic
def call_c(typing: Any, function: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(_I32, [])
        result = builder.call(builder.inttoptr(values[0], kind.as_pointer()), [])
        return builder.sext(result, _I64)

    return int64(int64), code


@intrinsic
def call_set_cpus(typing: Any, function: Any, thread: Any, size: Any, mask: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I64, _I64])
        function = builder.inttoptr(values[0], kind.as_pointer())
        result = builder.call(function, [builder.trunc(values[1], _I32), *values[2:]])
        return builder.sext(result, _I64)

    return int64(int64, int64, int64, int64), code


@intrinsic
def pack(typing: Any, values: Any) -> Any:
    """Put a tuple into the calling function's frame and return its address; `unpack` reads it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        slot = cgutils.alloca_once(builder, arguments[0].type)
        builder.store(arguments[0], slot)
        return builder.ptrtoint(slot, _I64)

    return int64(values), code


def unpack(kind: types.BaseTuple) -> Any:
    """A function load(address) for compiled code that reads back what `pack` stored as `kind`."""

    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pointer = context.get_value_type(kind).as_pointer()
            return builder.load(builder.inttoptr(values[0], pointer))

        return kind(int64), code

    return load
