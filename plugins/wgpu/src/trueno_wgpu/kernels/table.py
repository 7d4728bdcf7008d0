"""The table of this plugin's structured kernels: each module declares its own there, with its facts."""

from trueno.backend import KernelTable, Rates

from trueno_wgpu.kernels.epilogue import refusal

RATES = Rates(launch_s=1e-4, flops=1e13, bytes=3e11, link_s=6e-5, link_bytes=8e9)
"""Of a discrete GPU, mostly waiting for one: of each kernel that does not state its own."""
KERNELS = KernelTable("float32", guarded=True, epilogue=refusal)
"""`KERNELS.kernel(call, gpu)` makes a kernel.  It returns 0, or -1 having done nothing: shapes that do not agree, or a
result in an operand's buffer.  Guarded kernels leave their bits in `gpu.status`.
"""
