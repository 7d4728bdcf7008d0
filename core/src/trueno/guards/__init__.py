"""Quality guards: `guard` holds conditions, actions and the layer around a kernel, `inspection`
applies the rules after a trip, `health` looks at numbers."""
