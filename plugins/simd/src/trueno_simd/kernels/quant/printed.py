"""Kernels of one format each: one short printed module per format, so that its machine code is kept on disk.

What differs between formats comes from the core's table, not from a source of this plugin: the module's name carries
a hash of the format's entry, and so a kernel of another layout is never taken from the store.
"""

from hashlib import blake2b
from typing import Any

from trueno.backend import FORMATS

from trueno_simd.codecache import modules

CHUNK = 1 << 18  # bytes read and written that are worth a chunk of their own


def compiled(op: str, template: str, format: str, **words: Any) -> Any:
    """The kernel that `template` defines, its <words> filled in; KeyError for a format that is not in the table."""
    f = FORMATS[format]
    for word, value in {"format": format, "elements": f.elements, "nbytes": f.nbytes, **words}.items():
        template = template.replace(f"<{word}>", str(value))
    digest = blake2b(f"{f!r}{template}".encode(), digest_size=8).hexdigest()
    return modules.module(f"k_{op}_{format}_{digest}", template).kernel
