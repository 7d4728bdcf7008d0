"""Finding backends without importing them: manifests, probes, and the protocol that they implement."""
