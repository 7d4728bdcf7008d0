"""Kernels on caches of keys and values: pages of bytes, which hold float32, float16, bfloat16 or q8_0.

    scatter    kv_cache_scatter: rows of float32 into slots, in the cache's format
    bring      both ropes of a step and both scatters in one launch
    decode     attention_decode by fused multiply-adds: every format and every size
    mma        attention_decode by matrix products of a warp: 16 bits or q8_0, heads of multiples of 32 or 64
    warp       what a warp of it does; blocks, what is different for q8_0
    join       the last kernel of both: shares of the keys become results, with a sink where there is one
    meet       mma and join in one launch, by the blocks of a cluster
    attend     attention_decode in the table: shares, launches, and the call
    shares     which keys a block takes, and where they lie
    cells      reading keys and values

Slots, tables and lengths are operands on the device, so that one recording serves every token; the host cannot check
them there, and nothing outside of a cache is read or written.
"""
