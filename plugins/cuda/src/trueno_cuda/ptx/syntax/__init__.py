"""PTX text: its tokens, and the tree that the emulator runs and the analyzer reads."""
