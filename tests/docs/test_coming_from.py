"""The tables of "Coming from …": what stands on the left and on the right gives the same."""

import re
import secrets
import shlex
from pathlib import Path

import numpy as np
import pytest
import trueno

FOLDER = Path(__file__).parents[2] / "docs/coming-from"
ROW = re.compile(r"^\| `(.+)` \| `(.+)` \|$", re.M)


def rows(name):
    """The pairs of the table of a page; a bar in a cell is escaped."""
    return [(a.replace("\\|", "|"), b.replace("\\|", "|")) for a, b in ROW.findall((FOLDER / name).read_text("utf-8"))]


@pytest.fixture
def arrays():
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    shapes = {"x": (5, 7), "y": (5, 7), "w": (7,), "a": (4, 6), "b": (6, 3)}
    shapes |= {"q": (5, 2, 8), "k": (5, 2, 8), "v": (5, 2, 8)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def same(left, right):
    np.testing.assert_allclose(np.asarray(right), np.asarray(left), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("there, here", rows("numpy.md"))
def test_numpy(there, here, arrays):
    with trueno.use("reference"):
        same(eval(there, {"np": np} | arrays), eval(here, {"np": np, "trueno": trueno} | arrays))


@pytest.mark.parametrize("there, here", rows("pytorch.md"))
def test_pytorch(there, here, arrays):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(x) for name, x in arrays.items()} | {"torch": torch, "F": torch.nn.functional}
    with trueno.use("reference"):
        same(eval(there, dict(tensors)), eval(here, tensors | {"trueno": trueno}))


@pytest.mark.parametrize("there, here", rows("cupy.md"))
def test_cupy(there, here, arrays):
    """CuPy's functions are NumPy's here, and the device is the host."""
    there = there.replace("cupy.asnumpy", "np.asarray").replace("cupy.", "np.")
    left = eval(there, {"np": np} | arrays)
    with trueno.use("reference"):
        same(left, eval(here.replace("DEVICE", "'scalar'"), {"trueno": trueno} | arrays))


@pytest.mark.parametrize("command", [here for _, here in rows("llama-cpp.md")])
def test_llama_cpp(command):
    """The program has the subcommand and its options."""
    words = [word for word in shlex.split(command) if not word.startswith("TRUENO_")]
    if words[0] == "python":
        from examples.qwen2.__main__ import parser

        assert words[1:3] == ["-m", "examples.qwen2"]
        assert parser().parse_args(words[3:]).model == "model.gguf"
        return
    from trueno.cli.app import app
    from typer.main import get_command

    one = get_command(app)
    for word in words[1:3]:
        one = one.get_command(None, word)
    known = {name for parameter in one.params for name in parameter.opts}
    assert {word for word in words[3:] if word.startswith("--")} <= known


def test_the_tables_are_read():
    assert all(len(rows(page.name)) > 8 for page in FOLDER.glob("*.md"))
