"""Finding backends without importing them: manifests, probes, the protocol that they speak."""
