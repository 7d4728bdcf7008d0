"""Must not be imported: two distributions claim the name."""

raise RuntimeError("the twin was imported")
