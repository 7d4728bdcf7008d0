"""The path of a call: from the public function to the kernel, and whatever may happen between.

`function` makes the ops' functions; `state` keeps their plans, as users want them (`asking`); `plan` puts around a
kernel what a key needs (with `transfer.ferry` and `watch`).  `general` takes the calls that the fast path does not:
`host` runs those on host arrays (with `coerce`, `axes` and `canonical`), `resident` those on a device (with `arrange`
and `repeated`); `transfer` moves arrays there; `fallback` goes on when a backend fails.  `explain` says who would run
a call.
"""
