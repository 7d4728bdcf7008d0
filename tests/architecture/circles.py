"""Which file imports which, read from the source alone, and the circles among them.

An arrow runs from a file to a file that it imports.  Every way of importing counts, because a reader has to follow each
of them: statements at module level, in a function and under TYPE_CHECKING, and the name of a module as a text, in a
file that calls `import_module` or looks into `sys.modules`.

- Importing `a.b.c` runs `a` and `a.b` first, so it counts as an import of all three.  A file below `a`, which runs
  after `a` anyway, imports `a` only if it asks `a` itself for something.
- A package with a `__getattr__` may keep a table of lazy names and their modules, as `trueno` does.  Such an arrow
  starts at the file that asks for the name: until then nothing is imported, so the table alone closes no circle.
- The name of a module that is put together at run time is not seen.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MODULE, FUNCTION, TYPES, TEXT = WAYS = ("", " in a function", " under TYPE_CHECKING", " by its name as text")


@dataclass(frozen=True)
class Arrow:
    """`source`, on this line of its file, imports `target`."""

    source: str
    target: str
    line: int
    way: str


class Graph:
    """The files below some folders, each of which holds packages, and the arrows between them: one for each pair."""

    def __init__(self, *roots: Path):
        self.paths = {_name(path, root): path for root in roots for path in sorted(root.rglob("*.py"))}
        readers = {name: _Reader(name, path, self.paths) for name, path in self.paths.items()}
        self._homes = {name: reader.homes for name, reader in readers.items()}
        arrows: dict[tuple[str, str], Arrow] = {}
        for name, reader in readers.items():
            for dotted, line, way in sorted(reader.wanted, key=lambda want: (WAYS.index(want[2]), want[1])):
                for target in self._run_by(dotted, name):
                    arrows.setdefault((name, target), Arrow(name, target, line, way))
        self.arrows = list(arrows.values())

    def _run_by(self, dotted: str, importer: str) -> Iterator[str]:
        """The files that a request for a dotted name runs, except the importer and packages that it is in."""
        parts = dotted.split(".")
        prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        packages = [prefix for prefix in prefixes if prefix in self.paths]
        if not packages:
            return
        *before, asked = packages
        yield from (package for package in before if not f"{importer}.".startswith(f"{package}."))
        if asked != importer:
            yield asked
        rest = parts[asked.count(".") + 1 :]
        if rest and (home := self._homes[asked].get(rest[0])):
            yield from self._run_by(f"{home}.{rest[0]}", importer)

    def knots(self) -> list[set[str]]:
        """Groups of files in which each reaches each other: the strongly connected components of more than one."""
        return [group for group in components(self.paths, self.arrows) if len(group) > 1]

    def where(self, arrow: Arrow) -> str:
        """Where an arrow starts, as editors and terminals read it."""
        return f"{self.paths[arrow.source]}:{arrow.line}"

    def sentence(self, knot: set[str]) -> str:
        """The arrow that closes a circle, and the way back from what it imports."""
        inside = [arrow for arrow in self.arrows if {arrow.source, arrow.target} <= knot]
        arrow = closing(inside)
        back = path(inside, arrow.target, arrow.source)
        steps = "".join(f"\n    {self.where(step)} imports {step.target}{step.way}" for step in back)
        return f"{self.where(arrow)} imports {arrow.target}{arrow.way}, which leads back:{steps}"


def components(nodes: Iterable[str], arrows: Iterable[Arrow]) -> list[set[str]]:
    """The strongly connected components of a graph, by Tarjan's algorithm without recursion."""
    following = _following(arrows)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    seen = []
    for root in nodes:
        work = [(root, iter([root]))] if root not in number else []
        while work:
            node, targets = work[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                waiting.add(node)
                targets = iter([arrow.target for arrow in following[node]])
                work[-1] = (node, targets)
            for target in targets:
                if target not in number:
                    work.append((target, iter([])))
                    break
                if target in waiting:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    at = stack.index(node)
                    seen.append(set(stack[at:]))
                    waiting -= seen[-1]
                    del stack[at:]
    return seen


def closing(arrows: list[Arrow]) -> Arrow:
    """The arrow of a knot that most likely should not be there.

    One without which no circle is left, if there is such a one; then the most hidden; then the one from the file that
    most others import to the file that the fewest do.
    """
    nodes = sorted({arrow.source for arrow in arrows})
    importers = {node: sum(arrow.target == node for arrow in arrows) for node in nodes}

    def rank(arrow: Arrow) -> tuple[bool, int, int, str, str]:
        rest = components(nodes, [other for other in arrows if other is not arrow])
        down = importers[arrow.target] - importers[arrow.source]
        return len(rest) < len(nodes), -WAYS.index(arrow.way), down, arrow.source, arrow.target

    return min(arrows, key=rank)


def path(arrows: Iterable[Arrow], start: str, end: str) -> list[Arrow]:
    """The fewest arrows from one file to another that it reaches."""
    following = _following(arrows)
    came: dict[str, Arrow | None] = {start: None}
    for node in (queue := [start]):
        for arrow in following[node]:
            if arrow.target not in came:
                came[arrow.target] = arrow
                queue.append(arrow.target)
    steps = []
    while arrow := came[end]:
        steps.append(arrow)
        end = arrow.source
    return steps[::-1]


def _following(arrows: Iterable[Arrow]) -> Mapping[str, list[Arrow]]:
    following = defaultdict(list)
    for arrow in arrows:
        following[arrow.source].append(arrow)
    return following


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Reader(ast.NodeVisitor):
    """Reads a file: the dotted names that it asks for, each with its line and way, and where its lazy names live."""

    def __init__(self, name: str, path: Path, modules: Mapping[str, Path]):
        self.modules = modules
        self.wanted: set[tuple[str, int, str]] = set()
        self.homes: dict[str, str] = {}
        self._package = name if path.stem == "__init__" else name.rpartition(".")[0]
        self._way = MODULE
        self._bound: dict[str, str] = {}  # what the file calls packages and modules, wherever it imports them
        tree = ast.parse(path.read_text("utf-8"), str(path))
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import):
                names = [(a.asname, a.name) if a.asname else (a.name.partition(".")[0],) * 2 for a in node.names]
                self._bound.update(names)
            elif isinstance(node, ast.ImportFrom):
                self._bound.update((a.asname or a.name, f"{self._base(node)}.{a.name}") for a in node.names)
        self._is_lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
        self._asked = {id(name) for node in nodes for name in _asked_by_text(node)}
        self.visit(tree)

    def _base(self, node: ast.ImportFrom) -> str:
        parts = self._package.split(".")[: 1 - node.level or None] if node.level else []
        return ".".join([*parts, *filter(None, [node.module])])

    def _want(self, dotted: str, node: ast.stmt | ast.expr, way: str = MODULE) -> None:
        self.wanted.add((dotted, node.lineno, max(way, self._way, key=WAYS.index)))

    def _under(self, way: str, nodes: Iterable[ast.AST]) -> None:
        before, self._way = self._way, max(way, self._way, key=WAYS.index)
        for node in nodes:
            self.visit(node)
        self._way = before

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._want(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._want(f"{self._base(node)}.{alias.name}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`trueno.gguf.read` after `import trueno` asks for as much as `from trueno.gguf import read`."""
        first, _, rest = _dotted(node).partition(".")
        if first in self._bound:
            self._want(f"{self._bound[first]}.{rest}", node)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._under(MODULE, [*node.decorator_list, node.args, *filter(None, [node.returns])])
        self._under(FUNCTION, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        types = _dotted(node.test).endswith("TYPE_CHECKING")
        self._under(TYPES if types else MODULE, node.body)
        self._under(MODULE, [node.test, *node.orelse])

    def visit_Dict(self, node: ast.Dict) -> None:
        values = {getattr(value, "value", None) for value in node.values}
        if self._is_lazy and values and values <= self.modules.keys():
            self.homes.update(ast.literal_eval(node))
        else:
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        # A package's bare name may be a distribution's or a logger's, except in the call itself.
        named = isinstance(node.value, str) and node.value in self.modules
        if named and (id(node) in self._asked or (self._asked and "." in str(node.value))):
            self._want(str(node.value), node, TEXT)


def _dotted(node: ast.AST) -> str:
    """`a.b.c` of attributes of a name; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := _dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def _asked_by_text(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a call of `import_module` or a look into `sys.modules`, of which one may be a module's name."""
    if isinstance(node, ast.Call):
        doors = [node.func]
    elif isinstance(node, ast.Subscript):
        doors = [node.value]
    else:
        doors = node.comparators if isinstance(node, ast.Compare) else []
    if any(re.search(r"\b(import_module|__import__|sys\.modules(\.\w+)?)$", _dotted(door)) for door in doors):
        yield from ast.iter_child_nodes(node)
