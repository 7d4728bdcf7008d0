"""Sums and rows of several GPUs in one launch each: every GPU writes its part into all others' memory, and waits.

    inboxes    the memory of a group of GPUs that the others write to
    cells      how numbers lie there: as float32, or rounded to bfloat16
    messages   sums and rows with one meeting: everybody sends everything to everybody
    shares     sums with two meetings: each GPU owns a share of the numbers, adds it up, and sends it to all others
    packets    small sums, whose numbers and flags arrive together
    played     what the other GPUs do during a launch on the emulator
    launches   the ops in the table, and which of the kernels a call takes
    catalogue  their entries

A message of some kilobytes costs its latency alone: a store crosses the link in about a microsecond, and so does the
flag after it.  Each block sends its share, says so to the same block of each other GPU, and waits for theirs; blocks of
one GPU never wait for one another.  A GPU has an inbox with two sides, which launches use in turn.  The side of a
launch is free again: to begin one, a GPU has finished the one before, for which every other GPU must have begun it, and
therefore finished its predecessor.  Sums are made in the order of the GPUs, so all of them get the same bits.

With two meetings a side holds both the parts and the finished shares, each in its half, so that neither waits for
readers of the other: both halves were last read in the launch before the previous one, which every other GPU has
finished, as above.  Each meeting has flags of its own, which hold the number of the launch: a GPU that is a launch
ahead has told no less.  What a GPU tells at the second meeting waits for the first one alone: no GPUs wait in a circle.

Small sums need no flag, nor the wait of a fence before it: a packet of 16 bytes, which arrives as a whole, holds two
numbers and twice the number of the launch (NCCL calls this LL).  Twice the bytes, and one crossing of the link.

They take a crossing, and the bytes over the link: (N - 1) times those of a part, or 2 (N - 1) / N times and a crossing
more.  Of two H200 a sum of 16 KiB takes 2.6 us in a graph, and one of 16 MiB 64 us, 263 GB/s.
"""
