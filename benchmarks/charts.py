"""Charts of the guides, drawn by matplotlib: the same bytes from the same data, whatever fonts a machine has."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GUIDES = Path(__file__).parents[1] / "docs" / "how-to"
RED, BLUE, GREEN = "#c0504d", "#2e75b6", "#5a9a3c"
STYLE = {
    "svg.fonttype": "none",  # text stays text, in the reader's font
    "svg.hashsalt": "trueno",  # else the names of paths are random
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 10,
}


@contextmanager
def chart(
    path: Path, size: tuple[float, float], facts: str, columns: int = 1, margin: float = 0.6
) -> Iterator[list[Any]]:
    """The axes of a new picture of `size` inches, side by side, which is written to `path` when the block ends.

    facts: the data in words, kept in the file, which a test can compare with what they would be now.  Axes have their
    places from the size and from `margin`, the inches left of them, and not from the extent of any text, which depends
    on a machine's fonts.
    """
    import matplotlib as mpl  # of the docs group: nothing else needs it
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    width, height = size
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}):
        figure = Figure(figsize=size)
        FigureCanvasSVG(figure)
        axes = list(figure.subplots(1, columns, squeeze=False)[0])
        figure.subplots_adjust(margin / width, 0.55 / height, 1 - 0.25 / width, 1 - 0.35 / height, wspace=0.25)
        yield axes
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Description": facts})
