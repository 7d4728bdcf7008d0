"""Batches as modules of web pages: WGSL, the plan as JSON, weights as files, and a small runtime in JavaScript.

For browsers without a GPU, kernels of the simd backend as WebAssembly beside them.
"""

from trueno.web.exporting import export

__all__ = ["export"]
