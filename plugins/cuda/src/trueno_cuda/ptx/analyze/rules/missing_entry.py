"""A text without a kernel."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.syntax.tree import Function, Instruction, Program, Register, Special, Symbol


def check(entry: Entry) -> Iterator[Found]:
    return iter(())


def check_whole(program: Program) -> Iterator[tuple[int, str]]:
    if not any(f.defined for f in program.functions.values()):
        yield 1, "no entry and no function has a body"
    elif not any(f.entry for f in program.functions.values()):
        called = {o.name for f in program.functions.values() for i in f.body if isinstance(i, Instruction)
                  for o in i.operands if i.opcode == "call" and isinstance(o, Symbol)}  # fmt: skip
        for function in program.functions.values():
            if function.defined and not function.results and function.name not in called and _kernel(function):
                yield function.line, f"{function.name} looks at its place in the grid, and is a .func and not an .entry"


def _kernel(function: Function) -> bool:
    """Whether code reads the index of its block, or of its thread and takes its arguments for addresses of global
    memory: a pointer that a function is given may be one of any memory."""
    code = [i for i in function.body if isinstance(i, Instruction)]
    read = {o.name.partition(".")[0] for i in code for o in i.operands if isinstance(o, Special)}
    loaded = {o.index for i in code if i.name.startswith("ld.param") for o in i.operands[:1] if isinstance(o, Register)}
    taken = {
        o.index for i in code if i.name.startswith("cvta.to.global") for o in i.operands[1:] if isinstance(o, Register)
    }
    pointers = not loaded.isdisjoint(taken) or any(p.pointer for p in function.params)
    return "ctaid" in read or ("tid" in read and pointers)


RULE = Rule(
    "missing-entry", "medium", "certain",
    "A text defines neither an entry nor a function, or has no entry and a function that nothing calls and that reads "
    "the index of its block, as only kernels do.",
    "There is nothing in it to launch or to link.",
    "Print the kernel, or look at why its generator printed only the head.",
    bad=".version 8.0\n.target sm_80\n.address_size 64\n.global .align 4 .b8 table[4];\n",
    good=".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
    check=check, whole=check_whole,
)  # fmt: skip
