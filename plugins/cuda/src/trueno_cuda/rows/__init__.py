"""Row programs as PTX, and what runs them.

`rowprogram` makes a kernel of a call: `schedule` shares rows among threads, `source` prints.  `printer` is what `flat`,
`register_resident` and `multi_pass` have in common; `expressions`, `folds`, `elementary32` and `elementary64` print
values, and `accuracy` says how exact they are.  `catalogue` holds the entries.
"""
