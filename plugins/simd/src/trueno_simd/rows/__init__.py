"""Row programs become kernels: the printer and what printed kernels import.

`rowprogram` compiles what `source` prints; `printer` has the schedules for long rows, `short_rows` the one for many
short rows, `streams` the one for results that no cache holds, `next_row` fetches rows early, and `epilogue` (with
`finish`) prints a program behind a product.  `expressions` holds the text of each node kind, and `work` says how long a
program runs, and so what is worth a thread; `schedule`, `folds`, `float32` and `float64` (with their `_exp_log`,
`_pow`, `_trig`) are the functions that printed kernels call.
"""
