"""The only module of the core that a backend's code imports, besides `trueno.errors`.

A backend is a plugin: an object with the methods of `Backend`, which the core calls, and which here finds what it
needs for its answers.  Seven groups:

- the *protocol* between core and backend: `Call`, `Kernel`, `Probe`, `Rates`, `Reject` and others;
- the *table of kernels* for structured ops, with each kernel's facts beside it;
- *ops*: the table's rows, their programs, and `lower`, which plans the passes of a program over a row;
- *compiled entries*, for a backend that puts machine code in front of the public functions;
- *block formats* of quantized tensors, as data, and their meaning in NumPy;
- what a backend has *in a page*, where one thread may not wait for a device;
- the *environment*: settings, the cache folder, the floating-point environment, text for a terminal.

Names that no group lists may change between minor versions.  Importing this module loads only the protocol; the other
names are loaded at their first use, so a backend that only inspects a call costs nothing.  API number 1.
"""

from typing import TYPE_CHECKING, Any

from trueno.discovery.protocol import API as API
from trueno.discovery.protocol import OPTIONAL as OPTIONAL
from trueno.discovery.protocol import Accuracy as Accuracy
from trueno.discovery.protocol import Backend as Backend
from trueno.discovery.protocol import BindableKernel as BindableKernel
from trueno.discovery.protocol import Call as Call
from trueno.discovery.protocol import CompiledKernel as CompiledKernel
from trueno.discovery.protocol import Device as Device
from trueno.discovery.protocol import DeviceBackend as DeviceBackend
from trueno.discovery.protocol import Kernel as Kernel
from trueno.discovery.protocol import OptionalMethods as OptionalMethods
from trueno.discovery.protocol import Probe as Probe
from trueno.discovery.protocol import Rates as Rates
from trueno.discovery.protocol import Recording as Recording
from trueno.discovery.protocol import Refused as Refused
from trueno.discovery.protocol import Reject as Reject
from trueno.firstuse import importing

if TYPE_CHECKING:
    from trueno import cachedir as cachedir
    from trueno import escape as escape
    from trueno.backend.awaiting import AwaitedBackend as AwaitedBackend
    from trueno.backend.kernels import KernelTable as KernelTable
    from trueno.backend.kernels import TableKernel as TableKernel
    from trueno.backend.leading import stacked as stacked
    from trueno.door import contract as contract
    from trueno.door.contract import EntryKind as EntryKind
    from trueno.door.contract import EntryLayout as EntryLayout
    from trueno.door.contract import EntrySpec as EntrySpec
    from trueno.door.functions import divert as divert
    from trueno.door.words import kernel_layout as kernel_layout
    from trueno.firstuse import forks_wait as forks_wait
    from trueno.floatenv import ieee as ieee
    from trueno.floatenv import steady as steady
    from trueno.formats import interleave as interleave
    from trueno.formats.activations import rounded_activations as rounded_activations
    from trueno.formats.activations import rounded_weights as rounded_weights
    from trueno.formats.decode import decode as decode
    from trueno.formats.encoders import encode as encode
    from trueno.formats.table import FORMATS as FORMATS
    from trueno.formats.table import INTERLEAVED as INTERLEAVED
    from trueno.formats.table import ROWS as ROWS
    from trueno.formats.table import Format as Format
    from trueno.formats.table import Piece as Piece
    from trueno.formats.table import Pieces as Pieces
    from trueno.formats.table import Plane as Plane
    from trueno.formats.table import cache_row_bytes as cache_row_bytes
    from trueno.formats.table import format_of as format_of
    from trueno.formats.units import COLUMN as COLUMN
    from trueno.formats.units import Linear as Linear
    from trueno.formats.units import UnitShape as UnitShape
    from trueno.formats.units import linear as linear
    from trueno.formats.units import unit_shape as unit_shape
    from trueno.judge.bound import bound as bound
    from trueno.judge.bound import judge as judge
    from trueno.ops import TABLE as TABLE
    from trueno.ops import stacks as stacks
    from trueno.ops.caches import encode_cache as encode_cache
    from trueno.ops.op import FusedOp as FusedOp
    from trueno.ops.op import Op as Op
    from trueno.ops.op import op as op
    from trueno.ops.shared import TOKENS as TOKENS
    from trueno.ops.shared import Member as Member
    from trueno.ops.shared import SharedOp as SharedOp
    from trueno.programs.evaluate import evaluate as evaluate
    from trueno.programs.fused import fma as fma
    from trueno.programs.guarded import with_flags as with_flags
    from trueno.programs.lower import Lowering as Lowering
    from trueno.programs.lower import Pass as Pass
    from trueno.programs.lower import lower as lower
    from trueno.programs.program import FOLDS as FOLDS
    from trueno.programs.program import LEAVES as LEAVES
    from trueno.programs.program import NUMBERS as NUMBERS
    from trueno.programs.program import Node as Node
    from trueno.programs.program import Program as Program
    from trueno.programs.program import extents as extents
    from trueno.reference import ReferenceBackend as ReferenceBackend
    from trueno.replacing import replacing as replacing
    from trueno.rotary import cosines as cosines
    from trueno.rotary import rotation as rotation
    from trueno.settings import settings as settings
    from trueno.text import columns as columns
    from trueno.text import counted as counted

GROUPS = {
    "Kernels of structured ops": {"KernelTable": "trueno.backend.kernels", "TableKernel": "trueno.backend.kernels"},
    "Ops and their programs": {
        "TABLE": "trueno.ops",
        "Op": "trueno.ops.op",
        "op": "trueno.ops.op",
        "FusedOp": "trueno.ops.op",
        "SharedOp": "trueno.ops.shared",
        "Member": "trueno.ops.shared",
        "TOKENS": "trueno.ops.shared",
        "Program": "trueno.programs.program",
        "Node": "trueno.programs.program",
        "FOLDS": "trueno.programs.program",
        "LEAVES": "trueno.programs.program",
        "NUMBERS": "trueno.programs.program",
        "extents": "trueno.programs.program",
        "lower": "trueno.programs.lower",
        "Lowering": "trueno.programs.lower",
        "Pass": "trueno.programs.lower",
        "with_flags": "trueno.programs.guarded",
        "evaluate": "trueno.programs.evaluate",
        "fma": "trueno.programs.fused",
        "stacks": "trueno.ops.stacks",
        "stacked": "trueno.backend.leading",
        "rotation": "trueno.rotary",
        "cosines": "trueno.rotary",
        "bound": "trueno.judge.bound",
        "judge": "trueno.judge.bound",
        "ReferenceBackend": "trueno.reference",
    },
    "Compiled entries": {
        "EntrySpec": "trueno.door.contract",
        "EntryKind": "trueno.door.contract",
        "EntryLayout": "trueno.door.contract",
        "contract": "trueno.door.contract",
        "kernel_layout": "trueno.door.words",
        "divert": "trueno.door.functions",
    },
    "Block formats": {
        "FORMATS": "trueno.formats.table",
        "INTERLEAVED": "trueno.formats.table",
        "ROWS": "trueno.formats.table",
        "Format": "trueno.formats.table",
        "Plane": "trueno.formats.table",
        "Piece": "trueno.formats.table",
        "Pieces": "trueno.formats.table",
        "format_of": "trueno.formats.table",
        "cache_row_bytes": "trueno.formats.table",
        "COLUMN": "trueno.formats.units",
        "UnitShape": "trueno.formats.units",
        "unit_shape": "trueno.formats.units",
        "Linear": "trueno.formats.units",
        "linear": "trueno.formats.units",
        "interleave": "trueno.formats.interleave",
        "decode": "trueno.formats.decode",
        "encode": "trueno.formats.encoders",
        "encode_cache": "trueno.ops.caches",
        "rounded_activations": "trueno.formats.activations",
        "rounded_weights": "trueno.formats.activations",
    },
    "In a page": {"AwaitedBackend": "trueno.backend.awaiting"},
    "Surroundings": {
        "settings": "trueno.settings",
        "cachedir": "trueno.cachedir",
        "ieee": "trueno.floatenv",
        "steady": "trueno.floatenv",
        "escape": "trueno.escape",
        "columns": "trueno.text",
        "counted": "trueno.text",
        "forks_wait": "trueno.firstuse",
        "replacing": "trueno.replacing",
    },
}
"""Names loaded at first use, and the module that each is in, or is; under the headings of their page."""
HOMES = {name: home for group in GROUPS.values() for name, home in group.items()}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"trueno.backend has no {name!r}; docs/reference/backend.md lists its names")
        from importlib import import_module

        from trueno.floatenv import ieee  # start-up

        with importing, ieee():  # Python folds constants when it compiles a module, under the current rounding mode
            module = import_module(HOMES[name])
        value = globals()[name] = getattr(module, name, module)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
