"""Caches of the keys and values of transformers: `KVCache` keeps sequences, `Pages` is one array of pages."""

from trueno.caches.cache import KVCache
from trueno.caches.pages import Pages

__all__ = ["KVCache", "Pages"]
