"""Finding backends without importing them: their manifests, an index of them, the registry, and the protocol."""
