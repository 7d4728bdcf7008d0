"""The path of a call: from the public function to the kernel, and whatever may happen between.

`function` makes the ops' functions; `state` keeps their plans, as users want them (`asking`); `plan` puts around a
kernel what a key needs (with `transfer.ferry` and `watch`).  `general` takes the calls that the fast path does not:
`cache` and `cache_host` remember them, `host` runs the others on host arrays (with `coerce`, `axes`, `canonical` and
`contiguous`), `resident` those on a device (with `arrange`); `transfer` moves arrays there; `fallback` goes on when a backend fails.  `explain` says who would run
a call.
"""
