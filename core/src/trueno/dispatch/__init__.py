"""The path of a call: from the public function to the kernel, and whatever may happen between.

A call leads one way, from what comes first here to what comes last:

- `function` makes the ops' public functions, of their `parameters`: the fast path.  `explain` says who would run one.
- `call` takes what the fast path does not.  It finds once where the operands live (`operands`).
- `cache` goes straight to the kernel where a call is like an earlier one; functions for the host's are in `cache_host`.
- `host` and `device` run the others.  `coerce` and `incoming` make arrays of what users give, `operands` and `results`
  have the rules for dtypes and `out=`, `half` those for 16-bit floats.
- `axes` says how a call's arrays lie to the user and to the kernel (`canonical`: rows and elements); `contiguous`
  copies into that order on the host, `views` says what a device copies.
- `state` keeps plans (`table`), and what users ask for (`asking`).
- `plan` puts around a kernel what a key needs: `transfer.stage` moves arrays, `watch` guards; `fallback` goes on when a
  backend fails.
"""
