"""Row programs as WGSL, and what runs them.

`rowprogram` makes a kernel of a call and `source` prints its shaders: `printer` where nothing folds, `multi_pass` where
something does.  `prelude`, `elementary`, `power`, `expressions`, `folds` and `waves` print values, and `accuracy` says
how exact they are.  All but `rowprogram` need no device and no NumPy, so that text can be made anywhere.
"""
