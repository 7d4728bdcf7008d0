"""Quantized matrices times many vectors: panels that are decoded once, and the register tile that passes over them.

`layout` says how a panel and a tile lie in memory, `decode` and `activations` fill them, `micro_kernel` multiplies them
in the instructions of `words`, `floats` does so for float32 activations, and `shares` cuts the work into chunks.
"""
