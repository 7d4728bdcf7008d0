"""What opens a device, holds its memory, feeds it and waits for it.

`runtime` is the door to wgpu and finds adapters, `adapter` chooses among them, `opened` is the process's device.  `gpu`
is a device, made of `heap` and `memory` (buffers), `bindings`, `uniforms` and `shader` (what is bound), `encoding` and
`queue` (what is submitted), `staging`, `transfers` and `polling` (copies), `limits` and `grid`.  `array` is the array
that users hold.
"""
