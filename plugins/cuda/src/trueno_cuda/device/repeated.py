"""Cache of a kernel's calls, keyed by the shapes and addresses of arrays.

Shapes and addresses were resolved on an earlier call that needed a single launch.  A repetition is a dictionary lookup
and that launch, in a function that is generated for the number of arguments: loops and unpacking
would take longer than the driver.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any

from trueno.errors import KernelError

from trueno_cuda.device.protocol import Launch

READY = 256
"""Entries kept per kernel; the cache is cleared when full."""


def quick(call: Callable[..., int], seen: Callable[..., Launch | None], inputs: int, floats: int, outs: int) -> Any:
    """`call`, with this many operands, floats and results, without the work that does not change.

    seen: the launch that a call needed for these arrays, which are in C order; None if it needed more.
    """
    launches: dict[Any, Callable[..., None]] = {}
    before: dict[Any, bool] = {}
    """Keys that were seen once; whether they may have a single launch."""
    numbers = count()

    def slow(key: Any, *given: Any) -> int:
        status = call(*given)
        if status != 0 or not before.get(key, True):
            return status
        if key not in before:  # arrays that appear only once are not worth an entry
            if len(before) >= READY:
                before.clear()
            before[key] = True
            return status
        arrays = (*given[:inputs], *given[inputs + floats :])
        launch = seen(arrays) if all(x._c_contiguous for x in arrays) else None
        if launch is None:
            before[key] = False
        else:
            if len(launches) >= READY:
                launches.clear()
            launches[key] = launch if floats else fixed(launch, [x.data.ptr for x in arrays])
        return status

    def bind(shapes: tuple[tuple[int, ...], ...]) -> Callable[..., int]:
        """The kernel for arrays that are known to hold the elements of these shapes, operands and results."""
        if len(shapes) != inputs + outs:
            raise KernelError(f"a kernel of {inputs} operands and {outs} results has no {len(shapes)} shapes")
        wanted = (*shapes[:inputs], *[None] * floats, *shapes[inputs:])

        def seen_so(key: Any, *given: Any) -> int:
            pairs = list(zip(given, wanted, strict=True))
            if any(s is not None and x.shape != s and not x._c_contiguous for x, s in pairs):
                return -1
            return slow(key, *(x if s is None or x.shape == s else x.reshape(s) for x, s in pairs))

        return _written(inputs, floats, outs, True)(launches.get, seen_so, next(numbers))  # type: ignore[no-any-return]

    kernel = _written(inputs, floats, outs, False)(launches.get, slow, None)
    kernel.bind = bind
    return kernel


def fixed(launch: Launch, pointers: Sequence[int | bytes]) -> Callable[[], None]:
    """The launch with these pointers; a library's launch cannot be bound, and gets them each time."""
    bound = getattr(launch, "bound", None)
    return partial(launch, pointers) if bound is None else bound(pointers)  # type: ignore[no-any-return]


@lru_cache(None)
def _written(inputs: int, floats: int, outs: int, shaped: bool) -> Callable[..., Any]:
    """Generates the function that looks up launches by shapes and addresses, and falls back to a full call.

    shaped: the shapes are known, and a number in third place stands for them.
    """
    names = [f"a{i}" for i in range(inputs)], [f"f{i}" for i in range(floats)], [f"o{i}" for i in range(outs)]
    arrays = [*names[0], *names[2]]
    parameters = ", ".join([*names[0], *names[1], *names[2]])
    addresses = "".join(f"p_{x}, " for x in arrays)
    shapes = "alike, " if shaped else "".join(f"{x}.shape, " for x in arrays)
    lines = [
        "def made(known, slow, alike):",
        f"    def kernel({parameters}):",
        *(f"        p_{x} = {x}.data.ptr" for x in arrays),
        f"        key = {shapes}{addresses[:-2]}",
        "        launch = known(key)",
        f"        if launch is None or not ({' and '.join(f'{x}._c_contiguous' for x in arrays)}):",
        f"            return slow(key, {parameters})",
        f"        launch(({addresses}), ({', '.join(names[1])},))" if floats else "        launch()",
        "        return 0",
        "    return kernel",
    ]
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<trueno_cuda.device.repeated>", "exec"), space)
    return space["made"]  # type: ignore[no-any-return]
