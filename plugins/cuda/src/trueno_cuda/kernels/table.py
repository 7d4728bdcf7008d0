"""The table of this plugin's structured kernels: each module declares its own there, with its facts."""

from trueno.backend import KernelTable, Rates

from trueno_cuda.kernels.epilogue import normed_refusal, refusal, shared_refusal

RATES = Rates(launch_s=5e-6, flops=4e13, bytes=4e12, link_s=2e-5, link_bytes=8e9)
"""An H200's, as measured: of each kernel that does not state its own."""
KERNELS = KernelTable(
    "float32", "float64", guarded=True, epilogue=refusal, shared=shared_refusal, normed=normed_refusal
)
"""`KERNELS.kernel(call, device)` makes a kernel.  It returns 0, or -1 having done nothing: shapes that do not agree, or
a result that overlaps an operand.  Guarded kernels leave their bits in `device.status()`.
"""
