"""Every kernel computes in IEEE 754's default environment, whatever its caller set, and restores the caller's.

A program may round upwards (`fesetround`) or flush subnormals (`torch.set_flush_denormal`, or a library that was
linked with `-ffast-math`), thread by thread.  A kernel that kept these modes would give other bits depending on which
worker ran which part, and the functions here require rounding to nearest.  So a kernel checks the modes
first, sets the default where they differ, and restores the caller's before it returns (docs/adr/0014).  A worker
enters one kernel and stays in it.

LLVM does not model rounding modes: it may move a multiplication past the instruction that changes them, and
it did.  So the modes change around a call that is never inlined: Numba's wrapper, which Python calls, sets them, calls
the kernel's code and restores them.

The cost if nothing has to change, which is nearly always: a store and a load of the control register, a comparison and
two branches, 1 to 2 ns.
"""

import platform
from typing import Any, Final

from llvmlite import ir

_VOID, _I32, _I64 = ir.VoidType(), ir.IntType(32), ir.IntType(64)
_SLOT = _I64.as_pointer()

MXCSR: Final = 0x1F80
"""x86: round to nearest, keep subnormals (FTZ and DAZ off), trap nothing."""
MXCSR_MODES: Final = 0xFFC0
"""The bits of MXCSR that say so; the others are flags that arithmetic raises."""
FPCR: Final = 0
"""ARM: the same."""

X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")


def known(machine: str = platform.machine()) -> bool:
    """Whether kernels set the environment themselves on this architecture; if not, the core does, around each call."""
    return machine.lower() in (*X86, *ARM)


def kernels(module: ir.Module) -> set[str]:
    """Names of the kernels that Numba lowered into `module`; from now on nothing inlines them."""
    names = set()
    for function in module.functions:
        # Numba's calling convention: every compiled function has a place to put an exception, and nothing else has.
        if function.blocks and "excinfo" in [argument.name for argument in function.args]:
            function.attributes.add("noinline")
            names.add(function.name)
    return names


def guard(module: ir.Module, names: set[str], machine: str = platform.machine()) -> int:
    """Put the default environment around every call of these functions in `module`; how many there were."""
    if not known(machine):
        return 0
    blocks = [block for function in module.functions for block in function.blocks]
    calls = [
        (block, i) for block in blocks for i in block.instructions
        if isinstance(i, ir.CallInstr) and i.callee.name in names
    ]  # fmt: skip
    for block, call in calls:
        builder = ir.IRBuilder()
        builder.position_at_start(block.function.entry_basic_block)
        slot = builder.alloca(_I64, name="environment")
        builder.position_before(call)
        builder.call(_function(module, "enter", machine), [slot])
        builder.position_after(call)
        builder.call(_function(module, "leave", machine), [slot])
    return len(calls)


def _function(module: ir.Module, which: str, machine: str) -> ir.Function:
    """`enter(slot)`: save the modes in the slot, set the default.  `leave(slot)`: restore what the slot holds.

    Either changes nothing where the slot says that the caller's modes are the default.
    """
    name = f"trueno.environment.{which}"
    if name in module.globals:
        return module.get_global(name)
    function = ir.Function(module, ir.FunctionType(_VOID, [_SLOT]), name)
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    make = _x86 if machine.lower() in X86 else _arm
    make(builder, function.args[0], which)
    builder.ret_void()
    return function


def _x86(builder: ir.IRBuilder, slot: Any, which: str) -> None:
    def control(name: str, where: Any) -> None:
        builder.call(_declared(builder, f"llvm.x86.sse.{name}", _VOID, pointer), [builder.bitcast(where, pointer)])

    pointer, default = ir.IntType(8).as_pointer(), None
    if which == "enter":
        default = builder.alloca(_I32)
        builder.store(_I32(MXCSR), default)
        control("stmxcsr", slot)
    word = builder.load(builder.bitcast(slot, _I32.as_pointer()))
    differs = builder.icmp_unsigned("!=", builder.and_(word, _I32(MXCSR_MODES)), _I32(MXCSR))
    with builder.if_then(differs, likely=False):
        control("ldmxcsr", slot if default is None else default)


def _arm(builder: ir.IRBuilder, slot: Any, which: str) -> None:
    if which == "enter":
        builder.store(builder.call(_declared(builder, "llvm.aarch64.get.fpcr", _I64), []), slot)
    word = builder.load(slot)
    with builder.if_then(builder.icmp_unsigned("!=", word, _I64(FPCR)), likely=False):
        wanted = _I64(FPCR) if which == "enter" else word
        builder.call(_declared(builder, "llvm.aarch64.set.fpcr", _VOID, _I64), [wanted])


def _declared(builder: ir.IRBuilder, name: str, result: Any, *arguments: Any) -> Any:
    if name in builder.module.globals:
        return builder.module.get_global(name)
    return ir.Function(builder.module, ir.FunctionType(result, arguments), name)
