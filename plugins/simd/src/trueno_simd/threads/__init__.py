"""The thread pool of compiled kernels.

`pool` starts and stops workers and has what kernels call, `region` is the compiled part, `words` the state that both
share, and `cpus` says how many CPUs there are and keeps a thread off one.
"""
