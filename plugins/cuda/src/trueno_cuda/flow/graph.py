"""Which function calls which, and what each does with PTX.

A function emits, loads or analyzes if its own code shows it (`evidence`), or if it works with an object of a class that
does.  It consumes if it calls such a function, at any distance.
"""

import ast
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from trueno_cuda.flow.evidence import ANALYZE, CONSUME, EMIT, LOAD, ROLES, Evidence
from trueno_cuda.flow.files import Note, SourceFile
from trueno_cuda.flow.table import TOP, Body, Class, Function, Meaning, Table

COMMON = frozenset(name for kind in (str, bytes, list, dict, set, int, float, tuple) for name in dir(kind))
"""Methods of Python's own types, which say nothing about an object."""

DOES = {EMIT: "emits", LOAD: "loads", ANALYZE: "analyzes", CONSUME: "launches"}


class Call(NamedTuple):
    """kind: "call", "refer" (a function that is passed on), "define", or "name": the only method of that name."""

    caller: str
    callee: str
    line: int
    kind: str


@dataclass
class Node:
    """A function that has to do with PTX.  roles: in the order of ROLES.  distance: of a consumer, to what it calls."""

    id: str
    module: str
    name: str
    path: str
    line: int
    roles: list[str]
    evidence: list[Evidence]
    distance: int = 0


@dataclass
class Flow:
    """nodes: by id.  calls: among them.  files, functions: how many were read.  notes: what could not be."""

    nodes: dict[str, Node]
    calls: list[Call]
    files: int
    functions: int
    notes: list[Note] = field(default_factory=list)

    def within(self, steps: int) -> "Flow":
        """Without consumers that are further away."""
        nodes = {key: node for key, node in self.nodes.items() if node.distance <= steps}
        calls = [call for call in self.calls if call.caller in nodes and call.callee in nodes]
        return Flow(nodes, calls, self.files, self.functions, self.notes)

    def modules(self) -> dict[str, dict[str, int]]:
        """By module, how many functions have each role."""
        found: dict[str, dict[str, int]] = {}
        for node in self.nodes.values():
            counts = found.setdefault(node.module, dict.fromkeys(ROLES, 0))
            for role in node.roles:
                counts[role] += 1
        return dict(sorted(found.items()))


def flow(files: list[SourceFile], notes: list[Note]) -> Flow:
    """The graph of a code base."""
    table = Table(files)
    calls: dict[tuple[str, str], Call] = {}
    readers: dict[str, _Reader] = {}
    for function in table.functions.values():  # the outer ones first
        outer = None if function.outer is None else readers.get(function.outer.id)
        reader = readers[function.id] = _Reader(table, function, outer)
        for call in reader.calls():
            if call.callee != call.caller:
                calls.setdefault((call.caller, call.callee), call)
    evidence = _working(table, readers)
    roles = {key: {one.role for one in found} for key, found in evidence.items()}
    distances, reasons = _consumers(roles, list(calls.values()), table)
    for key, reason in reasons.items():
        evidence[key].append(reason)
    nodes = {}
    for key, function in table.functions.items():
        found = [r for r in ROLES if r in roles[key] or (r == CONSUME and key in distances)]
        if found:
            nodes[key] = Node(key, function.module, function.name, function.path, function.line, found, evidence[key],
                             0 if roles[key] else distances[key])  # fmt: skip
    kept = [call for call in calls.values() if call.caller in nodes and call.callee in nodes]
    return Flow(nodes, kept, len(files), len(table.functions) - len(files), notes)


def _working(table: Table, readers: "dict[str, _Reader]") -> dict[str, list[Evidence]]:
    """The evidence of each function: its own code's, and that of what it works with.

    1. A class emits or analyzes if the own code of a method does.  A function that works with an object of it does so,
       too, and so does one that a decorator makes such an object of.
    2. So do the other methods of a class of which one method works like that: a printer.  Functions that use a printer
       from outside do not.
    3. And a function that is passed to one that emits: it writes the kernel's body.
    """
    evidence = {key: list(function.evidence) for key, function in table.functions.items()}

    def classes() -> dict[Class, set[str]]:
        found: dict[Class, set[str]] = defaultdict(set)
        for key, function in table.functions.items():
            if function.owner is not None:
                found[function.owner] |= {one.role for one in evidence[key]} & {EMIT, ANALYZE}
        return found

    def inherit(key: str, one: Class, known: dict[Class, set[str]], roles: frozenset[str], words: str) -> None:
        for base in table.bases(one):
            for role in sorted(known.get(base, set()) & roles - {e.role for e in evidence[key]}):
                evidence[key].append(Evidence(role, table.functions[key].line, f"{words} {base.name}"))

    own = classes()
    for key, reader in readers.items():
        for one in sorted(reader.touched, key=lambda c: (c.module, c.name)):
            inherit(key, one, own, frozenset({EMIT, ANALYZE}), "works with")
        for one in reader.decorators():
            inherit(key, one, own, frozenset({EMIT}), "becomes")
    printers = classes()
    for key, reader in readers.items():
        owner = table.functions[key].owner
        if owner is not None and owner in reader.touched:
            inherit(key, owner, printers, frozenset({EMIT}), "is a method of")
    for reader in readers.values():
        for callee, passed in reader.passed:
            writes = any(one.role == EMIT for one in evidence.get(callee, ()))
            if writes and not any(one.role == EMIT for one in evidence[passed]):
                name = table.functions[callee].name
                evidence[passed].append(
                    Evidence(EMIT, table.functions[passed].line, f"is passed to {name}, which emits")
                )
    return evidence


def _consumers(
    roles: dict[str, set[str]], calls: list[Call], table: Table
) -> tuple[dict[str, int], dict[str, Evidence]]:
    """The distance of each caller without a role of its own to the nearest function that has one, and the way there."""
    callers: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.kind != "define":
            callers[call.callee].append(call)
    distances = {key: 0 for key, own in roles.items() if own}
    goals = {key: key for key in distances}
    reasons: dict[str, Evidence] = {}
    queue = deque(distances)
    while queue:
        key = queue.popleft()
        for call in callers[key]:
            if call.caller in distances:
                continue
            distances[call.caller] = distances[key] + 1
            goal = goals[call.caller] = goals[key]
            does = " and ".join(DOES[role] for role in ROLES if role in roles[goal])
            words = f"{'passes on' if call.kind == 'refer' else 'calls'} {table.functions[key].name}, which "
            words += does if goal == key else f"leads to {table.functions[goal].name}, which {does}"
            reasons[call.caller] = Evidence(CONSUME, call.line, words)
            queue.append(call.caller)
    return {key: distance for key, distance in distances.items() if distance}, reasons


class _Reader:
    """Reads one function's own code: its calls, and the classes whose objects it works with."""

    def __init__(self, table: Table, function: Function, outer: "_Reader | None") -> None:
        self.table, self.function = table, function
        self.touched: set[Class] = set()
        self.passed: list[tuple[str, str]] = []  # what is called, and a function that it gets
        self.nodes = list(_own(function))
        self.bound = set(self._bound()) if function.name != TOP else set()
        outside = {} if outer is None else outer.local
        self.local = {name: one for name, one in outside.items() if name not in self.bound} | dict(self._typed())

    def _bound(self) -> Iterator[str]:
        """The names that are the function's own."""
        yield from (node.id for node in self.nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
        if isinstance(self.function.node, Body):
            arguments = self.function.node.args
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
            yield from (one.arg for one in every if one is not None)

    def _typed(self) -> Iterator[tuple[str, Class]]:
        """Parameters with an annotation, `self`, and names that are assigned an object, each with its class."""
        function = self.function
        if isinstance(function.node, Body):
            arguments = function.node.args
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if (known := self.table.klass(function.module, one.annotation)) is not None:
                    yield one.arg, known
            first = [*arguments.posonlyargs, *arguments.args][:1]
            if function.owner is not None and first and first[0].arg in ("self", "cls"):
                yield first[0].arg, function.owner
        for node in self.nodes:
            target: ast.AST | None = None
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
            elif isinstance(node, ast.withitem):
                target, value = node.optional_vars, node.context_expr
            if isinstance(target, ast.Name) and isinstance(value, ast.Call):
                known = self.table.klass(function.module, value)
                if known is not None:
                    yield target.id, known

    def decorators(self) -> set[Class]:
        """Classes that the function's decorators make objects of."""
        found: set[Class] = set()
        for decorator in getattr(self.function.node, "decorator_list", []):
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            meaning = self.table.expression(self.function.module, call)
            if isinstance(meaning, Class):
                found.add(meaning)
            elif isinstance(meaning, Function) and isinstance(meaning.node, Body):
                for node in ast.walk(meaning.node):
                    if isinstance(node, ast.Call):
                        made = self.table.expression(meaning.module, node.func)
                        found |= {made} if isinstance(made, Class) else set()
        return found

    def calls(self) -> Iterator[Call]:
        """Calls, functions that are passed on, and functions that are defined inside."""
        called: set[int] = set()
        for node in self.nodes:
            if isinstance(node, ast.Call):
                called.add(id(node.func))
                yield from self._call(node)
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in called:
                meaning = self._meaning(node)
                if isinstance(meaning, Function):
                    yield Call(self.function.id, meaning.id, node.lineno, "refer")
        if self.function.outer is not None and self.function.outer.name != TOP:
            yield Call(self.function.outer.id, self.function.id, self.function.line, "define")

    def _call(self, node: ast.Call) -> Iterator[Call]:
        meaning = self._meaning(node.func)
        if isinstance(meaning, Class):
            self.touched.add(meaning)
            for name in ("__init__", "__post_init__", "__new__"):
                if (method := self.table.method(meaning, name)) is not None:
                    yield Call(self.function.id, method.id, node.lineno, "call")
            for method in meaning.methods.values():
                self._pass(method, node)
        elif isinstance(meaning, Function):
            if isinstance(node.func, ast.Attribute) and (owner := self._class(node.func.value)) is not None:
                self.touched.add(owner)
            self._pass(meaning, node)
            yield Call(self.function.id, meaning.id, node.lineno, "call")
        elif isinstance(node.func, ast.Attribute) and (method := self._only(node.func.attr)) is not None:
            if method.owner is not None:
                self.touched.add(method.owner)
            yield Call(self.function.id, method.id, node.lineno, "name")

    def _pass(self, callee: Function, node: ast.Call) -> None:
        """Note the functions among a call's arguments."""
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.Name | ast.Attribute):
                meaning = self._meaning(argument)
                if isinstance(meaning, Function) and not _is_property(meaning):
                    self.passed.append((callee.id, meaning.id))

    def _only(self, name: str) -> Function | None:
        """The one method of that name in the modules that this one imports, and in itself."""
        if name in COMMON or name.startswith("__"):
            return None
        near = self.table.imported[self.function.module] | {self.function.module}
        found = [m for m in self.table.methods[name] if m.module in near]
        return found[0] if len(found) == 1 else None

    def _meaning(self, node: ast.expr) -> Meaning | None:
        if isinstance(node, ast.Name):
            function: Function | None = self.function
            while function is not None:
                if node.id in function.inner:
                    return function.inner[node.id]
                if function is self.function and (node.id in self.local or node.id in self.bound):
                    return None
                function = function.outer
            return None if node.id in self.local else self.table.lookup(self.function.module, node.id)
        if isinstance(node, ast.Attribute):
            owner = self._class(node.value)
            if owner is not None:
                return self.table.method(owner, node.attr)
            return self.table.expression(self.function.module, node)
        return None

    def _class(self, node: ast.expr, depth: int = 0) -> Class | None:
        """The class of the object that an expression gives."""
        if isinstance(node, ast.Name) and node.id in self.local:
            return self.local[node.id]
        if isinstance(node, ast.Attribute) and depth < 6:
            owner = self._class(node.value, depth + 1)
            return self.table.attribute(owner, node.attr) if owner is not None else None
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super" and self.function.owner is not None:
                return next((b for b in self.table.bases(self.function.owner) if b is not self.function.owner), None)
            return self.table.klass(self.function.module, node)
        return None


def _is_property(function: Function) -> bool:
    """Whether naming the method calls it."""
    names = (getattr(d, "attr", getattr(d, "id", "")) for d in getattr(function.node, "decorator_list", []))
    return any(name in ("property", "cached_property") for name in names)


def _own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's own code; of functions and classes in it their decorators alone."""
    stack: list[ast.AST] = list(reversed(function.body))
    stack += reversed(getattr(function.node, "decorator_list", []))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.ClassDef):
            stack += [*node.decorator_list, *(s for s in node.body if not isinstance(s, Body))]
            continue
        yield node
        stack += reversed(list(ast.iter_child_nodes(node)))
