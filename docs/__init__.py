"""What the docs derive from the sources: `reference.py` writes pages, `hooks.py` builds the site."""
