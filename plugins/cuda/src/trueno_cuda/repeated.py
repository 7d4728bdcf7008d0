"""Calls of a kernel on arrays like those that it was called with before.

What hangs on shapes and addresses was found out then, and one launch was all there was to do.  A repetition is a look
into a dictionary and that launch, in a function that is written out for the number of arguments: loops and unpacking
would take longer than the driver.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from trueno_cuda.device import Launch

READY = 256
"""Sets of arrays that a kernel knows; then it begins again."""


def quick(call: Callable[..., int], seen: Callable[..., Launch | None], inputs: int, floats: int, outs: int) -> Any:
    """`call`, which takes so many operands, floats and results, without what it finds out anew each time.

    seen: of arrays that a call went well with, in C order all of them, the launch that it came to; None where there was
    more to it.
    """
    known: dict[Any, Launch] = {}

    def slow(key: Any, *given: Any) -> int:
        status = call(*given)
        if status == 0:
            arrays = (*given[:inputs], *given[inputs + floats :])
            launch = seen(arrays) if all(x._c_contiguous for x in arrays) else None
            if launch is not None:
                if len(known) >= READY:
                    known.clear()
                known[key] = launch
        return status

    return _written(inputs, floats, outs)(known.get, slow)


@lru_cache(None)
def _written(inputs: int, floats: int, outs: int) -> Callable[..., Any]:
    """Makes the function of two others: what knows launches by shapes and addresses, and what runs a call at length."""
    names = [f"a{i}" for i in range(inputs)], [f"f{i}" for i in range(floats)], [f"o{i}" for i in range(outs)]
    arrays = [*names[0], *names[2]]
    given = ", ".join([*names[0], *names[1], *names[2]])
    addresses = "".join(f"p_{x}, " for x in arrays)
    shapes = "".join(f"{x}.shape, " for x in arrays)
    lines = [
        "def made(known, slow):",
        f"    def kernel({given}):",
        *(f"        p_{x} = {x}.data.ptr" for x in arrays),
        f"        key = {shapes}{addresses[:-2]}",
        "        launch = known(key)",
        f"        if launch is None or not ({' and '.join(f'{x}._c_contiguous' for x in arrays)}):",
        f"            return slow(key, {given})",
        f"        launch(({addresses}), ({''.join(f'{x}, ' for x in names[1])}))",
        "        return 0",
        "    return kernel",
    ]
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<trueno_cuda.repeated>", "exec"), space)
    return space["made"]  # type: ignore[no-any-return]
