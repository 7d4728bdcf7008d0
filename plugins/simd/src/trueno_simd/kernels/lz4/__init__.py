"""LZ4 blocks of pages: `compress`, `decompress` and `pack` are the ops, one page after another on all cores.

`encode` and `lazy` write one block (levels 1 and 2), `sequence` one sequence of it; `decode` reads one; `places` has
the loads, stores and copies that all of them are made of.  The format is that of lz4_Block_format.md.
"""
