"""Row programs as PTX, and the code that runs them.

`rowprogram` makes a kernel of a call: `schedule` shares rows among threads, `source` prints.  `printer` is what `flat`,
`register_resident` and `multi_pass` have in common; `expressions`, `folds`, `elementary32` and `elementary64` print
values, and `accuracy` states their errors.  `catalogue` holds the entries.
"""
