"""Products of matrices on AMX's tiles: bfloat16 as it is, float32 as three bfloat16 parts (docs/adr/0024).

`pack` copies operands into tiles, `product` multiplies them, `choice` measures whether that is faster here.
"""
