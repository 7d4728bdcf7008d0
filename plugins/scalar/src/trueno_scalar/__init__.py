"""Trueno's portable CPU backend: NumPy alone, over cache-sized tiles."""
