"""WGSL as text: what row programs are printed with.  No device and no NumPy here, so text can be made anywhere."""
