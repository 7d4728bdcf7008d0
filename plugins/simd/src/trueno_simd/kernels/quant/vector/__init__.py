"""Rows of blocks times one vector, decoded in registers.

`blocks` turns a format into vectors of codes and scales, `lanes` emits the instructions for that; `dots` multiplies by
quantized activations, `interleaved` does so with a lane a row, and `floats` multiplies by float32.
"""
