"""The fake device, as the anomaly tests install it."""

from anomaly.conftest import cache, fake, packages, plugins, rng

__all__ = ["cache", "fake", "packages", "plugins", "rng"]
