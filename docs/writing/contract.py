"""The page about the contract of a plugin, from the docstrings of `trueno.backend`."""

import ast
import inspect
import re
from itertools import pairwise

from docs.writing.markdown import table


def backend_page() -> str:
    """The contract of a plugin: the protocol with every word, and the names beside it."""
    from trueno import backend

    parts = [f"# Backend contract\n\n{inspect.getdoc(backend)}\n"]
    for name in (
        "Backend",
        "OptionalMethods",
        "DeviceBackend",
        "Kernel",
        "BindableKernel",
        "CompiledKernel",
        "Recording",
        "AwaitedBackend",
    ):
        parts.append(f"\n## {name}\n\n{inspect.getdoc(getattr(backend, name))}\n")
        parts += [f"\n**`{call}`**\n\n{doc}\n" for call, doc in members(name)]
    parts.append("\n## Records\n")
    for name in ("Call", "Probe", "Device", "Reject", "Rates", "Accuracy", "Refused"):
        record = getattr(backend, name)
        fields = inspect.signature(record) if hasattr(record, "__dataclass_fields__") else "(message)"
        fields = re.sub(r" = <factory>", "", re.sub(r"<factory>", "…", str(fields).removesuffix(" -> None")))
        parts.append(f"\n### {name}\n\n    {name}{_plain(fields)}\n\n{inspect.getdoc(record)}\n")
    for title, homes in backend.GROUPS.items():
        rows = [(f"`{name}`", _meaning(home, name)) for name, home in homes.items()]
        parts.append(f"\n## {title}\n\n{table(('name', 'what it is'), rows)}")
        classes = [name for name in homes if hasattr(getattr(backend, name), "__dataclass_fields__")]
        parts += [f"\n`{name}` has {_attributes(getattr(backend, name))}.\n" for name in classes]
        if "KernelTable" in homes:
            import trueno.backend.kernels as kernels

            fields = str(inspect.signature(backend.KernelTable)).removesuffix(" -> None")
            parts.append(
                f"\n{inspect.getdoc(kernels)}\n\n**`KernelTable{_plain(fields)}`**\n\n{inspect.getdoc(backend.KernelTable)}\n"
            )
            parts += [f"\n**`KERNELS.{call}`**\n\n{doc}\n" for call, doc in members("KernelTable")]
    return "".join(parts)


def members(name: str) -> list[tuple[str, str]]:
    """What a class of the protocol declares itself, as it is called or read, and what its docstring says."""
    from trueno import backend

    found = []
    for node in ast.parse(inspect.getsource(getattr(backend, name))).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef) and (node.name == "__call__" or not node.name.startswith("_")):
            rest = [f"*{node.args.vararg.arg}"] if node.args.vararg else []
            arguments = ", ".join([a.arg for a in node.args.args[1:]] + rest + [a.arg for a in node.args.kwonlyargs])
            call = arguments if node.name != "__call__" else "*operands, *scalars, *results"
            title = "kernel" if node.name == "__call__" else node.name
            found.append((f"{title}({call})", str(ast.get_docstring(node))))
    return sorted([*_documented(name), *found], key=lambda member: "(" in member[0])


def members_table() -> str:
    """The members of a backend in a sentence each, for the guide; the page has every word."""
    groups = {
        "Backend": "always",
        "DeviceBackend": "with arrays of its own",
        "OptionalMethods": "optional",
        "BindableKernel": "optional, of a kernel",
        "CompiledKernel": "optional, of a kernel",
    }
    rows = [(f"`{call}`", _sentence(doc), when) for name, when in groups.items() for call, doc in members(name)]
    return table(("member", "what it does", "needed"), rows).rstrip()


def _documented(name: str) -> list[tuple[str, str]]:
    """The attributes of a class of the protocol with the texts below them."""
    from trueno import backend

    return _texts(ast.parse(inspect.getsource(getattr(backend, name))).body[0].body)  # type: ignore[attr-defined]


def _texts(body: list[ast.stmt]) -> list[tuple[str, str]]:
    """Names that are assigned or annotated, with the text that follows each."""
    found = []
    for node, after in pairwise(body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found += [(t.id, inspect.cleandoc(str(after.value.value))) for t in targets if isinstance(t, ast.Name)]
    return found


def _meaning(home: str, name: str) -> str:
    """The first sentence about a name of the contract: its docstring, or the text below a constant."""
    from importlib import import_module

    module = import_module(home)
    value = inspect.unwrap(getattr(module, name, module))
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        return _sentence(str(inspect.getdoc(value)))
    while name not in (texts := dict(_texts(ast.parse(inspect.getsource(module)).body))):
        source = next(n for n in ast.walk(ast.parse(inspect.getsource(module))) if _brings(n, name))
        module = import_module(str(source.module))  # type: ignore[attr-defined]
    return _sentence(texts[name])


def _brings(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)


def _attributes(record: type) -> str:
    """The public attributes of a record, beside those of what it is derived from."""
    base = record.__mro__[1]
    inherited = getattr(base, "__dataclass_fields__", {})
    fields = [name for name in vars(record)["__dataclass_fields__"] if name not in inherited]
    own = dict.fromkeys(
        name for name in [*fields, *vars(record)] if not name.startswith("_") and not hasattr(base, name)
    )
    more = f"what `{base.__name__}` has, and " if base is not object else ""
    return more + ", ".join(f"`{name}`" for name in own)


def _sentence(doc: str) -> str:
    """What a docstring says first, on one line."""
    return re.split(r"(?<=[.:;])\s{2,}|\.$", " ".join(doc.partition("\n\n")[0].split("\n")))[0].rstrip(".:;")


def _plain(signature: str) -> str:
    """A signature without the names of modules in its annotations."""
    return re.sub(r": '(\w+)'", r": \1", re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", signature))
