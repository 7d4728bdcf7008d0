"""The thread pool's state: one block of words that compiled code finds under the symbol `trueno_pool`.

So cached kernels hold no address.  Each word lies on a cache line of its own, but for those of a job, which a
participant reads together; Python reads and writes a word by `peek` and `poke`, compiled code by atomic instructions.
"""

import ctypes
import platform
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE: Final = 16  # words from line to line: 128 bytes are Apple's line, and x86's pair of prefetched lines
MOST: Final = 255  # workers that the block has room for
MASK: Final = 128  # bytes of a CPU mask


def _lines(first: int, stop: int) -> range:
    """The first word of each of some lines."""
    return range(first * LINE, stop * LINE, LINE)


# The words.  ENTER is the region's code, and zero while there are no workers; START asks Python for some.
ENTER, START, WORKERS, SPINS, STOP, EXITED = _lines(0, 6)
BUSY, LEFT, RESULT, CALLER_SLEEPS, CALLER_LOCK = _lines(6, 11)
FUNCTION, ARGS, FIRST, CHUNKS, SHARES = range(11 * LINE, 11 * LINE + 5)  # the job
GET_CPU, SET_CPUS, MASKS = _lines(12, 15)  # zero where the system has no such thing
SPIN_TICKS, WAKE_TICKS, FOREGONE, LAST = _lines(15, 19)  # of `_alone`
SLEEPS, LOCK, CPU, THREAD = _lines(19, 23)  # of worker 0; worker w's are EACH · w further on
EACH: Final = 4 * LINE
TICKETS: Final = SLEEPS + EACH * MOST  # of the caller; those of worker w are 1 + w lines further on
WORDS: Final = TICKETS + LINE * (1 + MOST)

# Never freed: a worker may look at it while the interpreter goes down.
_block = ctypes.create_string_buffer(8 * (WORDS + LINE))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_block))
BASE: Final = -(-ctypes.addressof(_block) // (8 * LINE)) * 8 * LINE
llvm.add_symbol("trueno_pool", BASE)


def peek(word: int) -> int:
    return ctypes.c_int64.from_address(BASE + 8 * word).value


def poke(word: int, value: int) -> None:
    ctypes.c_int64.from_address(BASE + 8 * word).value = value


_I64, _I32 = ir.IntType(64), ir.IntType(32)


def _word(builder: Any, index: Any) -> Any:
    """Pointer to a word of the block."""
    module = builder.module
    try:
        block = module.get_global("trueno_pool")
    except KeyError:
        block = ir.GlobalVariable(module, ir.IntType(8), "trueno_pool")
        block.linkage = "external"
    address = builder.add(builder.ptrtoint(block, _I64), builder.mul(index, _I64(8)))
    return builder.inttoptr(address, _I64.as_pointer())


@intrinsic
def get(typing: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_word(builder, values[0]), "seq_cst", 8)

    return int64(int64), code


@intrinsic
def put(typing: Any, index: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store_atomic(values[1], _word(builder, values[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(int64, int64), code


def _modify(operation: str) -> Any:
    @intrinsic
    def modify(typing: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.atomic_rmw(operation, _word(builder, values[0]), values[1], "seq_cst")

        return int64(int64, int64), code

    return modify


swap, add, or_ = _modify("xchg"), _modify("add"), _modify("or")  # each returns the old value


@intrinsic
def ticks(typing: Any) -> Any:
    """A counter of time that any thread may read in some nanoseconds; 0 where there is none."""
    machine = platform.machine().lower()

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if machine in ("x86_64", "amd64"):
            kind = ir.FunctionType(_I64, [])
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.readcyclecounter"), [])
        if machine in ("aarch64", "arm64"):  # the cycle counter is the kernel's there, the clock is not
            return builder.asm(ir.FunctionType(_I64, []), "mrs $0, cntvct_el0", "=r", [], side_effect=True)
        return _I64(0)

    return int64(), code


@intrinsic
def pause(typing: Any) -> Any:
    """Tell the core that this is a spin."""
    machine = platform.machine().lower()

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if machine in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        elif machine in ("aarch64", "arm64"):
            kind = ir.FunctionType(ir.VoidType(), [_I32])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.hint")
            builder.call(hint, [_I32(1)])
        return context.get_dummy_value()

    return types.void(), code
