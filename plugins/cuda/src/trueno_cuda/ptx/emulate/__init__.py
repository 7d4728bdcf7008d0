"""An emulator of PTX on NumPy: runs a kernel's text without a GPU and reports its errors.

    module = load(text)
    report = module.launch("add", grid=8, block=256, args=[x, y, out, np.uint32(n)])
    print(report)                 # counts, coalescing, bank conflicts, findings
    assert not report.findings

Not emulated, and refused by name, line and entry: recursion and calls through a register, alloca, textures and
surfaces, wmma (mma.sync and wgmma are), sparse products, im2col and reducing bulk copies, st.async, red.async,
multimem, and what is new in sm_100.
Memory is sequentially consistent, so a missing fence is not seen; mbarriers, barriers and waits are taken seriously.

Arrays are device memory and change in place.  Text that it cannot read raises PtxError naming the line; what a kernel
does wrong while running (out of bounds, a race, a missing wait, …) is a `Finding`.
"""

from trueno_cuda.ptx.emulate.errors import LaunchError, StepLimit, UnknownInstruction
from trueno_cuda.ptx.emulate.launch import Entry, Module, load
from trueno_cuda.ptx.emulate.report import BankConflicts, Coalescing, Finding, Report
from trueno_cuda.ptx.emulate.tensor_map import TensorMap
from trueno_cuda.ptx.syntax.errors import PtxError

__all__ = [
    "BankConflicts",
    "Coalescing",
    "Entry",
    "Finding",
    "LaunchError",
    "Module",
    "PtxError",
    "Report",
    "StepLimit",
    "TensorMap",
    "UnknownInstruction",
    "load",
]
