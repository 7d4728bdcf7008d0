"""Comments that say that the code is not finished."""

import re
from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

COMMENT = re.compile(r"//[^\n]*")
WORDS = re.compile(r"\b(TODO|FIXME|XXX|placeholder|not implemented|unimplemented|stub|simplified|omitted)\b", re.I)


def check(entry: Entry) -> Iterator[Found]:
    starts = [ins.start for ins in entry.code if ins.start >= 0]
    if not starts:
        return
    lines = entry.program.lines
    text, end = lines.text, max(starts)
    first = lines.starts[max(entry.function.line - 1, 0)]
    for comment in COMMENT.finditer(text, first, end):  # a line's second // is the comment's, which is read once
        if match := WORDS.search(text, comment.start(), comment.end()):
            at = next((k for k, ins in enumerate(entry.code) if ins.start >= comment.start()), len(entry.code) - 1)
            yield at, f'a comment of line {lines.line(comment.start())} says "{match[1]}"'


RULE = Rule(
    "placeholder-code", "low", "medium",
    "A comment says that the code beside it is a placeholder, or is still to be written.",
    "A generator that prints such text has not finished.",
    "Finish the code, or remove the comment.",
    bad="ld.param.u64 %rd1, [x]; // TODO: the reduction\nst.global.u32 [%rd1], 0; ret;",
    good="ld.param.u64 %rd1, [x]; // a sum of nothing\nst.global.u32 [%rd1], 0; ret;",
    check=check,
)  # fmt: skip
