"""What the emulator raises; what a kernel does wrong while it runs is a finding of the report instead.

TruenoError
├── PtxError(ValueError)          text that cannot be read; names line and text
│   └── UnknownInstruction        an instruction, a type or a modifier that the emulator does not know
├── LaunchError(TypeError)        arguments, grid or shared memory that do not fit the kernel
└── StepLimit(RuntimeError)       the kernel did not end within `max_steps`
"""

from trueno.errors import TruenoError


class PtxError(TruenoError, ValueError):
    """PTX text that cannot be read: `line 12: ld.global.f32 %f1: …`."""

    def __init__(self, message: str, line: int = 0, text: str = "") -> None:
        self.line = line
        self.text = text
        where = f"line {line}: " if line else ""
        super().__init__(f"{where}{text}: {message}" if text else f"{where}{message}")


class UnknownInstruction(PtxError):
    """An instruction, type or modifier that the emulator does not know."""


class LaunchError(TruenoError, TypeError):
    """Arguments, grid, block or shared memory that do not fit the kernel."""


class StepLimit(TruenoError, RuntimeError):
    """The kernel did not end within `max_steps`; the message names the line where it still runs."""
