"""What the core asks of a backend that compiles entries, and what an entry may rely on.

An *entry* is machine code in front of an op's public function.  It has CPython's vectorcall convention,
`PyObject *entry(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)`, and runs with the GIL.  It
does what the Python function does on its fast path, and nothing else:

1. It binds the arguments: operands by position, parameters by position or by the identity of the keyword's text.
2. It checks that each operand is exactly an `ndarray`, aligned, and of the call's dtype (float32 or float64, native,
   without metadata), and that shapes agree; that each parameter is exactly a float or int that
   satisfies the rules, and each fixed keyword its only value; and that the thread computes in the default
   floating-point environment.
3. It finds the state: the base state while the word `overridden` is 0, else the value of the context variable.  The
   state's words hold its generation and the table of the op, and a slot of that table is valid only if it holds the
   same generation: whatever drops plans (`use`, guards, traces, settings, plugins, quarantine) changes it.
4. It takes `out`, if that is an array which the kernel may fill, or makes the result.
5. It calls the slot's machine code, and returns the result if the kernel did not refuse.

A kernel takes C-contiguous arrays alone.  An entry may copy other operands into memory of its own, and a result from
there, where that leaves what the Python function leaves: the copies are made before anything is written.

Where anything is unlike this, it calls the Python function `slow` with the very same arguments, and has changed nothing
before: so errors, warnings and events are those of the Python function.  Where a slot has no valid content it
does so too, and then calls `fill` with the slot's number.  An entry never frees anything but a result that it made and
memory of its own.

Of two flat operands one may be a number, or a row that is repeated.  Each of these four forms has an entry of its own,
which starts again with the same arguments; `twins` in the descriptor holds their addresses by form.  0 is one that no
call has needed yet: the entry calls `slow`, then `fill` with the negative number of the form.  1 means that the backend
has none: `slow`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class EntryKind:
    """What an entry depends on: ops of one kind share their code.

    kinds: the operands' kind letters, `e` [..., n] or `w` [n]; the first is `e`.  reduces: the result is one value per
    row.  index: the result is int64.  flat: rows have no meaning, so an array is one row.
    parameters: for each float parameter whether it may be positional, and whether it is required.
    rules: conditions on them, as comparisons of `p0`, `p1` … and numbers.  fixed: the number of keywords that have one
    permitted value.
    """

    kinds: str
    reduces: bool
    index: bool
    flat: bool
    parameters: tuple[tuple[bool, bool], ...] = ()
    rules: tuple[str, ...] = ()
    fixed: int = 0

    @property
    def forms(self) -> int:
        """The number of forms of a call: as declared in one or two dimensions, and more for two flat operands."""
        return len(FORMS) if self.broadcasts else 2

    @property
    def broadcasts(self) -> bool:
        """Whether one of two operands may be a number or a repeated row."""
        return self.flat and self.kinds == "ee"


@dataclass(frozen=True, slots=True)
class EntrySpec:
    """A request for one entry.

    descriptor: the address of the op's descriptor, which lives as long as the process.  form: the layout of the calls
    that the entry takes, where that is not the layout as declared.
    """

    op: str
    kind: EntryKind
    descriptor: int
    form: str = ""


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """Where an entry finds what it reads, in bytes.

    words: the address of the process's words.

    word: offsets of its fields.  `base` and `overridden` are addresses; `variable`, `none`, `out` (the keyword's text)
    and the classes `ndarray`, `float`, `int`, `float32` and `float64` are objects; `single`, `double` and `whole` are
    the dtypes float32, float64 and int64, `single_text` and `double_text` the 8 bytes that tell the first two from
    other dtypes; the rest are functions of CPython's and NumPy's C API.

    descriptor: offsets of its fields.  `slow` and `fill` are objects, `table` is the offset of the op's table in a
    state's words, `twins` are addresses by form; `names` are the texts of keywords, parameters first, `values` those of
    the fixed ones, and `defaults` the parameters' doubles.

    offset: offsets in CPython's and NumPy's objects; `state_words`, in a state, is that of the array of its words.
    """

    words: int
    word: Mapping[str, int] = field(hash=False)
    descriptor: Mapping[str, int] = field(hash=False)
    offset: Mapping[str, int] = field(hash=False)


FORMS: Final = {("", 1): 0, ("", 2): 1, ("eu", 1): 2, ("ue", 1): 3, ("ew", 2): 4, ("we", 2): 5}
"""Forms of a call by layout and rank: the layout as declared (""), a number on one side, a repeated row on one side."""
CLASSES: Final = 33
"""Size classes in a table; larger arrays go to the Python function."""
SLOT: Final = 16
"""Bytes of a slot: the generation in which it is valid, and the address of machine code, 0 for none.

The slot of a call is at (form · 2 + float64) · CLASSES + size class."""
KEYWORDS: Final = 8
"""The most parameters and fixed keywords of an entry: the descriptor has as many names, values and defaults."""
