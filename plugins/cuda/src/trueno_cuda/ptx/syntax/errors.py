"""The exceptions of reading PTX.

TruenoError
└── PtxError(ValueError)          text that cannot be read; names line and text
    └── InternalError             a bug of the reader or of the emulator; names the line that it was at
"""

from collections.abc import Iterator
from contextlib import contextmanager

from trueno.errors import TruenoError


class PtxError(TruenoError, ValueError):
    """PTX text that cannot be read: `line 12: ld.global.f32 %f1: …`."""

    def __init__(self, message: str, line: int = 0, text: str = "") -> None:
        self.message = message
        self.line = line
        self.text = text
        where = f"line {line}: " if line else ""
        super().__init__(f"{where}{text}: {message}" if text else f"{where}{message}")


class InternalError(PtxError):
    """A bug of the reader or of the emulator: no text may lead to one."""


class Refusal(ValueError):
    """What is wrong with an instruction's operands; who knows the instruction makes it an UnknownInstruction."""


def internal(error: Exception, line: int = 0, text: str = "") -> InternalError:
    """An exception that was not expected, as one that names the place in the text."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return InternalError(f"internal error of the emulator, please report it with this text ({what})", line, text)


@contextmanager
def no_other_errors(line: int = 0, text: str = "") -> Iterator[None]:
    """Callers catch TruenoError: what else escapes is a bug, and reported as one with its place.

    Lack of memory is not a bug, and neither are the exceptions that end a program.
    """
    try:
        yield
    except (TruenoError, MemoryError):
        raise
    except Exception as error:
        raise internal(error, line, text) from error
