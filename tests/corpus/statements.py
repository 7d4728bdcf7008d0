"""A PTX module as its text, with the place of every statement: enough to change one and leave the rest as it is.

This is no parser of PTX: it finds where statements begin and end and splits their operands, for text that compilers and
people write.  It shares nothing with the emulator's parser or with an analyzer's, so that a fault in one of them
does not hide itself here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
ITEM = re.compile(r"\.entry\s+([\w$%]+)|\.func\b")
LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
INSTRUCTION = re.compile(r"(?:@(!?)([\w$%]+)\s+)?([A-Za-z_][\w.:]*)\s*(.*)", re.S)
REGISTER = re.compile(r"%[\w$]+(?:\.[xyzw])?")
SPECIAL = re.compile(
    r"%(n?tid|n?ctaid|laneid|warpid|n?cluster\w*|is_\w+|clock\w*|lanemask\w*|smid|envreg\w*|dynamic\w*|"
    r"total_\w+|globaltimer\w*|gridid|nsmid|nwarpid)(\.[xyzw])?"
)
NO_RESULT = {"st", "red", "bar", "barrier", "bra", "brx", "ret", "exit", "trap", "membar", "fence", "cp", "prefetch",
             "call", "wgmma", "nanosleep", "griddepcontrol", "stmatrix"}  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """kind: "instruction", "label", "directive" or "brace".  start, end: its place in the module's text."""

    kind: str
    start: int
    end: int
    text: str
    guard: str = ""
    negated: bool = False
    name: str = ""
    operands: tuple[str, ...] = ()

    @property
    def opcode(self) -> str:
        return self.name.split(".")[0]

    @property
    def mods(self) -> list[str]:
        return self.name.split(".")[1:]

    @property
    def writes(self) -> list[str]:
        """The registers that it sets."""
        if self.kind != "instruction" or not self.operands:
            return []
        first = self.operands[0]
        if self.opcode == "mbarrier":
            return REGISTER.findall(first) if not first.startswith("[") else []
        if self.opcode == "wgmma" and "mma_async" in self.mods:
            return REGISTER.findall(first)
        if self.opcode in NO_RESULT or first.startswith("["):
            return []
        return REGISTER.findall(first)

    @property
    def reads(self) -> list[str]:
        """The registers that it uses, with that of the guard."""
        if self.kind != "instruction":
            return []
        skip = 1 if self.writes and self.opcode != "wgmma" else 0
        words = REGISTER.findall(", ".join(self.operands[skip:]))
        return [w for w in words if not SPECIAL.fullmatch(w)] + ([self.guard] if self.guard else [])


def operands(text: str) -> tuple[str, ...]:
    """Split at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return tuple(p for p in parts if p)


def blank(text: str) -> str:
    """The text without its comments, each character in its place."""
    return COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def closing(text: str, at: int) -> int:
    """The place of the brace that closes the one at `at`; strings have none."""
    depth = 0
    for match in re.finditer(r'[{}]|"(?:[^"\\]|\\.)*"', text[at:]):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return at + match.start()
    raise ValueError("a brace is not closed")


def statements(text: str, start: int, end: int) -> Iterator[Statement]:
    """Those of `text[start:end]`, which has no comments."""
    at = start
    while at < end:
        if text[at].isspace() or text[at] == ";":
            at += 1
            continue
        label = LABEL.match(text, at, end)
        if text[at] in "{}":
            stop, kind = at + 1, "brace"
        elif label:
            stop, kind = label.end(), "label"
        elif text.startswith((".loc", ".file"), at):
            stop, kind = text.index("\n", at), "directive"
        else:
            stop, kind = text.index(";", at) + 1, "directive" if text[at] == "." else "instruction"
        written = text[at:stop]
        if kind == "instruction":
            match = INSTRUCTION.fullmatch(written.rstrip("; \n\t"))
            if match is None:
                raise ValueError(f"not an instruction: {written!r}")
            negated, guard, name, rest = match.groups()
            yield Statement(kind, at, stop, written, guard or "", negated == "!", name, operands(rest))
        else:
            yield Statement(kind, at, stop, written, name=label[1] if label else "")
        at = stop


@dataclass(frozen=True)
class Loop:
    """A label, and the branch back to it: places in `Entry.code`."""

    head: int
    tail: int


@dataclass(frozen=True)
class Entry:
    """One kernel of a module.  start: of its header.  opening, end: of its braces."""

    module: str
    name: str
    start: int
    opening: int
    end: int

    @cached_property
    def code(self) -> list[Statement]:
        return list(statements(blank(self.module), self.opening + 1, self.end))

    @cached_property
    def instructions(self) -> list[Statement]:
        return [s for s in self.code if s.kind == "instruction"]

    @cached_property
    def labels(self) -> dict[str, int]:
        return {s.name: k for k, s in enumerate(self.code) if s.kind == "label"}

    @cached_property
    def loops(self) -> list[Loop]:
        """One per branch back; inner ones and outer ones alike."""
        return [
            Loop(self.labels[s.operands[0]], k)
            for k, s in enumerate(self.code)
            if s.opcode == "bra" and self.labels.get(s.operands[0], k) < k
        ]

    def inside(self, at: int) -> list[Loop]:
        """The loops around a statement of `code`."""
        return [loop for loop in self.loops if loop.head < at < loop.tail]

    def definitions(self, register: str) -> list[Statement]:
        return [s for s in self.instructions if register in s.writes]

    def uses(self, register: str) -> list[Statement]:
        return [s for s in self.instructions if register in s.reads]

    def sole(self, register: str) -> Statement | None:
        """What sets a register, if it is set at one place."""
        found = self.definitions(register)
        return found[0] if len(found) == 1 else None

    @property
    def header(self) -> str:
        return self.module[self.start : self.opening]

    @cached_property
    def shared(self) -> dict[str, int]:
        """The bytes of its shared arrays, 0 for dynamic ones; those of the module too."""
        sizes = {"8": 1, "16": 2, "32": 4, "64": 8}
        found = re.finditer(
            r"\.shared\s+(?:\.align\s+\d+\s+)?\.[busf](8|16|32|64)\s+([\w$]+)(?:\[(\d*)\])?", blank(self.module)
        )
        return {m[2]: sizes[m[1]] * (int(m[3] or 0) if m[3] is not None else 1) for m in found}


def entries(module: str) -> list[Entry]:
    """The kernels of a module, in order."""
    text, found = blank(module), []
    at = 0
    while match := ITEM.search(text, at):
        opening = text.find("{", match.end())
        first_end = text.find(";", match.end())
        if opening < 0 or (match[1] is None and 0 <= first_end < opening):
            at = match.end()  # a declaration alone
            continue
        end = closing(text, opening)
        if match[1]:
            start = max(text.rfind("\n", 0, match.start()) + 1, 0)
            found.append(Entry(module, match[1], start, opening, end))
        at = end
    return found


def alone(module: str, name: str) -> str:
    """The module with one of its kernels: its variables and functions stay."""
    text = module
    for entry in reversed(entries(module)):
        if entry.name != name:
            text = text[: entry.start] + text[entry.end + 1 :]
    return text
