"""The committed type stub says what the table says, and type checkers believe it."""

import importlib.util
import subprocess
import sys

import pytest
import trueno
from trueno import _stubs
from trueno.dispatch.parameters import parameters
from trueno.ops import ALIASES, TABLE


@pytest.mark.parametrize("path, text", [(_stubs.PATH, _stubs.text), (_stubs.AIO_PATH, _stubs.aio_text)])
def test_stub_is_fresh(path, text):
    stale = path.read_text("utf-8") != text()
    assert not stale, f"{path} is stale: run `python -m trueno._stubs`"


def test_stub_of_batches_is_fresh_and_has_every_method():
    import ast

    text = _stubs.BATCH.read_text("utf-8")
    assert text == _stubs.batch_text(), "core/src/trueno/batch/__init__.pyi is stale: run `python -m trueno._stubs`"
    (batch,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    methods = {n.name for n in batch.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    methods |= {t.id for n in batch.body if isinstance(n, ast.Assign) for t in n.targets}
    public = {name for name in vars(trueno.Batch) if not name.startswith("_")}
    assert {*TABLE, *ALIASES, *public, *trueno.batch.record.METHODS} <= methods


def test_stub_is_deterministic():
    other = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", "import sys; from trueno import _stubs; sys.stdout.write(_stubs.text())"],
        capture_output=True, encoding="utf-8", check=True,
    ).stdout  # fmt: skip
    assert other == _stubs.text()


def test_every_public_name_is_there():
    import ast

    tree = ast.parse(_stubs.text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    names |= {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {*TABLE, *ALIASES, *trueno._HOMES, *trueno.__all__} <= names


def test_every_op_has_an_asynchronous_twin():
    import ast

    tree = ast.parse(_stubs.aio_text())
    names = {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    names |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    assert {*TABLE, *ALIASES, *trueno.aio.__all__} <= names


@pytest.mark.parametrize("text, kind", [(_stubs.text, "FunctionDef"), (_stubs.aio_text, "AsyncFunctionDef")])
def test_signatures_are_those_of_the_functions(text, kind):
    import ast

    for node in ast.parse(text()).body:
        if type(node).__name__ == kind and node.name in TABLE:
            listed = parameters(TABLE[node.name])
            keyword = [p.name for p in listed if p.kind is p.KEYWORD_ONLY]
            assert [a.arg for a in node.args.kwonlyargs] == keyword
            assert [a.arg for a in node.args.args] == [p.name for p in listed if p.name not in keyword]


USE = """
import numpy as np
import trueno

x = np.ones(4, np.float32)
trueno.add(x, x, out=x)
trueno.subtract(x, [1.0, 2.0, 3.0, 4.0])
h, y = trueno.residual_rms_norm(x, x, x, eps=1e-6)
trueno.gelu(x, approximate="none")
trueno.softmax(x, axis=0)
trueno.add.plan(x, x)
with trueno.Batch("scalar") as b:
    g = b.gelu(b.upload(x), approximate="none")
    first, second = b.residual_rms_norm(g, g, g)
    total = b.sum(b.add(first, 1.0), axis=None, keepdims=True)
    b.execute()
    b.read(total)
with trueno.use("scalar"):
    best: str = trueno.select_best_available_backend().name


async def later() -> None:
    y = await trueno.aio.add(x, x, out=x)
    h, z = await trueno.aio.residual_rms_norm(y, x, x, eps=1e-6)
    await trueno.aio.subtract(await trueno.aio.to(z, "simd"), h)
    with await trueno.aio.device("simd") as d:
        d.read(d.relu(d.upload([1.0, -1.0])))
    if not trueno.sync_available():
        print(await trueno.aio.numpy(y))


"""
MISUSE = {
    'trueno.gelu(x, approximate="wrong")': "arg-type",
    "trueno.clip(x)": "call-arg",
    "trueno.nothing(x)": "attr-defined",
    "trueno.aio.nothing(x)": "attr-defined",
    "_ = trueno.aio.clip(x)": "call-arg",
    "trueno.add(trueno.aio.add(x, x), x)": "arg-type",
    "b.nothing(g)": "attr-defined",
    "b.add(g, x)": "arg-type",
}


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed: make setup")
def test_mypy_believes_it(tmp_path):
    file = tmp_path / "use.py"
    file.write_text(USE + "\n".join(MISUSE) + "\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", file],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    first = len(USE.splitlines()) + 1
    assert len(found) == len(MISUSE), done.stdout + done.stderr
    for at, (line, code) in enumerate(zip(found, MISUSE.values(), strict=True), first):
        assert f":{at}: error:" in line and line.endswith(f"[{code}]"), done.stdout
