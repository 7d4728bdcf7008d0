"""LZ4 on pages of bytes, a warp a page: `compress`, `decompress` and `pack`.

`pages` has what they share, `samples` what the catalogue tries them on.  All three keep to the block format: any LZ4
library reads what they write, and they read what it writes.
"""
