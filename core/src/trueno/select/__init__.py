"""Choosing: which backend runs a call, decided once per key."""
