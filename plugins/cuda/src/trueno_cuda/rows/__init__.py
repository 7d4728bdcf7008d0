"""Row programs as PTX, and what runs them.

`rowprogram` makes a kernel of a call: `schedule` shares rows among threads, `source` prints.  `printer` is what `flat`,
`held` and `swept` have in common; `expressions`, `folds` and `elementary32`, `elementary64` with their parts print
values, and `accuracy` says how exact they are.  `catalogue` holds the entries.
"""
