"""Errors that a kernel's Python source shows and running it cannot: statements that take effect at build time.

A GPU branch or loop is traced once, so Python runs its body once, whatever the condition: a `return` in it, or
a name that it rebinds, takes effect for every thread.  Only the kernel's own function is checked, not those that
it calls, and nothing is checked without source.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

BRANCHES = ("when", "otherwise", "loop")
READING = Lock()
"""Python 3.11 counts the depth of syntax trees for all threads together, and fails where two of them make one."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Use(NamedTuple):
    """A use of a name: read (`load`), rebound (`assign`), changed by `+=` (`change`), or bound otherwise (`other`)."""

    how: str
    name: str
    line: int
    number: bool = False  # bound to a Python number that the source spells out


@dataclass
class Body:
    """What `with k.when(c):` or `for i in k.range(n):` holds: uses from `start` to `end`.  what: its first words."""

    what: str
    start: int
    repeats: bool
    end: int = 0


@lru_cache(maxsize=1024)
def fault(function: Callable[..., None], calls: frozenset[str]) -> str:
    """The errors in the source of a kernel; empty if there are none.

    calls: names after `k.` that have a meaning only when they are called.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        with READING:
            tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return ""
    definition = next((n for n in tree.body if isinstance(n, ast.FunctionDef)), None)
    if definition is None or not definition.args.args:
        return ""
    ast.increment_lineno(tree, first - 1)
    k = definition.args.args[0].arg
    for message in (_exit(definition, k), _uncalled(definition, k, calls), _rebound(definition, k)):
        if message:
            return f"{function.__name__}, {message}"
    return ""


# ------------------------------------------------------------------------------------- leaving a branch


def _exit(tree: ast.AST, k: str) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(_branch(item, k) for item in node.items):
            for exit_ in _exits(node.body, in_loop=False):
                return (
                    f"line {exit_.lineno}: `{type(exit_).__name__.lower()}` in a `with k.` block runs while the kernel "
                    "is built, whatever the condition; branch around the rest, or leave a k.loop with leave_if"
                )
    return ""


def _branch(item: ast.withitem, k: str) -> str:
    """`when`, `otherwise` or `loop`; empty for another context."""
    name = _member(item.context_expr.func, k) if isinstance(item.context_expr, ast.Call) else ""
    return name if name in BRANCHES else ""


def _member(node: ast.AST, k: str) -> str:
    """NAME of `k.NAME`."""
    matches = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == k
    return node.attr if matches else ""  # type: ignore[attr-defined]


def _exits(body: Iterable[ast.AST], in_loop: bool) -> Iterator[ast.Return | ast.Break | ast.Continue]:
    """Statements that leave `body`; a Python loop of its own may be left."""
    for node in body:
        if isinstance(node, ast.Return) or (isinstance(node, (ast.Break, ast.Continue)) and not in_loop):
            yield node
        elif not isinstance(node, SCOPES):
            yield from _exits(ast.iter_child_nodes(node), in_loop or isinstance(node, (ast.For, ast.While)))


# ------------------------------------------------------------------------------------- a call without its brackets


def _uncalled(tree: ast.AST, k: str, calls: frozenset[str]) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and (name := _member(node.value, k)) in calls:
            return f"line {node.lineno}: `k.{name}` alone does nothing; call it: k.{name}(...)"
    return ""


# ------------------------------------------------------------------------------------- names that escape a branch


@dataclass
class Uses:
    """The uses of names in one function, in Python's order, and the bodies among them."""

    k: str
    made: list[Use] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)

    def visit(self, node: ast.AST | None, hidden: frozenset[str] = frozenset()) -> None:
        """hidden: names that are local to a comprehension."""
        match node:
            case None:
                return
            case ast.Name():
                if node.id not in hidden:
                    self.made.append(Use("load" if isinstance(node.ctx, ast.Load) else "other", node.id, node.lineno))
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                self.visit(node.value, hidden)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets if node.value is not None else ():
                    self._bind(target, hidden, _number(node.value))
            case ast.AugAssign():
                self.visit(node.value, hidden)
                if isinstance(node.target, ast.Name):
                    self.made.append(Use("change", node.target.id, node.lineno))
                else:
                    self.visit(node.target, hidden)
            case ast.For():
                self._for(node, hidden)
            case ast.With():
                for item in node.items:
                    self.visit(item.context_expr, hidden)
                    self.visit(item.optional_vars, hidden)
                branch = next((b for item in node.items if (b := _branch(item, self.k))), "")
                with_body = f"`with k.{branch}`" if branch else ""
                self._body(with_body, node.body, branch == "loop", hidden)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
                for child in ast.iter_child_nodes(node):
                    self.visit(child, hidden | own)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                own = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
                own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
                for n in ast.walk(node):
                    if isinstance(n, ast.Name) and n.id not in own | hidden:
                        self.made.append(Use("load", n.id, n.lineno))
            case _:
                for child in ast.iter_child_nodes(node):
                    self.visit(child, hidden)

    def _bind(self, target: ast.AST, hidden: frozenset[str], number: bool) -> None:
        if isinstance(target, ast.Name):
            self.made.append(Use("assign", target.id, target.lineno, number))
        elif isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            for child in [target.value] if isinstance(target, ast.Starred) else target.elts:
                self._bind(child, hidden, False)
        else:
            self.visit(target, hidden)

    def _for(self, node: ast.For, hidden: frozenset[str]) -> None:
        self.visit(node.iter, hidden)
        self.visit(node.target, hidden)
        on_gpu = isinstance(node.iter, ast.Call) and _member(node.iter.func, self.k) == "range"
        # An unrolled body runs several times while the kernel is built, and may well count its copies.
        unrolled = on_gpu and any(w.arg == "unroll" and not _off(w.value) for w in node.iter.keywords)  # type: ignore[attr-defined]
        self._body("`for … in k.range`" if on_gpu else "", node.body, not unrolled, hidden)
        for child in node.orelse:
            self.visit(child, hidden)

    def _body(self, what: str, statements: list[ast.stmt], repeats: bool, hidden: frozenset[str]) -> None:
        body = Body(what, len(self.made), repeats)
        for child in statements:
            self.visit(child, hidden)
        body.end = len(self.made)
        if what:
            self.bodies.append(body)


def _rebound(tree: ast.FunctionDef, k: str) -> str:
    """A name that a GPU branch or loop rebinds, and that is read where the old meaning may be intended.

    It is read after the branch, without another binding; or in a loop before it, so that the next iteration would
    need it.  `+=` counts only for names bound to Python numbers: for a Var it is correct.
    """
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        uses = Uses(k)
        arguments = function.args
        for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            uses.made.append(Use("other", a.arg, a.lineno))
        for statement in function.body:
            uses.visit(statement)
        for body in uses.bodies:
            if message := _escapes(uses.made, body):
                return message
    return ""


def _escapes(made: list[Use], body: Body) -> str:
    before: dict[str, list[Use]] = {}
    for use in made[: body.start]:
        if use.how in ("assign", "other"):
            before.setdefault(use.name, []).append(use)
    inside = made[body.start : body.end]
    for use in inside:
        earlier = before.get(use.name)
        if earlier is None or use.how not in ("assign", "change"):
            continue
        if use.how == "change" and not all(b.number for b in earlier):
            continue
        first = next(u for u in inside if u.name == use.name)
        after = next((u for u in made[body.end :] if u.name == use.name), None)
        if after is not None and after.how in ("load", "change"):
            where = f"line {after.line} reads it for every thread"
        elif body.repeats and body.what and first.how in ("load", "change"):
            where = "no later turn sees it"
        else:
            continue
        return (
            f"line {use.line}: `{use.name} {'=' if use.how == 'assign' else '+='} …` in {body.what} binds a Python "
            f"name while the kernel is built, whatever the condition, and {where}; declare {use.name} = "
            f"k.var(f32, 0.0) before it, and say {use.name}.set(...) or += inside"
        )
    return ""


def _number(node: Any) -> bool:
    """Whether an expression is a number as the source spells it, `-1.0` too."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _off(node: ast.AST) -> bool:
    """unroll=1 and unroll=False write the body once."""
    return isinstance(node, ast.Constant) and node.value in (1, False) and node.value is not True
