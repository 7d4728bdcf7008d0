"""What `ptx-flow` says of this project and of small programs, against truth that is written by hand."""

from pathlib import Path

import pytest
from trueno_cuda.flow.files import read
from trueno_cuda.flow.graph import Flow, flow
from trueno_cuda.flow.table import Table

ROOT = Path(__file__).parents[4]
OWN = ROOT / "plugins" / "cuda" / "src" / "trueno_cuda"

EMIT, LOAD, ANALYZE, CONSUME = "emit", "load", "analyze", "consume"
TRUTH = {
    # the builder writes text
    "ptx.kernel:Source._text": {EMIT},
    "ptx.kernel:Source.build": {EMIT},
    "ptx.builder:Builder.lay_out": {EMIT},
    "ptx.core:Core.constant": {EMIT},
    "ptx.tensor_cores:TensorCores.mma": {EMIT},
    # the printers of row programs, and the hand-written kernels
    "rows.printer:Printer.build": {EMIT},
    "rows.printer:Printer.build.function": {EMIT},
    "rows.flat:Flat.flat": {EMIT},
    "rows.multi_pass:MultiPass.final": {EMIT},
    "rows.register_resident:RegisterResident.rows": {EMIT},
    "rows.source:kernels": {CONSUME},
    "kernels.source:build": {EMIT},
    # the catalogue joins texts and looks into them; its samples run
    "catalogue.registry:module": {EMIT, ANALYZE},
    "catalogue.registry:run": {CONSUME},
    "ptx.types:literal": set(),
    "catalogue.registry:chosen": set(),
    "catalogue.entry:compare": set(),
    # the emulator reads PTX, and runs it
    "ptx.syntax.parse:parse": {ANALYZE},
    "ptx.syntax.parse:Parser.function_definition": {ANALYZE},
    "ptx.emulate.instructions.data:ld": {ANALYZE},
    "ptx.emulate.launch:Module.__init__": {CONSUME},
    "ptx.emulate.launch:load": {CONSUME},
    "device.emulated:Emulator.prepare": {CONSUME},
    # the driver loads it, and what keeps modules uses that
    "device.hardware.driver:Driver.load": {LOAD},
    "device.hardware.driver:Driver.link": {LOAD},
    "device.hardware.driver:Driver.count": set(),
    "device.hardware.modules:Modules._function": {CONSUME},
    "device.hardware.modules:Modules.function": {CONSUME},
    "device.hardware.modules:_read": set(),
    # the backends
    "backend:PtxBackend.kernel": {CONSUME},
    "backend:PtxBackend.supports": set(),
    "backend:CudaBackend.probe": {CONSUME},
    # the command
    "commands:emit": {CONSUME},
    "commands:_table": set(),
}
CALLS = {
    ("rows.flat:Flat.flat", "rows.printer:Printer.build"),
    ("rows.printer:Printer.build", "ptx.kernel:Source.build"),
    ("ptx.kernel:Source.build", "ptx.kernel:Source._text"),
    ("rows.source:kernels", "rows.flat:Flat.flat"),
    ("device.hardware.modules:Modules._function", "device.hardware.driver:Driver.load"),
    ("device.hardware.modules:Modules._keep", "device.hardware.driver:Driver.link"),
    ("ptx.emulate.launch:Module.__init__", "ptx.syntax.parse:parse"),
    ("commands:emit", "catalogue.registry:module"),
}
MODULES = {
    "ptx.builder": EMIT, "ptx.core": EMIT, "ptx.memory": EMIT, "ptx.arithmetic": EMIT, "rows.printer": EMIT,
    "rows.flat": EMIT, "rows.multi_pass": EMIT, "rows.register_resident": EMIT, "ptx.syntax.parse": ANALYZE,
    "ptx.emulate.instructions.logic": ANALYZE, "device.hardware.driver": LOAD, "backend": CONSUME,
    "device.hardware.gpu": CONSUME, "device.emulated": CONSUME, "rows.rowprogram": CONSUME,
}  # fmt: skip
"""What a module does first of all."""


@pytest.fixture(scope="module")
def project() -> Flow:
    return flow(*read([OWN]))


def test_the_truth_names_functions_that_exist():
    files, _ = read([OWN])
    table = Table(files)
    assert {f"trueno_cuda.{name}" for name in TRUTH} <= set(table.functions)


def roles(result: Flow, name: str) -> set[str]:
    node = result.nodes.get(f"trueno_cuda.{name}")
    return set(node.roles) if node else set()


@pytest.mark.parametrize("name", TRUTH)
def test_a_function_of_this_project(project, name):
    assert roles(project, name) == TRUTH[name]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_this_project(project, module):
    counts = project.modules()[f"trueno_cuda.{module}"]
    first = max((EMIT, LOAD, ANALYZE), key=lambda role: counts[role])
    assert (first if counts[first] else CONSUME) == MODULES[module], counts


def test_the_page_shows_this_project(project):
    """The rows of the table in docs/how-to/ptx-flow.md are those that the command prints."""
    page = (ROOT / "docs/how-to/ptx-flow.md").read_text("utf-8")
    head, *rows = page[page.index("module     ") : page.index("\n…\n")].splitlines()
    ends = {role: head.index(role) + len(role) for role in head.split()[1:]}
    modules = project.modules()
    assert set(ends) == {EMIT, LOAD, ANALYZE, CONSUME} and len(rows) > 5
    for row in rows:
        name, *numbers = row.split()
        counts = {role: count for role, count in modules[name].items() if count}
        assert counts == {
            role: int(row[:end].split()[-1]) for role, end in ends.items() if row[end - 1 : end].isdigit()
        }
        assert list(map(str, counts.values())) == numbers


def test_calls_of_this_project(project):
    found = {(call.caller, call.callee) for call in project.calls}
    assert {(f"trueno_cuda.{a}", f"trueno_cuda.{b}") for a, b in CALLS} <= found


def test_the_loaders_are_the_driver_and_the_linker(project):
    loaders = {node.id for node in project.nodes.values() if LOAD in node.roles}
    assert loaders == {
        "trueno_cuda.device.hardware.driver:Driver.load",
        "trueno_cuda.device.hardware.driver:Driver.link",
        "trueno_cuda.ptx.analyze.linked:main",
    }


def test_other_backends_have_nothing_to_do_with_it():
    """Their kernels are Python and WGSL."""
    folders = ("plugins/scalar", "plugins/wgpu/src", "plugins/simd/src/trueno_simd/rows", "core/src/trueno/programs")
    result = flow(*read([ROOT / folder for folder in folders]))
    assert not result.nodes


# ---- small programs -----------------------------------------------------------------------------


def program(tmp_path: Path, **files: str) -> Flow:
    for name, text in files.items():
        path = tmp_path / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return flow(*read([tmp_path]))


def shown(result: Flow) -> dict[str, list[str]]:
    return {node.id: node.roles for node in result.nodes.values()}


HEAD = '''
def head(arch):
    """A docstring may show `.version 8.0` and `ld.global.u32 %r1, [%rd1];`: that is no evidence."""
    return f".version 8.0\\n.target {arch}\\n.address_size 64\\n"
'''


def test_texts(tmp_path):
    result = program(tmp_path, a=HEAD + """
import re
def body(lines, kind):
    lines.append(f"ld.global.{kind} %r1, [%rd1];")
    lines += ["    ret;", "@%p1 bra DONE;"]
def count(text):
    return len(re.findall(r"\\.entry\\s+(\\w+)", text))
def first(text):
    return text.startswith(".version") or "ld.param.u64 %rd1" in text
def whole():
    return head("sm_80") + body([], "u32")
def far():
    return whole()
def nothing():
    raise ValueError("a text begins with .version 8.0")
    return "add.py", "set it up; min.x", "from a.entry import b", {"help": "mov the rest"}
""")  # fmt: skip
    assert shown(result) == {
        "a:head": [EMIT], "a:body": [EMIT], "a:count": [ANALYZE], "a:first": [ANALYZE], "a:whole": [CONSUME],
        "a:far": [CONSUME],
    }  # fmt: skip
    assert (result.nodes["a:whole"].distance, result.nodes["a:far"].distance) == (1, 2)
    assert set(result.within(1).nodes) == set(result.nodes) - {"a:far"}


@pytest.mark.parametrize(
    "code, role",
    [
        ("def f(image):\n    cuda.cuModuleLoadData(handle, image)", LOAD),
        ("def f(self, image):\n    self.function('cuLinkAddData_v2')(image)", LOAD),
        ("def f(text):\n    return cupy.RawModule(path=text)", LOAD),
        ("def f(text):\n    return ObjectCode.from_ptx(text)", LOAD),
        ("def f(folder):\n    return (folder / 'kernels.ptx').read_text()", LOAD),
        ("def f(folder, text):\n    (folder / 'kernels.ptx').write_text(text)", EMIT),
        ("def f(k):\n    return cuda.compile_ptx(k, ())", EMIT),
        ("def f(path):\n    subprocess.run(['nvcc', '-ptx', path])", EMIT),
        ("def f(path):\n    subprocess.run(['ptxas', '-v', path])", ANALYZE),
        ("def f(name):\n    return name == 'cvta.to.global.u64'", ANALYZE),
        ("@opcode('shfl', '5 sync')\ndef f(ins):\n    return 1", ANALYZE),
        ("def f(word):\n    match word:\n        case '.reqntid':\n            return 1", ANALYZE),
        ("def f(x):\n    driver.cuLaunchKernel(x, 1)", CONSUME),
        ("def f(name):\n    return name in ('ptxas', 'nvcc')", ""),
        ("def f():\n    return typer.Option(help='an entry as .entry main')", ""),
        ("NAMES = ('mov.u32', '.reg')", ""),
        ("class A:\n    '''It writes .version 8.0 first.'''", ""),
    ],
)  # fmt: skip
def test_evidence(tmp_path, code, role):
    assert set().union(*shown(program(tmp_path, a=code)).values()) == ({role} if role else set())


def test_an_object_that_writes(tmp_path):
    """Functions that work with a builder emit, by its class, by its methods' names, or as a decorator's argument."""
    result = program(tmp_path, pkg____init__="", pkg__build="""
class Builder:
    def load(self, at):
        self.lines.append(f"ld.global.u32 %r1, [{at}];")
class Kernel:
    def __init__(self, function):
        self.function = function
    def text(self):
        k = Builder()
        self.function(k)
        return ".version 8.0 " + str(k)
def kernel(function):
    return Kernel(function)
""", pkg__use="""
from .build import Builder, Kernel, kernel
@kernel
def decorated(k):
    k.anything()
def typed(k: "Builder | None"):
    k.load("%rd1")
def untyped(k):
    k.load("%rd2")
def outer():
    def inner(k):
        pass
    return Kernel(inner)
def user(given: list):
    given.append(typed)
""", main="""
import pkg.use as u
def main():
    return u.user([])
""")  # fmt: skip
    found = shown(result)
    for name in ("decorated", "typed", "untyped", "outer"):
        assert found[f"pkg.use:{name}"] == [EMIT], name
    assert found["pkg.use:user"] == found["main:main"] == [CONSUME]
    kinds = {(call.caller, call.callee): call.kind for call in result.calls}
    assert kinds["pkg.use:untyped", "pkg.build:Builder.load"] == "name"
    assert kinds["pkg.use:user", "pkg.use:typed"] == "refer" and kinds["main:main", "pkg.use:user"] == "call"


def test_names_that_mean_something_else(tmp_path):
    """A variable of a function's name is not the function; nor is a method of Python's own types."""
    result = program(tmp_path, a=HEAD + """
class Text:
    def append(self):
        return ".version 8.0"
def loop(given):
    for head in given:
        print(head, given.append(1))
def recursive():
    return recursive()
""")  # fmt: skip
    assert set(shown(result)) == {"a:head", "a:Text.append"}


def test_an_object_of_the_module_is_hidden_by_a_parameter(tmp_path):
    text = "class B:\n    def add(self):\n        return '.version 8.0'\nk = B()\n"
    users = "def uses():\n    k.add()\ndef hides(k):\n    k.add()\ndef again():\n    k = 1\n    k.add()\n"
    result = program(tmp_path, a=text + users)
    assert set(shown(result)) >= {"a:B.add", "a:uses"} and not {"a:hides", "a:again"} & set(shown(result))


def test_imports_in_circles(tmp_path):
    first = "from b import f\nfrom b import *\nclass A(B): pass\n"
    second = "from a import f, A\nclass B(A): pass\ndef g():\n    return f() + A().h() + B.h()\n"
    result = program(tmp_path, a=first, b=second)
    assert not result.nodes
