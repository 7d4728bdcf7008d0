"""How much memory a text may declare, by space."""

LIMITS = {"global": 256 << 20, "const": 1 << 16, "shared": 227 << 10, "local": 512 << 10, "param": 32764}
"""Bytes that may be declared: in a module of .global (the emulator's own limit; the others are CUDA's) and .const, in a
block of .shared, in a thread of .local, and of an entry's parameters."""


def too_many(space: str, size: int) -> str:
    """What is wrong with declaring so many bytes of a space; "" for nothing."""
    limit = LIMITS.get(space, size)
    return "" if size <= limit else f".{space} memory of {size} bytes is declared; {limit} is the most"
