"""From a model to the lines of Python that write its kernels: `trueno ptx-map`.

`device` is a GPU that keeps launches and runs nothing, `backend` runs ops on it, `work` counts what a launch moves and
computes, `origin` finds a kernel's function.  `reference` and `engine` are the two plans, of the tensors that `model`
reads; `plan` joins them into one record, which `show` and `page` print; `mapped` does all that for `command`.
"""

ENGINE = "examples.qwen2_map"
"""The engine whose step is planned where none is named."""
