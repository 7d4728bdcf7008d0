"""The floating-point environment of an entry: one before an op requires the default, one before a kernel sets it.

Numba's wrapper of a kernel, which entries do without, sets and restores it (`trueno_simd.llvm.environment`).
"""

import platform

from trueno_simd.door.frame import Frame
from trueno_simd.door.text import Unprintable
from trueno_simd.llvm.environment import ARM, FPCR, MXCSR, MXCSR_MODES, X86


def declarations(machine: str = platform.machine()) -> str:
    """The declarations of what the other functions here call."""
    if machine.lower() in X86:
        return "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)\n"
    return "declare i64 @llvm.aarch64.get.fpcr()\ndeclare void @llvm.aarch64.set.fpcr(i64)\n"


def require(frame: Frame, machine: str = platform.machine()) -> None:
    """The thread has the default environment; the Python function takes a call in any other."""
    frame.f.require(_is_default(frame, _saved(frame, machine), machine), "slow")


def enter(frame: Frame, machine: str = platform.machine()) -> str:
    """Set the default environment where the thread has another; returns what `leave` restores."""
    saved = _saved(frame, machine)
    default = frame.f.slot("i64", str(MXCSR if machine.lower() in X86 else FPCR))
    frame.f.unless(_is_default(frame, saved, machine), lambda: _set(frame, default, machine))
    return saved


def leave(frame: Frame, saved: str, machine: str = platform.machine()) -> None:
    """Restore the environment that `enter` replaced."""
    frame.f.unless(_is_default(frame, saved, machine), lambda: _set(frame, saved, machine))


def _saved(frame: Frame, machine: str) -> str:
    """A slot with the register that holds the thread's modes."""
    f = frame.f
    saved = f.slot("i64", "0")
    if machine.lower() in X86:
        f.do(f"call void @llvm.x86.sse.stmxcsr(ptr {saved})")
    elif machine.lower() in ARM:
        f.store("i64", f("call i64 @llvm.aarch64.get.fpcr()"), saved)
    else:
        raise Unprintable(f"the floating-point environment of {machine} is not known")
    return saved


def _set(frame: Frame, slot: str, machine: str) -> None:
    f = frame.f
    if machine.lower() in X86:
        f.do(f"call void @llvm.x86.sse.ldmxcsr(ptr {slot})")
    else:
        f.do(f"call void @llvm.aarch64.set.fpcr(i64 {f.load('i64', slot)})")


def _is_default(frame: Frame, slot: str, machine: str) -> str:
    f = frame.f
    if machine.lower() in X86:
        return f.same("i32", f(f"and i32 {f.load('i32', slot)}, {MXCSR_MODES}"), MXCSR)
    return f.same("i64", f.load("i64", slot), FPCR)
