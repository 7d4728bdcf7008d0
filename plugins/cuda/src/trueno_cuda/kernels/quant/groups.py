"""Where a group's scale or min lies in its block, as a formula of the group's number."""

from collections.abc import Mapping, Sequence
from typing import Any

from trueno.backend import Format, Linear, Piece, Pieces, linear

from trueno_cuda.ptx import Value, u32

Whole = Value | int
"""A number that the kernel knows, or that Python does."""


def number(formula: Linear | None, g: Whole) -> Whole:
    """The formula's number."""
    assert formula is not None
    if isinstance(g, int):
        return formula.at(g)
    total: Whole = formula.first
    for mask, shift, factor in formula.terms:
        bits = g & mask
        total = (bits >> shift if shift else bits) * factor + total
    return total


def one_formula(parts: Sequence[Piece]) -> bool:
    """Whether one formula finds these pieces, one of each of some groups."""
    first = parts[0]
    if any((p.bits, p.to) != (first.bits, first.to) for p in parts):
        return False
    if len({p.byte // 4 for p in parts}) == 1:
        return linear([p.byte % 4 * 8 + p.shift for p in parts]) is not None
    return linear([p.byte for p in parts]) is not None and linear([p.shift for p in parts]) is not None


def shared_words(f: Format) -> frozenset[int]:
    """The words of a block that hold scales or mins of several groups; single bytes are read where they are needed."""

    def of(pieces: Pieces) -> set[int]:
        if not pieces:
            return set()
        if len({len(p) for p in pieces}) == 1:
            slots = [[group[i] for group in pieces] for i in range(len(pieces[0]))]
            if all(one_formula(s) for s in slots):
                return {s[0].byte // 4 for s in slots if len({p.byte // 4 for p in s}) == 1}
        middle = len(pieces) // 2
        return of(pieces[:middle]) | of(pieces[middle:])

    return frozenset(of(f.scales) | of(f.mins))


def separate_bytes(f: Format, pieces: Pieces, g: Whole) -> list[tuple[tuple[int, ...], Whole]]:
    """The bytes that are read for group g alone, in the order in which they are asked for: of all groups, and of g."""
    if not pieces:
        return []
    if isinstance(g, int):
        pieces, g = (pieces[g],), 0
    if len({len(p) for p in pieces}) == 1:
        slots = [[group[i] for group in pieces] for i in range(len(pieces[0]))]
        if all(one_formula(s) for s in slots):
            shared = shared_words(f)
            alone = [s for s in slots if len(w := {p.byte // 4 for p in s}) > 1 or min(w) not in shared]
            return [(tuple(p.byte for p in s), number(linear([p.byte for p in s]), g)) for s in alone]
    middle = len(pieces) // 2
    return [*separate_bytes(f, pieces[:middle], g), *separate_bytes(f, pieces[middle:], g)]


def packed(k: Any, words: Mapping[int, Value], f: Format, pieces: Pieces, g: Value, ways: int) -> Value | None:
    """The numbers of groups g, g + 1 …, one for each way, a byte each; None where no one formula has them all.

    g: a multiple of `ways`.  Shifts and masks do not depend on the block: what is left to do in it is one selection,
    shift and mask for each piece.
    """
    middle = len(pieces) // 2
    for halves in ((pieces,), (pieces[:middle], pieces[middle:])):
        if middle % ways == 0 and all(_in_step(f, half, ways) for half in halves):
            break
    else:
        return None
    upper = (g & middle) != 0
    total: Value | None = None
    for i in range(max(len(half[0]) for half in halves)):
        found = [(half[0][i], [group[i] for group in half]) for half in halves if i < len(half[0])]
        sources = [words[piece.byte // 4] for piece, _ in found]
        shifts = [number(linear([p.byte % 4 * 8 + p.shift - p.to for p in all_]), g) for _, all_ in found]
        masks = [(((1 << piece.bits) - 1) << piece.to) * (0x01010101 & (1 << 8 * ways) - 1) for piece, _ in found]
        if len(found) == len(halves) == 2:
            source = sources[0] if sources[0] is sources[1] else k.select(upper, sources[1], sources[0])
            shift, mask = k.select(upper, shifts[1], shifts[0]), k.select(upper, k.const(u32, masks[1]), masks[0])
        else:
            alone = len(halves) == 2  # only the upper half has this piece
            source, shift = sources[0], shifts[0]
            mask = k.select(upper, k.const(u32, masks[0]), 0) if alone else masks[0]
        part = (source >> shift) & mask
        total = part if total is None else total | part
    return total


def _in_step(f: Format, pieces: Pieces, ways: int) -> bool:
    """Whether one formula has all, neighbouring groups are neighbouring bytes of one word, and no shift is upwards."""
    count = len(pieces[0])
    if any(len(p) != count for p in pieces):
        return False
    shared = shared_words(f)
    for i in range(count):
        slot = [group[i] for group in pieces]
        first = slot[0]
        if not one_formula(slot) or {p.byte // 4 for p in slot} - shared or len({p.byte // 4 for p in slot}) > 1:
            return False
        if (
            any(p.shift != first.shift or p.byte != first.byte + n for n, p in enumerate(slot))
            or first.shift < first.to
        ):
            return False
    return len(pieces) % ways == 0
