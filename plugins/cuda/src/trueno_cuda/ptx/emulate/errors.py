"""The emulator's exceptions; errors of a running kernel are findings of the report instead.

TruenoError
├── PtxError(ValueError)          text that cannot be read (`ptx.syntax.errors`)
│   └── UnknownInstruction        an instruction, a type or a modifier that the emulator does not know
├── LaunchError(TypeError)        arguments, grid or shared memory that do not fit the kernel
└── StepLimit(RuntimeError)       the kernel did not end within `max_steps`
"""

from trueno.errors import TruenoError

from trueno_cuda.ptx.syntax.errors import PtxError


class UnknownInstruction(PtxError):
    """An instruction, type or modifier that the emulator does not know."""


class LaunchError(TruenoError, TypeError):
    """Arguments, grid, block or shared memory that do not fit the kernel."""


class StepLimit(TruenoError, RuntimeError):
    """The kernel did not end within `max_steps`; the message names the line where it still runs."""
