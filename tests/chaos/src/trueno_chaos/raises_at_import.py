"""The vendor's library does not load."""

raise ImportError("libchaos.so.7: undefined symbol: chaos_init")
