"""The device layer: opening a device, its memory, submission and waiting.

`runtime` wraps wgpu and finds adapters, `adapter` chooses among them, `opened` is the process's device.  `gpu`
is a device, made of `heap` and `memory` (buffers), `bindings`, `uniforms` and `shader` (what is bound), `encoding` and
`queue` (what is submitted), `staging`, `transfers` and `polling` (copies), `limits` and `grid`.  `array` is the users'
array type.
"""
