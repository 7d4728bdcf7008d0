"""Attention over whole prompts: `attention`, `attention_sinks`, `attention_masked` and `attention_ragged`.

`prefill` declares the ops, `plan` chooses kernels and grids.  `simt` attends by fma, in every type and size; `mma` by
tensor cores, from 16-bit operands or from float32 that `planes` splits.  `form` is what their texts share, `softmax`
the weights of the scores that a thread holds.
"""
