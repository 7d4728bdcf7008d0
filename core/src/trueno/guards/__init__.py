"""Quality guards: `rules` holds conditions and actions, `guard` the context manager that applies them, `health` checks
numbers, and `inspection` applies the rules after a trip.  The layer around a kernel is `trueno.dispatch.watch`."""
