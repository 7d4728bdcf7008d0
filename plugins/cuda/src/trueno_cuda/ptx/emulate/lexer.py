"""PTX text to tokens, each with its line, and a cursor over them."""

import re
import struct
from typing import NamedTuple

from trueno_cuda.ptx.emulate.errors import PtxError

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)
    |(?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<word>\.[A-Za-z_][\w$]*(?:::\w+)*|[.A-Za-z_$%][\w$.]*(?:::[\w.]+)*)
    |(?P<mark>[{}\[\]();,:|@!+\-<>=~&^*/])""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    kind: str
    text: str
    line: int
    start: int


def tokens(text: str) -> list[Token]:
    """All tokens of `text`; raises PtxError at the first character that starts none."""
    found = []
    at, line = 0, 1
    for match in TOKEN.finditer(text):
        if match.start() != at:
            break
        word, kind = match.group(), match.lastgroup
        if kind == "space":
            line += word.count("\n")
        else:
            found.append(Token(kind or "", word, line, at))
        at = match.end()
    if at < len(text):
        raise PtxError(f"unexpected character {text[at]!r}", line, text.splitlines()[line - 1].strip())
    return found


def number(text: str) -> int | float:
    """A literal's value; `0f…` and `0d…` are the bits of a float."""
    head = text[:2].lower()
    if head == "0f":
        return float(struct.unpack(">f", bytes.fromhex(text[2:]))[0])
    if head == "0d":
        return float(struct.unpack(">d", bytes.fromhex(text[2:]))[0])
    if head == "0x":
        return int(text[2:].rstrip("U"), 16)
    if head == "0b":
        return int(text[2:].rstrip("U"), 2)
    if "." in text or "e" in text or "E" in text:
        return float(text)
    digits = text.rstrip("U")
    return int(digits, 8) if len(digits) > 1 and digits[0] == "0" and digits.isdigit() else int(digits)


class Cursor:
    """A place in the tokens, with the few questions that a parser asks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
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

    def integer(self) -> int:
        negative = self.take("-")
        if self.here.kind != "number":
            raise self.error(f"expected a number, found {self.here.text or 'the end'!r}")
        value = number(self.next().text)
        if isinstance(value, float):
            raise self.error(f"expected an integer, found {value}")
        return -value if negative else value

    def literal(self) -> int | float:
        """A number with or without a sign."""
        sign = -1 if self.take("-") else 1
        self.take("+")
        if self.here.kind != "number":
            raise self.error(f"expected a number, found {self.here.text or 'the end'!r}")
        return sign * number(self.next().text)

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
