"""Libraries of arrays that plugins add: entry points of the group `trueno.arrays`.

An entry point has the name of the top-level module of the library's classes, and its value is the module, or object,
that runs their calls: `dask = "trueno_dask.library"`.  It is imported when the first object of such a class meets an
op, and never before.  TRUENO_BLOCK and TRUENO_AUTOLOAD apply by that name.
"""

from typing import Any, Protocol

from trueno import hooks
from trueno.discovery import index
from trueno.interop.library import Library
from trueno.ops.op import Op

GROUP = "trueno.arrays"


class Runner(Library, Protocol):
    """A library that runs calls itself, because its arrays are lazy, or in many places."""

    def takes(self, kind: type) -> bool:
        """Whether objects of this class are its arrays."""

    def call(self, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], out: Any) -> Any:
        """The result of a public function, or a tuple of results, for operands of which one is such an array.

        scalars: the parameters by name, and `axis` (an integer, None or a tuple) and `keepdims` where the op has them.
        """


def added(kind: type) -> Runner | None:
    """The library of a class that an installed plugin adds; None if there is none, or it takes no such class."""
    root = kind.__module__.partition(".")[0]
    points = [p for p in index.points() if p.group == GROUP and p.name == root and hooks.allowed(p.name)]
    if not points:
        return None
    if len({(p.distribution, p.value) for p in points}) > 1:
        rivals = " and ".join(sorted(p.distribution or p.value for p in points))
        hooks.report(f'arrays: "{root}" is installed by {rivals}; none is loaded, uninstall one')
        return None
    try:
        library: Any = hooks.load(points[0].value)
    except (Exception, SystemExit) as error:
        hooks.report(f'arrays: the plugin "{root}" cannot be loaded: {type(error).__name__}: {error}')
        return None
    return library if library.takes(kind) else None
