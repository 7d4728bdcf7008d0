"""The layouts in which the core passes operands, and arrays of the shapes that lead to each.

One letter per operand: `e` varies along rows and elements, `w` along elements, `r` along rows, `u` not at all.  NumPy's
broadcasting is wrong for `r` beside rows, [rows, n] with [rows]; with as many rows as elements only
the values show it, so every layout is tried square, too.
"""

from trueno.ops.op import Op

THOROUGH = ("sub", "div", "pow", "copysign", "lerp", "fma", "dot")
"""Ops that are always tried in every layout: exchanging their operands changes the result."""
TALL, SQUARE = (7, 33), (9, 9)
"""Rows and elements of a row: different, and equal."""

Shape = tuple[int, ...]


def several(op: Op) -> list[int]:
    """The operands that vary along rows and elements as declared, where there are two or more of them."""
    places = [] if op.structured else [i for i, letter in enumerate(op.layout) if letter == "e"]
    return places if len(places) > 1 else []


def forms(op: Op, every: bool = True) -> list[str]:
    """The layouts besides the declared one that broadcasting leads to; without `every` the two most common."""
    places = several(op)
    if not places:
        return []
    if op.over is not None:  # such an operand has its whole row, or is one row shared by all
        turns = _one_each("w", len(places)) if every else []
    elif every:
        turns = [turn for letter in "uwr" for turn in _one_each(letter, len(places))]
        turns += ["wr", "rw"] if len(places) == 2 else ["ewr", "wre", "rew"]
    else:
        turns = [_one_each(letter, len(places))[-1] for letter in "uw"]
    return [_at(op.layout, places, turn) for turn in turns]


def _one_each(letter: str, count: int) -> list[str]:
    """`we`, `ew`: the letter in each place, `e` in the others."""
    return ["e" * i + letter + "e" * (count - 1 - i) for i in range(count)]


def _at(layout: str, places: list[int], letters: str) -> str:
    replacements = dict(zip(places, letters, strict=True))
    return "".join(replacements.get(i, letter) for i, letter in enumerate(layout))


def user_shapes(op: Op, layout: str, rows: int, n: int) -> list[Shape]:
    """Shapes for which the core produces `layout`."""
    column = (rows, 1) if op.over is None else (rows,)
    shapes: dict[str, Shape] = {"e": (rows, n), "w": (n,), "r": column, "u": ()}
    return [shapes[letter] for letter in layout]
