"""The version of Trueno, for those that must not import the package's own names."""

__version__ = "0.1.0"
