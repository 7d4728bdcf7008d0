"""Quality guards: `rules` holds conditions and actions, `guard` the `with` that puts them in force, `health` looks at
numbers, and `inspection` applies the rules after a trip.  The layer around a kernel is `trueno.dispatch.watch`."""
