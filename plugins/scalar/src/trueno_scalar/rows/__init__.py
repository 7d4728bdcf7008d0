"""Row programs by NumPy: what runs is Python source, printed once a kernel.

`kernel` checks a call and chooses a schedule, `schedule` prints the loops over tiles, and `tape` the straight line of
ufunc calls inside; `functions` are the element kinds that are no ufunc.
"""
