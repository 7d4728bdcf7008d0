"""Row programs as WGSL, and the code that runs them.

`rowprogram` makes a kernel of a call and `source` prints its shaders: `printer` where nothing folds, `multi_pass` where
something does.  `prelude`, `elementary`, `power`, `expressions`, `folds` and `waves` print values, and `accuracy` says
accurate they are.  All but `rowprogram` need neither a device nor NumPy, so that text can be generated anywhere.
"""
