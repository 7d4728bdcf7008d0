"""The module that `trueno.testing.plugin` has pytest collect: every test of the kit."""

from trueno.testing.suites import *  # noqa: F403 - tests, their parameters, the fixture `seed`
