"""What each fold is in WGSL: a state, how it takes a value, and how two states are joined."""

from typing import NamedTuple


class FoldText(NamedTuple):
    """How a fold is printed.

    type: of the state.  start: the state of nothing.  step: the state after value {v} at position {i}, from {s}.
    join: of states {s} and {t}.  result: the fold's value, from {s}.  state and value go through workgroup memory and
    scratch buffers as two words: pack, unpack.
    """

    type: str
    start: str
    step: str
    join: str
    result: str


PACK = {
    "f32": ("vec2<u32>(bits({s}), 0u)", "bitcast<f32>({s}.x)"),
    "u32": ("vec2<u32>({s}, 0u)", "{s}.x"),
    "vec2<f32>": ("bitcast<vec2<u32>>({s})", "bitcast<vec2<f32>>({s})"),
    "vec2<u32>": ("{s}", "{s}"),
}
"""State type → how it becomes two words, and how it is made of them again."""

FOLDS: dict[str, FoldText] = {
    "sum": FoldText("f32", "0.0", "{s} + {v}", "{s} + {t}", "{s}"),
    "fsum": FoldText(
        "vec2<f32>", "vec2<f32>(0.0, 0.0)", "add_exactly({s}, {v})",
        "add_exactly(vec2<f32>({s}.x, {s}.y + {t}.y), {t}.x)", "whole({s})",
    ),
    "prod": FoldText("f32", "1.0", "{s} * {v}", "{s} * {t}", "{s}"),
    "max": FoldText("f32", "negative(u.inf)", "maximum({s}, {v})", "maximum({s}, {t})", "{s}"),
    "min": FoldText("f32", "u.inf", "minimum({s}, {v})", "minimum({s}, {t})", "{s}"),
    "any": FoldText("u32", "0u", "{s} | select(0u, 1u, {v})", "{s} | {t}", "{s} != 0u"),
    "all": FoldText("u32", "1u", "{s} & select(0u, 1u, {v})", "{s} & {t}", "{s} != 0u"),
    "argmax": FoldText(
        "vec2<u32>", "vec2<u32>(0u, 0xffffffffu)", "better({s}, vec2<u32>(rank_high({v}), {i}))", "better({s}, {t})",
        "{s}.y",
    ),
    "argmin": FoldText(
        "vec2<u32>", "vec2<u32>(0u, 0xffffffffu)", "better({s}, vec2<u32>(rank_low({v}), {i}))", "better({s}, {t})",
        "{s}.y",
    ),
}  # fmt: skip
BLOCKED = ("sum",)
"""Folds whose state in long loops is a pair, to which blocks of plain steps are added exactly: short chains."""
