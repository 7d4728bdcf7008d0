"""Seeded attacks on everything a user can reach: `python -m tests.hostile --help`, `make hostile`.

An attack is a module `attack_NAME.py` here.  The driver runs its cases in child processes, one after the other, and a
case is a function of the seed, the attack, the backend and its number alone, so that each can be repeated.
"""
