"""The committed type stubs say what the table and the classes say, and type checkers believe them."""

import ast
import inspect
import subprocess
import sys

import pytest
import trueno
from trueno import _stubs
from trueno.context import DeviceContext
from trueno.dispatch.parameters import parameters
from trueno.ops import ALIASES, TABLE


def named(text, kinds=(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
    """The names that a stub, or the body of a class, binds."""
    body = ast.parse(text).body if isinstance(text, str) else text.body
    names = {node.name for node in body if isinstance(node, kinds)}
    names |= {t.id for node in body if isinstance(node, ast.Assign) for t in node.targets}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    return names | {alias.asname for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}


def classes(text):
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("path", _stubs.STUBS, ids=lambda path: str(path.relative_to(_stubs.ROOT)))
def test_stub_is_fresh(path):
    stale = path.read_text("utf-8") != _stubs.STUBS[path]()
    assert not stale, f"{path} is stale: run `python -m trueno._stubs`"


def test_no_other_stubs_lie_about():
    assert {*_stubs.ROOT.rglob("*.pyi")} == {*_stubs.STUBS}


def test_stub_is_deterministic():
    program = "import sys; from trueno import _stubs; sys.stdout.write(_stubs.package() + _stubs.arrays())"
    other = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program], capture_output=True, encoding="utf-8", check=True
    ).stdout
    assert other == _stubs.package() + _stubs.arrays()


def test_every_public_name_is_there():
    assert {*TABLE, *ALIASES, *trueno._HOMES, *trueno._MODULES, *trueno.__all__} <= named(_stubs.package())


def test_every_op_has_an_asynchronous_twin():
    assert {*TABLE, *ALIASES, *trueno.aio.__all__} <= named(_stubs.aio())


def test_batches_have_every_method():
    methods = named(classes(_stubs.batch())["Batch"])
    public = {name for kind in trueno.Batch.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}
    assert {*TABLE, *ALIASES, *public, *trueno.batch.record.METHODS} <= methods


@pytest.mark.parametrize(
    "kind, text",
    [
        (trueno.Vector, _stubs.arrays),
        (trueno.Matrix, _stubs.arrays),
        (trueno.QuantizedMatrix, _stubs.matrix),
        (DeviceContext, _stubs.context),
    ],
)
def test_classes_have_every_public_member(kind, text):
    listed = classes(text())
    names = {name for base in kind.__mro__ if base.__name__ in listed for name in named(listed[base.__name__])}
    hidden = {"__getattr__", "__getstate__", "__setstate__", "__reduce__", "__bool__", "__dir__", "__setattr__"}
    public = {
        name
        for base in kind.__mro__[:-1]
        for name, value in vars(base).items()
        if (name[0] != "_" or (name[:2] == "__" and callable(value))) and name not in hidden
    }
    assert public <= names | {*TABLE, *ALIASES}


def test_functions_beside_the_ops_have_the_parameters_of_the_source():
    for node in ast.parse(_stubs.package()).body:
        if isinstance(node, ast.FunctionDef) and node.name in trueno._HOMES:
            arguments = [*node.args.args, *filter(None, [node.args.vararg]), *node.args.kwonlyargs, node.args.kwarg]
            real = inspect.signature(getattr(trueno, node.name)).parameters
            assert [a.arg for a in arguments if a] == list(real), node.name


def test_every_overload_has_the_parameters_of_the_function():
    listed = classes(_stubs.package())
    for op in TABLE.values():
        real = parameters(op)
        keyword = [p.name for p in real if p.kind is p.KEYWORD_ONLY]
        calls = [node for node in listed[f"_{op.name}"].body if isinstance(node, ast.FunctionDef)]
        assert calls
        for call in calls:
            assert [a.arg for a in call.args.kwonlyargs] == keyword
            plain = ["self"] + [p.name for p in real if p.name not in keyword]
            assert [a.arg for a in call.args.args] == plain or op.many
