"""Probing: does a backend work here?  A child process probes it, and the verdict is kept.

`process` starts and awaits that process, `child` is what runs in it, `verdicts` keeps what came out, `probe` asks a
backend in whichever process.  An entry of the registry (`trueno.discovery.entry`) is what needs an answer.
"""
