"""PTX text to tokens, each with its line, and a cursor over them."""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from trueno_cuda.ptx.emulate.errors import PtxError

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<word>\.[A-Za-z_][\w$]*(?:::\w+)*|[.A-Za-z_$%][\w$.]*(?:::[\w.]+)*)
    |(?P<mark>[{}\[\]();,:|@!+\-<>=~&^*/])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    kind: str
    text: str
    line: int
    start: int


def tokens(text: str) -> list[Token]:
    """All tokens of `text`; raises PtxError at the first character that starts none."""
    result = []
    at, line = 0, 1
    for match in TOKEN.finditer(text):
        if match.start() != at:
            break
        word, kind = match.group(), match.lastgroup
        if kind == "space":
            if word.startswith("/*") and (len(word) < 4 or not word.endswith("*/")):
                raise PtxError("a comment is not closed", line, text.splitlines()[line - 1].strip())
            line += word.count("\n")
        else:
            result.append(Token(kind or "", word, line, at))
        at = match.end()
    if at < len(text):
        raise PtxError(f"unexpected character {text[at]!r}", line, text.splitlines()[line - 1].strip())
    return result


DEPTH = 64
"""Braces and parentheses within each other; compilers write a handful."""


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
    """A place in the tokens, with the few questions that a parser asks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.depth = 0
        self.tokens.append(Token("end", "", self.tokens[-1].line if self.tokens else 1, len(text)))
        self.at = 0

    @property
    def here(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.here
        self.at += token.kind != "end"
        return token

    def take(self, text: str) -> bool:
        """Step over `text` if it comes next."""
        token = self.tokens[self.at]
        if token.text == text and token.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.here
        if not self.take(text):
            raise self.error(f"expected {text!r}, found {token.text or 'the end'!r}")
        return token

    def word(self) -> str:
        token = self.tokens[self.at]
        if token.kind != "word":
            raise self.error(f"expected a name, found {token.text or 'the end'!r}")
        self.at += 1
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
        """Step over everything up to a mark, and over it."""
        first = self.here
        while not self.take(mark):
            if self.here.kind == "end":
                raise self.error(f"{first.text!r} of line {first.line} has no {mark!r} behind it")
            self.next()

    @contextmanager
    def nested(self) -> Iterator[None]:
        """What stands inside a brace or a parenthesis: the parser calls itself for it, so the depth has a limit."""
        self.depth += 1
        if self.depth > DEPTH:
            raise self.error(f"braces or parentheses within each other more than {DEPTH} deep")
        yield
        self.depth -= 1

    def skip_line(self) -> None:
        """Step over all that stands on the last token's line."""
        line = self.tokens[self.at - 1].line
        while self.here.kind != "end" and self.here.line == line:
            self.at += 1

    def source(self, first: int) -> str:
        """The text from token `first` up to here, in one line."""
        end = self.tokens[self.at].start
        piece = re.sub(r"//[^\n]*", " ", self.text[self.tokens[first].start : end])
        return " ".join(piece.split()).rstrip("; ")

    def error(self, message: str) -> PtxError:
        line = self.here.line
        lines = self.text.splitlines()
        return PtxError(message, line, lines[line - 1].strip() if line <= len(lines) else "")
