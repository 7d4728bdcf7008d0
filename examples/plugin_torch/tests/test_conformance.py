from trueno.testing.suites import *  # noqa: F403

BACKEND = "torch"
