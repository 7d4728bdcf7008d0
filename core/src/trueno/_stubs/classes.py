"""Classes as the stubs write them, from their source: signatures and first lines of docstrings.

Stubs replace a module for type checkers, so a class whose ops are created at first use needs one.  What the source
annotates is taken over; `refined` has the few signatures that Python's syntax in the source cannot say.
"""

import ast
import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

HIDDEN = ("__getattr__", "__dir__", "__getstate__", "__setstate__", "__reduce__", "__slots__", "__bool__")


def members(tree: ast.Module, name: str, refined: Mapping[str, str] | None = None, private: bool = False) -> str:
    """The members of a class, as the body of its stub; refined: other text for some of them, by name."""
    refined = refined or {}
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    parts: list[str] = []
    for node in found.body:
        names = _names(node)
        if not names or any(
            n in HIDDEN or (n.startswith("_") and not n.startswith("__") and not private) for n in names
        ):
            continue
        if names[0] in refined:
            parts.append(refined[names[0]])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts.append(_indented(function(node)))
        elif isinstance(node, ast.AnnAssign):
            parts.append(_indented(f"{names[0]}: {ast.unparse(_bare(node.annotation))}"))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            parts += [f"    {n} = {node.value.id}\n" for n in names]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            kind = "None" if node.value.value is None else type(node.value.value).__name__
            parts += [f"    {n}: ClassVar[{kind}]  # type: ignore[assignment,unused-ignore]\n" for n in names]
    return "".join(parts)


def assigned(tree: ast.Module, name: str) -> dict[str, ast.expr]:
    """The expressions that a class assigns in its body, by name, also those of `a, b = x, y`."""
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    values: dict[str, ast.expr] = {}
    for node in found.body:
        if isinstance(node, ast.Assign):
            several = isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
            given = node.value.elts if several and isinstance(node.value, ast.Tuple) else [node.value]
            values |= dict(zip(_names(node), given, strict=False))
    return values


def joined(base: ast.Module, one: str, tree: ast.Module, other: str) -> ast.Module:
    """A module with a class that has the members of its base, a class of another module, and no base."""
    (first,), (second,) = (
        [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name]
        for module, name in ((base, one), (tree, other))
    )
    own = {name for node in second.body for name in _names(node)}
    second.body += [node for node in first.body if not own & {*_names(node)}]
    second.bases = []
    return ast.Module([*(node for node in base.body if isinstance(node, ast.Import | ast.ImportFrom)), *tree.body], [])


def heading(tree: ast.Module, name: str, bases: Iterable[str] | None = None) -> str:
    """The line `class NAME(BASES):` and the first line of its docstring."""
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    listed = [ast.unparse(base) for base in found.bases] if bases is None else list(bases)
    doc = (ast.get_docstring(found) or "").partition("\n")[0]
    shown = f"({', '.join(listed)})" if listed else ""
    return f"class {name}{shown}:\n" + (f'    """{doc}"""\n\n' if doc else "")


def function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A function without its body."""
    node = copy.deepcopy(node)
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = _bare(argument.annotation)
    node.args.defaults = [_default(value) for value in node.args.defaults]
    node.args.kw_defaults = [value and _default(value) for value in node.args.kw_defaults]
    if node.returns is not None:
        node.returns = _bare(node.returns)
    doc = ast.get_docstring(node)
    node.body = [ast.Expr(ast.Constant(doc.partition("\n")[0] if doc else ...))]
    text = ast.unparse(node)
    return text if doc else text.replace(":\n    ...", ": ...")


def imports(trees: Iterable[ast.Module], text: str) -> str:
    """The imports of modules, as far as the text of a stub uses them; where two bind a name, the later one does."""
    body = ast.parse(text)
    defined = {node.name for node in body.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    used = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)} - defined
    bound: dict[str, tuple[str, str]] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = alias.asname or alias.name
                if name.partition(".")[0] in used or alias.asname == alias.name:
                    bound[name] = (module, ast.unparse(alias))
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module, name in sorted(bound.values()):
        homes[module].append(name)
    plain = [f"import {name}\n" for name in homes.pop("", [])]
    return "".join([*plain, *(f"from {module} import {', '.join(names)}\n" for module, names in homes.items())])


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text("utf-8"))


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    flat = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [t.id for t in flat if isinstance(t, ast.Name)]


def _bare(annotation: ast.expr) -> ast.expr:
    """An annotation without the quotes that its source needs."""
    quoted = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
    return ast.parse(annotation.value, mode="eval").body if quoted else annotation  # type: ignore[attr-defined]


def _default(value: ast.expr) -> ast.expr:
    return value if isinstance(value, ast.Constant) else ast.Constant(...)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
