"""What in a function's own code shows that it works with PTX.

A text is PTX if it has a directive or an instruction of PTX in it.  What is done with a text decides its role: one that
is compared, searched for or a pattern is what a reader of PTX knows; every other one is written.  Docstrings, comments
and the messages of errors are not evidence.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

EMIT, LOAD, ANALYZE, CONSUME = ROLES = ("emit", "load", "analyze", "consume")

_DIRECTIVE = r"""(?<!\w)(?:\.version\s+[\d{] | \.target\s+(?:sm_|\{) | \.address_size\s+[\d{] | \.entry\s+[\w{$%]
    | \.func\s+[\w({] | \.reg\s*\.[a-z{] | \.param\s*\.[a-z{] | \.shared\s+\.(?:align|[bfsu]\d) | \.branchtargets\b
    | \.(?:req|max)ntid\b)"""
_OPCODE = (
    "ld|st|ldu|mov|cvta?|setp|set|selp|slct|fma|mad|add|sub|mul|div|rem|rcp|sqrt|rsqrt|sin|cos|ex2|lg2|tanh|min|max|abs"
    "|neg|and|or|xor|not|shl|shr|shf|prmt|bfe|bfi|bfind|lop3|popc|clz|brev|dp[24]a|shfl|vote|match|redux|activemask|bar"
    "|barrier|membar|fence|atom|red|cp|ldmatrix|stmatrix|mma|wgmma|mbarrier|bra|brx|prefetch|isspacep|mapa|createpolicy"
    "|elect|griddepcontrol|setmaxnreg|testp|copysign"
)
_MODIFIER = (
    r"[bfsu](?:8|16|32|64|128)|bf16(?:x2)?|f16x2|pred|sync|async|param|global|shared|local|const|to|lo|hi|wide|rn|rz|rm|rp"
    r"|approx|arrive|wait|init|aligned|uni|idx|warp|cta|gl|sys|proxy|acq_rel|sc|volatile|relaxed|acquire|release|nc"
    r"|launch_dependents|try_wait|test_wait|inval|expect_tx|\{\}"
)
INSTRUCTION = re.compile(
    rf"(?:^|[\n;])[ \t]*(?:@!?[%{{][\w{{}}]*[ \t]+|\{{\}})?(?:{_OPCODE})(?:\.[\w:{{}}]+)*?\.(?:{_MODIFIER})"
    r"(?:\.[\w:{}]+)*"
    r"(?=[ \t]*(?:;|$)|[ \t]+(?:[%\[{_!$\d\-]|\w+;))",
    re.M,
)
DIRECTIVE = re.compile(_DIRECTIVE, re.X)
WORD = re.compile(
    r"\.(?:version|target|address_size|entry|func|reg|visible|extern|weak|reqntid|maxntid|branchtargets|callprototype"
    r"|reqnctapercluster|maxnreg|minnctapersm|pragma|loc)"
)
"""A directive alone, which means PTX where it is compared."""
PATTERN = re.compile(
    r"\\\.(?:version|target|entry|func|reg|param|shared|visible|extern|global|local|reqntid|maxntid|align)\b"
)
"""A directive in a regular expression."""

LOADERS = re.compile(
    r"(?:cu|hip)(?:ModuleLoad(?:Data|DataEx|FatBinary)?|LibraryLoad(?:Data|FromFile)|LinkAdd(?:Data|File))(?:_v2)?"
    r"|nvJitLinkAdd(?:Data|File)|RawModule|from_ptx|module_from_(?:buffer|file)|add_ptr_data"
)
COMPILERS = re.compile(r"nvrtcGetPTX|compile_ptx(?:_for_current_device)?|inspect_asm|nvPTXCompilerGetCompiledProgram")
LAUNCHERS = re.compile(r"(?:cu|hip)(?:LaunchKernel(?:Ex|ExC)?|LaunchCooperativeKernel|GraphAddKernelNode)(?:_v2)?"
                       r"|hipModuleLaunchKernel")  # fmt: skip
SEARCHES = frozenset({
    "startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "rfind", "index", "count",
    "replace", "removeprefix", "removesuffix", "fullmatch", "match", "search", "findall", "finditer", "compile", "sub",
    "take", "expect", "skip_past",
})  # fmt: skip
COMMANDS = {"ptxas": ANALYZE, "nvcc": EMIT}
READS = frozenset({"open", "read_text", "read_bytes", "glob", "rglob"})
WRITES = frozenset({"write_text", "write_bytes"})
UNMISTAKABLE = frozenset({
    "ld", "st", "ldu", "cvta", "setp", "selp", "slct", "mad", "shfl", "prmt", "bfe", "bfi", "bfind", "lop3", "ldmatrix",
    "stmatrix", "mbarrier", "membar", "wgmma", "mma", "atom", "brx", "bra", "createpolicy", "isspacep", "mapa",
    "griddepcontrol", "setmaxnreg", "dp4a", "ex2", "lg2", "rcp", "cp", "clz", "brev", "popc",
})  # fmt: skip
"""Opcodes that are hardly words of anything else."""
MESSAGES = frozenset({"help", "epilog", "description", "reason", "match"})
"""Names of arguments that are for people."""
LONGEST = 60


class Evidence(NamedTuple):
    """role: what it shows.  line: where.  what: a sentence."""

    role: str
    line: int
    what: str


class Own(ast.NodeVisitor):
    """Walks a function's own code, without the functions and classes in it, and collects evidence."""

    def __init__(self) -> None:
        self.found: list[Evidence] = []
        self.stack: list[ast.AST] = []
        self.calls: set[str] = set()
        self.files: list[tuple[int, str]] = []
        self.inside = False

    def of(self, node: ast.AST, body: list[ast.stmt]) -> list[Evidence]:
        """The evidence of a function or module; a decorator's belongs to the function below it."""
        self.inside = not isinstance(node, ast.Module)
        for decorator in getattr(node, "decorator_list", []):
            for text, line in _texts(decorator):
                if _opcode_form(text):
                    self.add(ANALYZE, line, f"is registered for {_short(text)}")
        for statement in body[1:] if _documented(body) else body:
            self.visit(statement)
        for line, name in self.files:
            if self.calls & WRITES:
                self.add(EMIT, line, f"writes {name}")
            elif self.calls & READS:
                self.add(LOAD, line, f"reads {name}")
        return sorted(set(self.found), key=lambda one: (one.line, one.role, one.what))

    def add(self, role: str, line: int, what: str) -> None:
        self.found.append(Evidence(role, line, what))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Raise):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring of a variable
        if isinstance(node, ast.keyword) and node.arg in MESSAGES:
            return
        self.stack.append(node)
        if isinstance(node, ast.Call):
            self.named(_last(node.func), node.lineno)
            self.calls.add(_last(node.func))
        if isinstance(node, ast.Constant | ast.JoinedStr) and (text := _text(node)) is not None:
            self.text(text, node.lineno)
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    self.visit(part.value)
        else:
            self.generic_visit(node)
        self.stack.pop()

    def named(self, name: str, line: int) -> None:
        """A function of a driver or a compiler, called by its name or by a text that holds it."""
        for role, names, verb in (
            (LOAD, LOADERS, "calls"), (EMIT, COMPILERS, "calls"), (CONSUME, LAUNCHERS, "launches with"),
        ):  # fmt: skip
            if names.fullmatch(name):
                self.add(role, line, f"{verb} {name}")

    def text(self, text: str, line: int) -> None:
        parents = self.stack[:-1]
        call = next((p for p in reversed(parents) if isinstance(p, ast.Call)), None)
        if call is not None and any(p is call for p in parents[-2:]):
            self.named(text, line)
        if text.endswith(".ptx"):
            self.files.append((line, _short(text)))
        searched = self.searched(parents)
        if text in COMMANDS and not searched and any(isinstance(p, ast.Call | ast.List) for p in parents):
            self.add(COMMANDS[text], line, f"runs {text}")
        if PATTERN.search(text):
            self.add(ANALYZE, line, f"matches {_short(text)}")
        elif searched and (WORD.fullmatch(text) or _is_ptx(text)):
            self.add(ANALYZE, line, f"looks for {_short(text)}")
        elif _is_ptx(text) and not WORD.fullmatch(text) and (" " in text.strip() or self.passed(parents)):
            self.add(EMIT, line, f"writes {_short(text)}")

    def passed(self, parents: list[ast.AST]) -> bool:
        """Whether the name of an instruction alone is an argument or a result in a function: a table has names, too."""
        return self.inside and any(isinstance(p, ast.Call | ast.Return | ast.Yield) for p in parents)

    def searched(self, parents: list[ast.AST]) -> bool:
        """Whether a text is compared with another, or is an argument of a method that searches."""
        inner: ast.AST = self.stack[-1]
        for parent in reversed(parents):
            if isinstance(parent, ast.Compare | ast.MatchValue):
                return True
            if isinstance(parent, ast.Call):
                return inner is not parent.func and _last(parent.func) in SEARCHES
            if isinstance(parent, ast.stmt):
                return False
            inner = parent
        return False


def _is_ptx(text: str) -> bool:
    return DIRECTIVE.search(text) is not None or INSTRUCTION.search(text) is not None


def _documented(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _last(function: ast.expr) -> str:
    """`c` of `a.b.c(…)`."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(node: ast.AST) -> str | None:
    """A string, `{}` in place of each value that is put in; None for what is not a text."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join((_text(part) or "") if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def _texts(node: ast.AST) -> Iterator[tuple[str, int]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value, part.lineno


def _opcode_form(text: str) -> bool:
    """Whether a decorator's text names an opcode, as `@opcode("ld")` does; `add` is other things as well."""
    return len(text) < 200 and any(word in UNMISTAKABLE for word in text.split())


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…")
