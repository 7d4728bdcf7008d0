"""How arrays of another library become operands: what each module of a library here has."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np


class Library(Protocol):
    """How arrays of a library become operands; each module here is one."""

    NOUN: str
    """An array of the library, for messages."""
    MIXES: bool
    """Whether NumPy arrays may stand beside its arrays in one call."""

    def take(self, what: str, name: str, x: Any) -> Any:
        """`x` as an array that kernels accept, in the same memory: NumPy's, or that of the backend of its device.

        what: the op, and name: the operand, for messages.  DtypeError or DeviceError.
        """

    def host(self, what: str, name: str, x: Any) -> np.ndarray[Any, Any]:
        """`x` as a NumPy array in the same memory; DeviceError if the host cannot access it."""

    def target(self, what: str, name: str, x: Any) -> Any:
        """`out` as an array in the same memory; OutError if that is not possible."""

    def wrong(self, what: str, name: str, x: Any) -> Exception | None:
        """The error for an operand of numbers whose dtype no op accepts, in the library's own terms, or None."""

    def context(self, x: Any) -> AbstractContextManager[Any]:
        """The context of a call on arrays like `x`."""

    def give(self, result: Any, like: Any) -> Any:
        """A result, NumPy's or a device's, as an array of the library of `like`, in the same memory."""

    def convert(self, name: str, other: str) -> str:
        """The remedy for the operand `other`, a NumPy array beside `name`."""
