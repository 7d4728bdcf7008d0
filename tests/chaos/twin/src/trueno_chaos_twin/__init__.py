"""Names that are taken.  Nothing of this package may ever be imported."""
