"""A backend's code imports `trueno.backend` and `trueno.errors` alone, and what that lists is what its modules have."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trueno import backend
from trueno.cli.new_backend import templates

ROOT = Path(__file__).parents[2]
CONTRACT = {"trueno.backend", "trueno.errors"}
PLUGINS = [
    *(path.parents[1] for path in (ROOT / "plugins").glob("*/src/*/backend.toml")),
    *(ROOT / "examples").glob("plugin_*/src"),
    ROOT / "tests/fake_device/src",
]
CHAOS = ROOT / "tests/chaos"
DELIBERATE = CHAOS / "src/trueno_chaos/circular.py"  # a plugin that uses the whole of trueno while trueno loads it


def foreign(source: str) -> Iterator[str]:
    """The modules of the core, other than the contract's, that a file imports anywhere."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = str(node.module)
            names = [f"trueno.{alias.name}" for alias in node.names] if module == "trueno" else [module]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "trueno" and name not in CONTRACT)


@pytest.mark.parametrize("folder", [*PLUGINS, CHAOS], ids=lambda p: str(p.relative_to(ROOT)))
def test_a_plugin_imports_the_contract_alone(folder):
    files = [path for path in folder.rglob("*.py") if path != DELIBERATE]
    assert files
    assert not [f"{path}: {name}" for path in files for name in foreign(path.read_text("utf-8"))]


def test_so_does_what_new_backend_writes():
    sources = [text for path, text in templates() if path.startswith("src/") and path.endswith(".py")]
    made = [text.replace("«", "").replace("»", "") for text in sources]
    assert any("from trueno.backend import" in text for text in made)
    assert not [name for text in made for name in foreign(text)]


def test_a_foreign_import_is_found():
    source = (
        "import trueno.ops\nfrom trueno import backend, settings\ndef f():\n    from trueno.formats import FORMATS\n"
    )
    assert list(foreign(source)) == ["trueno.ops", "trueno.settings", "trueno.formats"]


def test_every_lazy_name_is_typed_and_is_what_its_home_has():
    tree = ast.parse(Path(backend.__file__).read_text("utf-8"))
    (typed,) = (n.body for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    wanted = {}
    for node in typed:
        assert isinstance(node, ast.ImportFrom)
        wanted |= {alias.name: str(node.module) for alias in node.names}
    assert wanted.keys() == backend.HOMES.keys()
    for name, module in wanted.items():
        value = getattr(backend, name)
        assert value is getattr(sys.modules[module], name), f"{name} is not {module}'s"
    with pytest.raises(AttributeError, match="has no 'softmax'"):
        backend.softmax  # noqa: B018


def test_every_optional_method_says_what_it_is_for():
    methods = {name: getattr(backend.OptionalMethods, name) for name in backend.OPTIONAL}
    assert {"own_environment", "limits", "batch", "recording"} <= methods.keys()
    assert all(method.__doc__ for method in methods.values())


@pytest.mark.parametrize("module", ["trueno_simd.backend", "trueno_cuda.backend"])
def test_a_backend_that_is_only_probed_needs_no_table_of_ops(module):
    code = f"import sys, {module}; print(*sys.modules.keys() & {{'trueno.ops', 'numba', 'cupy'}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.split()


def test_importing_the_contract_loads_the_protocol_alone():
    code = "import sys, {}; print(*sorted(name for name in sys.modules if name.startswith('trueno')))"
    before, after = (
        subprocess.run([sys.executable, "-c", code.format(name)], capture_output=True, text=True, check=True).stdout
        for name in ("trueno.discovery.protocol", "trueno.backend")
    )
    assert set(after.split()) - set(before.split()) == {"trueno.backend"}
