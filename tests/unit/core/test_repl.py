"""What a REPL, a notebook and `help` show of the package."""

import builtins
import inspect
import pickle
import pydoc
import subprocess
import sys

import numpy as np
import pytest
import trueno
from trueno.ops import ALIASES, TABLE

F = np.float32


def test_a_star_import_brings_ops_and_classes_and_hides_nothing():
    space = {}
    exec("from trueno import *", space)
    assert {"softmax", "matmul", "Vector", "Matrix", "use", "trace", "explain", "ShapeError"} <= set(space)
    hiding = {name for name in TABLE if hasattr(builtins, name)}
    assert hiding and not hiding & set(space) and "numpy" not in space
    assert {*TABLE, *ALIASES} - hiding <= set(space)
    assert all(hasattr(trueno, name) for name in hiding)


def test_dir_has_the_public_names_alone():
    listed = dir(trueno)
    assert {*TABLE, *ALIASES, "Vector", "use", "gguf", "DtypeError", "__version__"} <= set(listed)
    assert not {"Any", "importing", "annotations"} & set(listed)
    assert "get" in dir(trueno.settings) and "os" not in dir(trueno.settings)
    assert not [name for name in listed if name.startswith("_") and not name.startswith("__")]


def test_help_shows_the_ops():
    text = pydoc.render_doc(trueno, renderer=pydoc.plaintext)
    assert "softmax(x: 'ArrayLike', axis: 'int' = -1, *, out: 'Any' = None)" in text
    assert "class Vector" in text and "`trueno.`" in text


def test_importing_the_package_still_loads_nothing():
    code = "import sys, trueno; print('trueno.ops' in sys.modules, 'trueno.dispatch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", ["softmax", "add", "concatenate", "matmul", "std"])
def test_the_source_of_an_op_is_its_body(name):
    f = getattr(trueno, name)
    source = inspect.getsource(f)
    op = TABLE[ALIASES.get(name, name)]
    assert f"def {op.name}(" in source and source.startswith("@op(")
    assert inspect.getsourcefile(inspect.unwrap(f)).endswith(f"{op.family}.py")
    assert [p for p in inspect.signature(f).parameters if p != "out"][: len(op.operands)] == list(op.operands)
    assert pickle.loads(pickle.dumps(f)) is f


def test_results_show_themselves_as_tables():
    x = np.ones((2, 2), F)
    with trueno.use("reference"):
        decision = trueno.explain("add", x, x)
        for shown in (decision, trueno.backends(), trueno.stats()):
            assert repr(shown) == str(shown) and "Op(" not in repr(shown) and "Sum(" not in repr(shown)
            assert shown._repr_html_().startswith("<pre>")
    assert repr(decision).startswith("add in float32, x 2×2, y 2×2")
    table = repr(trueno.backends()).splitlines()
    assert table[0].split() == ["backend", "kind", "status"]
    assert [line.split()[0] for line in table[1:]] == list(trueno.backends())


def test_explain_takes_shapes():
    with trueno.use("reference"):
        by_shape = trueno.explain("matmul", (64, 32), (32, 8))
        assert by_shape == trueno.explain("matmul", np.ones((64, 32), F), np.ones((32, 8), F))
        assert by_shape.shapes == ((64, 32), (32, 8))
        assert trueno.explain("add", np.ones(4), (4,)).call.dtype == np.float64
        assert trueno.explain("embedding_lookup", (1 << 40, 8), (3,)).call.op.name == "embedding_lookup"
        assert trueno.explain("quant_matvec", (8, 256), (256,), format="q4_k").shapes == ((8, 256), (256,))
        assert trueno.explain("sum", (3, 4), axis=0).shapes == ((3, 4),)
        with pytest.raises(trueno.ShapeError, match=r"matmul: b\[k\] is 31, but a\[k\] is 32"):
            trueno.explain("matmul", (64, 32), (31, 8))
        with pytest.raises(trueno.ParameterError, match="explain: shapes in blocks need a format"):
            trueno.explain("quant_matvec", (8, 256), (256,))
        with pytest.raises(trueno.ParameterError, match=r"explain: x cannot have shape \(-1,\)"):
            trueno.explain("exp", (-1,))


def test_kinds_of_backends():
    installed = trueno.backends()
    cpu = [name for name, e in installed.items() if e.kind == "cpu" and not e.opt_in and e.available]
    with trueno.use("CPU") as scope:
        assert list(scope.request.names) == cpu and "reference" in cpu
        assert trueno.explain("add", (4,), (4,)).chosen == cpu[0]
    if not [e for e in installed.values() if e.kind == "gpu" and not e.opt_in and e.available and not e.software]:
        with trueno.prefer("gpu") as scope:
            assert scope.request.preferred == () and trueno.neg([1.0]) == [-1.0]
        for function in (trueno.use, trueno.set_default):
            with pytest.raises(trueno.BackendUnavailable, match=f"{function.__name__}: no backend of kind gpu can run"):
                function("gpu")


def test_a_manifest_that_is_not_one_is_named_once():
    with pytest.raises(trueno.ParameterError, match=r"^register: manifest: api is missing"):
        trueno.register({"name": "x"})


def test_a_missing_file_is_pythons_error_too(tmp_path):
    path = tmp_path / "nothing.gguf"
    for error in (FileNotFoundError, OSError, trueno.FileError, ValueError):
        with pytest.raises(error) as caught:
            trueno.gguf.open(path)
        assert str(caught.value) == f"{path}: No such file or directory"
        assert caught.value.filename == str(path) and caught.value.errno == 2
