"""A seed for each test, and the fake device."""

from anomaly.conftest import cache, fake, packages, plugins, rng

__all__ = ["cache", "fake", "packages", "plugins", "rng"]
