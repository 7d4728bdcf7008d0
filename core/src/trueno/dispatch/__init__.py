"""The path of a call: from the public function to the kernel, and whatever may happen between.

`function` makes the ops' functions; `state` keeps their plans; `plan` puts around a kernel what a key needs; `general`
takes the calls that the fast path does not (with `coerce` and `canonical`); `resident` those on a device, `transfer`
moves arrays there; `fallback` goes on when a backend fails.
"""
