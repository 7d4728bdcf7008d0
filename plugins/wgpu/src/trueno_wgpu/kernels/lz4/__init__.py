"""LZ4 on pages of bytes: a workgroup of 32 invocations per page.

    words         bytes in arrays of words: reading four from anywhere, and writing those of one page
    compress      lz4_compress in the table: 32 positions at a time look for a match
    sequences     the text of that: how matches are found and sequences written
    decompress    lz4_decompress in the table: all invocations read the same token, and copy side by side
    pack          lz4_pack in the table: prefix sums of sizes, and the copy

Pages of up to 4 096 bytes are decoded in workgroup memory, longer ones in storage.  Storage has words of four bytes;
where the size of a page is not a multiple of four, two pages share a word, and each changes only its own bits of it, by
atomic operations.  Offsets and sizes are arrays on the device, which the host cannot check: whatever they are, nothing
outside of the arrays is read, and nothing outside of a page's own bytes is written.
"""
