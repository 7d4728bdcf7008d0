"""An analyzer of PTX of any producer: it finds bugs and waste without running the kernel.

    program = parse(text, tolerant=True)
    for entry in entries(program, Launch(block=(256, 1, 1))):
        print(entry.name, check(entry))

A rule reports what it can prove from the control-flow graph, from which values agree between threads, and from
addresses as sums of thread indices; where it cannot, it is silent.
"""
