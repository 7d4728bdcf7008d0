"""The path of a call from the public function to the kernel.

A call passes through the modules in this order:

- `function` generates the ops' public functions from their `parameters`: the fast path.  `explain` reports which
  backend would run a call.
- `call` takes every call that the fast path does not.  It determines once where the operands live (`operands`).
- `cache` goes straight to the kernel if a call is like an earlier one; `cache_host` has the functions for host calls.
- `host` and `device` run all other calls.  `coerce` and `incoming` convert arguments to arrays, `operands` and
  `results` have the rules for dtypes and `out=`, `half` those for 16-bit floats.
- `axes` describes the layout of a call's arrays for the user and for the kernel (`canonical`: rows and elements);
  `contiguous` copies arrays into that layout on the host, `views` lists what a device copies.
- `state` keeps the plans (`table`) and the requests of users (`asking`).
- `plan` adds to a kernel the layers that a key needs: `transfer.stage` moves arrays, `watch` guards results, and
  `fallback` continues with another backend if one fails.
"""
