"""Caches of the keys and values of transformers: `Pages` is one array of pages, with its format."""

from trueno.caches.pages import Pages

__all__ = ["Pages"]
