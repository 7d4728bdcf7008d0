"""Trueno against what a user would pick instead: `python -m benchmarks.run`; README.md says what each row means."""
