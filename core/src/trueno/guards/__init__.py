"""Quality guards: `rules` has the conditions and actions, `guard` the context manager that applies them, `health`
checks numbers, and `inspection` applies the rules after a trip.  `trueno.dispatch.watch` is the layer around a kernel.
"""
