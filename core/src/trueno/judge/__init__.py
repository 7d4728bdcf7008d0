"""The judge: how far may the result of a right kernel lie from the op's meaning?

The conformance kit asks it, and tests do; no call of an op needs it.
"""
