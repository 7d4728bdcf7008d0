"""PTX text to tokens, none of which is lost, and a cursor that reads them one by one."""

import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from trueno_cuda.ptx.syntax.errors import PtxError

STRING = r'"[^"\\\n]*+(?:\\[^\n]?[^"\\\n]*+)*+(?P<close>"|(?=\n)|\Z)'
"""A string, which the end of its line closes if nothing else does: `close` is empty then."""
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    |(?P<string>"""
    + STRING
    + r""")
    |(?P<word>\.[A-Za-z_][\w$]*(?:::\w+)*|[.A-Za-z_$%][\w$.]*(?:::[\w.]+)*)
    |(?P<mark>[{}\[\]();,:|@!+\-<>=~&^*/])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


REST = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+)*+")
"""Blanks and comments to a line's end, before a token."""


class Token(NamedTuple):
    """A piece of the text.  kind: space, number, string, word, mark, or unknown.  start: its offset in the text."""

    kind: str
    text: str
    line: int
    start: int


def tokens(text: str) -> Iterator[Token]:
    """All pieces of `text` in order, blanks and comments too: joined, they are the text."""
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        piece, kind = (match[0], match.lastgroup or "") if match else (text[at], "unknown")
        yield Token(kind, piece, line, at)
        line += piece.count("\n")
        at += len(piece)


LONG = 200
"""Characters of a line that an error quotes."""


class Lines:
    """Where each line of a text begins."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def starts(self) -> "array[int]":
        lengths = map(len, self.text.split("\n"))
        return array("q", accumulate(map((1).__add__, lengths), initial=0))[:-1]

    def line(self, start: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self.starts, start)

    def column(self, start: int) -> int:
        """The column of an offset, from 1."""
        return start - self.starts[self.line(start) - 1] + 1

    def of(self, line: int) -> str:
        """A line's text, without blanks around it; of a long one, the beginning."""
        if not 1 <= line <= len(self.starts):
            return ""
        first = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        whole = self.text[first : min(end, first + LONG)].strip()
        return whole if end <= first + LONG else whole + "…"


DEPTH = 64
"""Braces and parentheses within each other; compilers write a handful."""
STOPS = {";", "{", "}"}


def number(text: str) -> int | float:
    """A literal's value; `0f…` and `0d…` are the bits of a float.  Raises ValueError where it is none of 64 bits."""
    head = text[:2].lower()
    if head == "0f":
        return float(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if head == "0d":
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    digits = text.rstrip("U")
    if head in ("0x", "0b"):
        value = int(digits[2:], 16 if head == "0x" else 2)
    elif "." in text or "e" in text or "E" in text:
        return float(text)
    elif digits[0] == "0":
        if digits.strip("01234567"):
            raise ValueError(
                f"{text} begins with 0, which makes it octal, but {digits.strip('01234567')[0]} is not a digit of it"
            )
        value = int(digits, 8)
    else:
        value = int(digits) if len(digits) <= 20 else 1 << 64
    if value >> 64:
        raise ValueError(f"{text if len(text) < 40 else text[:36] + '…'} has more than 64 bits")
    return value


class Cursor:
    """A place in the text, with the few questions that a parser asks.  A token is read when it is needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.depth = 0
        self.at = 0  # the offset behind the last token
        self.ahead: Token | None = None

    @property
    def here(self) -> Token:
        if self.ahead is None:
            self.ahead = self.read(self.at)
        return self.ahead

    def read(self, start: int) -> Token:
        """The first token that begins at an offset or behind it."""
        text = self.text
        while True:
            match = TOKEN.match(text, start)
            if match is None:
                if start >= len(text):
                    return Token("end", "", self.lines.line(max(len(text.rstrip()) - 1, 0)), len(text))
                raise self.wrong(f"unexpected character {text[start]!r}", start)
            kind = match.lastgroup or ""
            if kind == "string" and not match["close"]:
                raise self.wrong("a string is not closed", start)
            if kind != "space":
                return Token(kind, match[0], self.lines.line(start), start)
            if match[0].startswith("/*") and (len(match[0]) < 4 or not match[0].endswith("*/")):
                raise self.wrong("a comment is not closed", start)
            start = match.end()

    def check(self) -> None:
        """Raise the error of the first piece of the text that is not a token, if there is one."""
        self.jump(0)
        while self.next().kind != "end":
            pass

    def wrong(self, message: str, start: int) -> PtxError:
        line = self.lines.line(start)
        return PtxError(message, line, self.lines.of(line))

    def jump(self, at: int) -> None:
        """Go on at an offset, which is not inside a token."""
        self.at = at
        self.ahead = None

    def rest(self) -> int:
        """The offset of what comes next, where only a block comment may still stand before a token."""
        if self.ahead is not None:
            return self.ahead.start
        match = REST.match(self.text, self.at)
        return match.end() if match else self.at

    def next(self) -> Token:
        token = self.here
        self.at = token.start + len(token.text)
        self.ahead = None
        return token

    def second(self) -> Token:
        """The token behind the next one."""
        token = self.here
        return self.read(token.start + len(token.text))

    def take(self, text: str) -> bool:
        """Step over `text` if it comes next."""
        token = self.here
        if token.text == text and token.kind != "string":
            self.next()
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.here
        if not self.take(text):
            raise self.error(f"expected {text!r}, found {token.text or 'the end'!r}")
        return token

    def word(self) -> str:
        token = self.here
        if token.kind != "word":
            raise self.error(f"expected a name, found {token.text or 'the end'!r}")
        self.next()
        return token.text

    def unsigned(self) -> int | float:
        """A number without a sign."""
        if self.here.kind != "number":
            raise self.error(f"expected a number, found {self.here.text or 'the end'!r}")
        try:
            value = number(self.here.text)
        except ValueError as error:
            raise self.error(str(error)) from None
        self.next()
        return value

    def integer(self, least: int | None = None) -> int:
        """A whole number with or without a sign; least: and no less than this."""
        negative = self.take("-")
        value = self.unsigned()
        if isinstance(value, float):
            raise self.error(f"expected an integer, found {value}")
        value = -value if negative else value
        if least is not None and value < least:
            raise self.error(f"{value} is too few: at least {least}")
        return value

    def literal(self) -> int | float:
        """A number with or without a sign."""
        sign = -1 if self.take("-") else 1
        self.take("+")
        return sign * self.unsigned()

    def skip_past(self, mark: str) -> None:
        """Step over everything up to a mark, and over it; no other semicolon or brace may stand before it."""
        first = self.here
        while not self.take(mark):
            if self.here.kind == "end" or self.here.text in STOPS:
                raise self.error(f"{first.text!r} of line {first.line} has no {mark!r} behind it")
            self.next()

    @contextmanager
    def nested(self, most: int = 2 * DEPTH) -> Iterator[None]:
        """What stands inside a brace or a parenthesis: the parser calls itself for it, so the depth has a limit.

        most: of operands twice that of blocks, so that in every block the usual operands are within it.
        """
        self.depth += 1
        if self.depth > most:
            raise self.error(f"braces or parentheses within each other more than {most} deep")
        yield
        self.depth -= 1

    def skip_line(self) -> list[str]:
        """Step over all that stands on the last token's line: its words."""
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line = self.text[self.at : end]
        self.jump(end)
        return [match[0] for match in TOKEN.finditer(line) if match.lastgroup != "space"]

    def source(self, start: int) -> str:
        """The text from an offset up to here, in one line."""
        piece = re.sub(r"//[^\n]*", " ", self.text[start : self.at])
        return " ".join(piece.split()).rstrip("; ")

    def error(self, message: str) -> PtxError:
        return PtxError(message, self.here.line, self.lines.of(self.here.line))
