"""How Numba's machine code is called: by the entries of `trueno_simd.door`, not by Numba's own wrapper.

`int32 f(int64 *result, i8 **exception, …)`: an array is passed as owner, parent, number of elements, bytes of an
element, data, its extents and its strides; a float parameter as a double.  It is Numba's own matter, so it is compared
with what this Numba says of each kernel.  The wrapper also sets the floating-point environment (`environment`), which
a caller of the code itself must have done.
"""

from typing import Any


def array(write: Any, data: str, itemsize: str, extents: list[str]) -> list[str]:
    """The arguments that a C-contiguous array is; `write` takes the instructions that compute them."""
    strides, step, size = [], itemsize, "1"
    for i, extent in enumerate(reversed(extents)):
        strides.insert(0, step)
        size = write.times(extent, size)
        if i + 1 < len(extents):
            step = write.times(step, extent)
    parts = ["ptr null", "ptr null", f"i64 {size}", f"i64 {itemsize}", f"ptr {data}"]
    return parts + [f"i64 {number}" for number in (*extents, *strides)]


NUMBER, WHOLE = "number", "whole"


def passed(kernel: Any) -> tuple[int, tuple[str, ...]]:
    """The address of a kernel's machine code, and what each argument is: `float32 2 out`, `number` or `whole`.

    The address is 0 if the kernel is not called as stated here, or that cannot be told.
    """
    try:
        return _passed(kernel)
    except (AttributeError, TypeError):  # another Numba has other words for this
        return 0, ()


def _passed(kernel: Any) -> tuple[int, tuple[str, ...]]:
    if len(kernel.overloads) != 1:
        return 0, ()
    (compiled,) = kernel.overloads.values()
    kinds = tuple(map(argument, compiled.signature.args))
    expected = ["*", "*"]
    for kind in kinds:
        if kind in (NUMBER, WHOLE):
            expected.append("double" if kind == NUMBER else "i64")
        else:
            expected += ["*", "*", "i64", "i64", "*", *["i64"] * 2 * int(kind.split()[1])]
    convention = kernel.targetdescr.target_context.call_conv
    function = convention.get_function_type(compiled.signature.return_type, compiled.signature.args)
    actual = ["*" if text.endswith(("*", "ptr")) else text for text in map(str, function.args)]
    if str(function.return_type) != "i32" or actual != expected or str(compiled.signature.return_type) != "int64":
        return 0, ()
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name) or 0, kinds


def argument(kind: Any) -> str:
    """`float32 2 out` for an array, `number` for a float parameter, `whole` for an integer."""
    if getattr(kind, "ndim", None) is None:
        return WHOLE if str(kind) == "int64" else NUMBER
    return f"{kind.dtype} {kind.ndim} {'out' if kind.mutable else 'in'}"
