"""Products of matrices on AMX's tiles: bfloat16 as it is, float32 as three bfloat16 parts (docs/adr/0024).

`pack` copies operands into tiles, `product` multiplies them; `attempts` does so for float32, where `choice` has
measured that it is faster, and `halves` for 16-bit floats.
"""
