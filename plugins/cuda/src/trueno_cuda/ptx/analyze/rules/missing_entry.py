"""A text without a kernel."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Program


def check(entry: Entry) -> Iterator[Found]:
    return iter(())


def check_whole(program: Program) -> Iterator[tuple[int, str]]:
    if not any(f.defined for f in program.functions.values()):
        yield 1, "no entry and no function has a body"


RULE = Rule(
    "missing-entry", "medium", "certain",
    "A text defines neither an entry nor a function.",
    "There is nothing in it to launch or to link.",
    "Print the kernel, or look at why its generator printed only the head.",
    bad=".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .b8 table[4];\n",
    good=".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
    check=check, whole=check_whole,
)  # fmt: skip
