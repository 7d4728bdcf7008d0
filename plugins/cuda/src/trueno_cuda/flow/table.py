"""The functions, classes and names of a code base: what each name in a file means."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trueno_cuda.flow.evidence import Evidence, Own
from trueno_cuda.flow.files import SourceFile

TOP = "<module>"
DEEPEST = 12
"""Names that are imported from each other, and base classes, one after the other."""
Body = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Function:
    """A function, a method, or the code of a module outside of them.  owner: its class.  inner: functions in it."""

    id: str
    module: str
    name: str
    path: str
    line: int
    node: ast.AST
    body: list[ast.stmt]
    owner: "Class | None" = None
    outer: "Function | None" = None
    inner: "dict[str, Function]" = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(eq=False)
class Class:
    """methods: its own.  bases: as written.  attributes: the annotations and constructors of `self.x`."""

    module: str
    name: str
    node: ast.ClassDef
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, ast.expr] = field(default_factory=dict)


Meaning = Function | Class | str
"""Of a name: a function, a class, or the dotted name of a module."""


class Table:
    """All of a code base.  methods: those of all classes, by name."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.files = {file.module: file for file in files}
        self.functions: dict[str, Function] = {}
        self.names: dict[str, dict[str, Meaning | tuple[str, str]]] = {}
        self.methods: dict[str, list[Function]] = defaultdict(list)
        self.imported: dict[str, set[str]] = defaultdict(set)
        self._ends: dict[str, list[str]] = defaultdict(list)
        for module in self.files:
            self._ends[module.rpartition(".")[2]].append(module)
        for file in self.files.values():
            self._file(file)

    # ---- filling --------------------------------------------------------------------------------------

    def _file(self, file: SourceFile) -> None:
        names = self.names[file.module] = {}
        top = self._function(file, TOP, file.tree, file.tree.body, 1)
        for node in _statements(file.tree.body):
            if isinstance(node, Body):
                names[node.name] = self._nested(file, node.name, node, None, top)
                top.inner[node.name] = self.functions[f"{file.module}:{node.name}"]
            elif isinstance(node, ast.ClassDef):
                names[node.name] = self._class(file, node.name, node, top)
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name, meaning in self._imports(file, node):
                    names.setdefault(name, meaning)

    def _function(self, file: SourceFile, name: str, node: ast.AST, body: list[ast.stmt], line: int) -> Function:
        function = Function(f"{file.module}:{name}", file.module, name, file.path, line, node, body)
        function.evidence = Own().of(node, body)
        self.functions[function.id] = function  # of two with one name, as overloads, the last
        return function

    def _nested(self, file: SourceFile, name: str, node: Body, owner: Class | None, outer: Function | None) -> Function:
        function = self._function(file, name, node, node.body, node.lineno)
        function.owner, function.outer = owner, outer
        for inner in _statements(node.body):
            if isinstance(inner, Body):
                function.inner[inner.name] = self._nested(file, f"{name}.{inner.name}", inner, owner, function)
            elif isinstance(inner, ast.ClassDef):
                self._class(file, f"{name}.{inner.name}", inner, function)
        return function

    def _class(self, file: SourceFile, name: str, node: ast.ClassDef, outer: Function) -> Class:
        made = Class(file.module, name, node)
        for item in _statements(node.body):
            if isinstance(item, Body):
                method = self._nested(file, f"{name}.{item.name}", item, made, outer)
                made.methods[item.name] = method
                self.methods[item.name].append(method)
                for part in ast.walk(item):
                    _attribute(part, made.attributes)
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                made.attributes.setdefault(item.target.id, item.annotation)
        return made

    def _imports(
        self, file: SourceFile, node: ast.Import | ast.ImportFrom
    ) -> Iterator[tuple[str, str | tuple[str, str]]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._note(file, alias.name)
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
            return
        base = node.module or ""
        if node.level:
            package = file.module.split(".") if file.package else file.module.split(".")[:-1]
            above = package[: len(package) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
            self._note(file, base)
            self._note(file, f"{base}.{alias.name}")
            yield alias.asname or alias.name, (base, alias.name)

    def _note(self, file: SourceFile, module: str) -> None:
        if (known := self.module(module)) is not None:
            self.imported[file.module].add(known)

    # ---- meanings -------------------------------------------------------------------------------------

    def module(self, name: str) -> str | None:
        """A module of the code base by the name that it is imported by, or by the end of that, if only one has it."""
        if name in self.files:
            return name
        ends = [m for m in self._ends.get(name.rpartition(".")[2], []) if m.endswith(f".{name}")]
        return ends[0] if len(ends) == 1 else None

    def lookup(self, module: str, name: str, depth: int = 0) -> Meaning | None:
        """What a name at the top of a module means; names that are imported from elsewhere are followed."""
        meaning = self.names.get(module, {}).get(name)
        if isinstance(meaning, tuple):
            base, original = meaning
            known = self.module(base)
            if known is not None and depth < DEEPEST and (there := self.lookup(known, original, depth + 1)) is not None:
                return there
            return self.module(f"{base}.{original}") or f"{base}.{original}"
        if meaning is None and self.module(f"{module}.{name}"):
            return self.module(f"{module}.{name}")
        return meaning

    def expression(self, module: str, node: ast.expr) -> Meaning | None:
        """What a name or a dotted name means."""
        if isinstance(node, ast.Name):
            return self.lookup(module, node.id)
        if isinstance(node, ast.Attribute):
            value = self.expression(module, node.value)
            if isinstance(value, str):
                known = self.module(value)
                return self.lookup(known, node.attr) if known else f"{value}.{node.attr}"
            return self.method(value, node.attr) if isinstance(value, Class) else None
        return None

    def klass(self, module: str, node: ast.expr | None, depth: int = 0) -> Class | None:
        """The class that an annotation names: `C`, `"C"`, `C | None`, `Optional[C]`; of a call, that of the result."""
        if node is None or depth > DEEPEST:
            return None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.klass(module, ast.parse(node.value, mode="eval").body, depth + 1)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        if isinstance(node, ast.BinOp):
            return self.klass(module, node.left, depth + 1) or self.klass(module, node.right, depth + 1)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Optional":
            return self.klass(module, node.slice, depth + 1)
        if isinstance(node, ast.Call):
            meaning = self.expression(module, node.func)
            if isinstance(meaning, Function) and isinstance(meaning.node, Body):
                return self.klass(meaning.module, meaning.node.returns, depth + 1)
        else:
            meaning = self.expression(module, node)
        return meaning if isinstance(meaning, Class) else None

    def bases(self, one: Class, depth: int = 0) -> Iterator[Class]:
        """A class and those that it inherits from."""
        yield one
        for base in one.node.bases if depth < DEEPEST else ():
            meaning = self.expression(one.module, base)
            if isinstance(meaning, Class) and meaning is not one:
                yield from self.bases(meaning, depth + 1)

    def method(self, one: Class, name: str) -> Function | None:
        return next((base.methods[name] for base in self.bases(one) if name in base.methods), None)

    def attribute(self, one: Class, name: str) -> Class | None:
        """The class of `self.name`."""
        for base in self.bases(one):
            if name in base.attributes:
                return self.klass(base.module, base.attributes[name])
            if name in base.methods and isinstance(base.methods[name].node, Body):  # a property
                return self.klass(base.module, base.methods[name].node.returns)  # type: ignore[attr-defined]
        return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a block, and of the blocks in its `if`, `try`, `with`, loops; not of functions and classes."""
    stack = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
            cases = [
                part for part in ast.iter_child_nodes(node) if isinstance(part, ast.ExceptHandler | ast.match_case)
            ]
            stack += reversed([*inner, *(statement for case in cases for statement in case.body)])


def _attribute(node: ast.AST, attributes: dict[str, ast.expr]) -> None:
    """Note `self.x: C` and `self.x = C(…)`."""
    target = node.target if isinstance(node, ast.AnnAssign) else None
    value: ast.expr | None = node.annotation if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    if own and isinstance(value, ast.Call | ast.Name | ast.Attribute | ast.Constant | ast.BinOp):
        attributes.setdefault(target.attr, value)  # type: ignore[union-attr]
