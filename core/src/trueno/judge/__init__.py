"""The judge: how far may the result of a correct kernel be from the op's meaning?

The conformance kit uses it, and tests do; no call of an op needs it.
"""
