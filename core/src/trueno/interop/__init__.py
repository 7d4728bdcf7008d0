"""What goes in comes out: arrays of other libraries as operands, and results of the same type on the same device.

`kinds` finds the library of an object; `tensors` (PyTorch), `frames` (pandas) and `exchange` (JAX, and every library
that exports and imports DLPack) convert; `devices` hands memory of a device to the backend that computes there; `calls`
runs a public function on such operands, between the two conversions.  `plugins` finds libraries that plugins add, such
as Dask: these run whole calls themselves.
"""
