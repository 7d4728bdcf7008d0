"""WebGPU as a browser has it, for Python in a page (Pyodide): `js.navigator.gpu` behind the methods of wgpu.

`values` turns Python's values into JavaScript's and waits for promises, `objects` are device, queue, encoder and
buffers as the rest of the device layer uses them, `runtime` finds adapters and opens them.  No file here uses NumPy.
"""
