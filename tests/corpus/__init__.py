"""A corpus to judge an analyzer of PTX by, written apart from its rules.

- `cuda/*.cu`: correct kernels in CUDA C.  `sources` compiles them with nvcc, for several architectures and options;
  `compiled/` has one build of each, for machines without nvcc.
- `launch_NAME`: how the kernels of a file are launched, and what NumPy computes for the same arguments.
- `foreign/`: what Triton, Numba and tinygrad print for the kernels of `producers`.
- `traps/*.ptx`: correct kernels that look wrong.  Each file begins with the reason why it is right.
- `mutants`: faults put into these texts, by seed.  The emulator, or the way in which a mutant is made, confirms each.
- `measure`: the tables, for any analyzer.
- `sanitizer`: what compute-sanitizer finds in the same mutants, on a GPU; `sanitizer_prepare` needs none.

`python -m tests.corpus --help` has the commands.
"""
