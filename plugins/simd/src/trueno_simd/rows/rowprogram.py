"""From an op's row program to a compiled kernel."""

from functools import lru_cache
from hashlib import blake2b
from typing import Any

from trueno.backend import Op

from trueno_simd.door import native
from trueno_simd.llvm import elsewhere
from trueno_simd.rows.source import printed

KEPT = 1024
"""Kernels that are found without printing them, which takes a millisecond; the same text is the same kernel again."""


@lru_cache(maxsize=KEPT)
def compiled(
    op: Op,
    dtype: str,
    layout: str,
    rank: int,
    static: tuple[tuple[str, Any], ...],
    parallel: bool,
    guarded: bool,
    stream: int = 0,
) -> Any:
    """The compiled kernel, from disk where it has been compiled before.

    It stays for the life of the process, its module in `sys.modules` and its code mapped: Numba gives no code back.
    """
    text = printed(op, dtype, layout, rank, static, parallel, guarded, stream=stream)
    name = f"k_{op.name}_{dtype}_{blake2b(text.encode(), digest_size=8).hexdigest()}"
    kernel = None if parallel else native.load(name)
    if kernel is None:
        modules = elsewhere.module("trueno_simd.codecache.modules")  # Numba, which a native kernel does without
        kernel = modules.module(name, text).kernel
        if not parallel:
            native.keep(name, kernel)
    return kernel
