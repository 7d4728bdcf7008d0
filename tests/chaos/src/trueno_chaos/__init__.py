"""Backends that do everything wrong, a kind each.  `running.control` arms those that fail while they run."""
