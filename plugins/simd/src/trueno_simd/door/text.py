"""A function in LLVM's language, written line by line.

Values that several ways through the code set are in slots of the frame (`slot`), which LLVM turns into registers.
A name is `%v` or a label with a number, in the order of writing: so the same entry is always the same text.
"""

from collections.abc import Callable

LIKELY = ", !prof !0"


class Unprintable(Exception):
    """What no entry can do here: calls of the op, or of the kernel, take another way."""


class Function:
    """The body of a function that is being written; `text` gives the whole."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def _new(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def __call__(self, instruction: str) -> str:
        """The value of an instruction."""
        name = f"%{self._new('v')}"
        self._lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """An instruction without a value."""
        self._lines.append(f"  {instruction}")

    def label(self, stem: str) -> str:
        """A new label, which `place` puts."""
        return self._new(stem)

    def place(self, label: str) -> None:
        """The code that follows is at this label."""
        self._lines.append(f"{label}:")

    def goto(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, likely: bool = False) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{LIKELY if likely else ''}")

    def require(self, condition: str, otherwise: str) -> None:
        """Go on where the condition holds, as it nearly always does; else go to a label."""
        further = self.label("on")
        self.branch(condition, further, otherwise, likely=True)
        self.place(further)

    def unless(self, condition: str, then: Callable[[], None]) -> None:
        """Run the code that `then` writes where the condition does not hold, which is rare, and go on after it."""
        rare, further = self.label("rare"), self.label("on")
        self.branch(condition, further, rare, likely=True)
        self.place(rare)
        then()
        self.goto(further)
        self.place(further)

    # ---- memory -------------------------------------------------------------------------------------

    def slot(self, kind: str, value: str | None = None) -> str:
        """Room for one value in the frame, with a first value if there is one."""
        name = f"%{self._new('s')}"
        self._slots.append(f"  {name} = alloca {kind}, align 8")
        if value is not None:
            self._slots.append(f"  store {kind} {value}, ptr {name}")
        return name

    def at(self, base: str, offset: int | str) -> str:
        """The address so many bytes behind another."""
        return base if offset == 0 else self(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, kind: str, base: str, offset: int | str = 0) -> str:
        return self(f"load {kind}, ptr {self.at(base, offset)}")

    def store(self, kind: str, value: str, base: str, offset: int | str = 0) -> None:
        self.do(f"store {kind} {value}, ptr {self.at(base, offset)}")

    # ---- values -------------------------------------------------------------------------------------

    def same(self, kind: str, a: str, b: str | int) -> str:
        return self(f"icmp eq {kind} {a}, {b}")

    def null(self, pointer: str) -> str:
        return self(f"icmp eq ptr {pointer}, null")

    def given(self, pointer: str) -> str:
        return self(f"icmp ne ptr {pointer}, null")

    def times(self, a: str, b: str) -> str:
        """The product of two numbers of 64 bits."""
        return b if a == "1" else a if b == "1" else self(f"mul i64 {a}, {b}")

    def text(self) -> str:
        return "\n".join([f"{self._head} {{", "start:", *self._slots, *self._lines, "}"])
