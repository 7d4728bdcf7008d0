"""attention by flash tiles: scores of some queries and keys at a time, and a softmax that is joined online.

    tile     many queries: 16 to 64 of them against 64 keys at a time, register tiles like those of a matrix product
    few      up to 8 rows of queries, as in decoding: bound by how fast keys and values are read
    join     where keys are split over workgroups: puts the parts of each result together, and adds sinks
    ragged   sequences of different lengths, by tiles that look for their sequence in the offsets

`text` has what their texts share, `plan` chooses and cuts to what a device binds, `kernel` stands in the table.
Rows are the queries of all heads that share a head of keys, so that grouped queries read keys once.
"""
