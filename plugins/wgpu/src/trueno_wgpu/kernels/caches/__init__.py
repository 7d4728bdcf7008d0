"""Kernels on caches of keys and values: pages of bytes, which hold float32, float16, bfloat16 or q8_0.

    scatter    kv_cache_scatter: rows of float32 into slots, in the cache's format
    decode     the text of attention_decode: a workgroup takes some keys of one sequence and one head
    attend     attention_decode in the table: shares of the keys, dispatches, and the run of them
    cells      reading keys and values

Slots, tables and lengths are operands on the device, so that one recording serves every token; the host cannot check
them there, and nothing outside of a cache is read or written.
"""
