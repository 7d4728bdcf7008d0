"""Products of quantized matrices with many vectors on AMX's int8 tiles (docs/adr/0025).

`records` says how operands lie in memory, `decode` and `rows` bring them there, `stages` multiplies a panel, `product`
a matrix; `choice` takes it where a measurement on the machine finds it faster than `kernels.quant.tile`.
"""
