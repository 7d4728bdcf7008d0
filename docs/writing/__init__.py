"""The pages that are derived from the sources, one module for each kind."""
