"""`trueno ptx`: lists, prints and runs kernels on a machine without a GPU; its exit codes and what it says."""

import json
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path
from tomllib import loads

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

import trueno
import trueno_cuda
from trueno import hooks
from trueno.cli.app import app
from trueno.discovery import index
from trueno.errors import ParameterError
from trueno_cuda import commands
from trueno_cuda.catalogue import registry
from trueno_cuda.catalogue.entry import CatalogueEntry, Sample, Want, constants
from trueno_cuda.ptx import f32, kernel, ptr
from typer.main import get_command
from typer.testing import CliRunner
from unit.cuda.ptx.assembler import run as ptxas


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """As in a pipe: lines are not broken."""
    for name in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)


def ptx(*args):
    """One command: its result."""
    return CliRunner().invoke(commands.app, list(args))


def test_list():
    result = ptx("list")
    assert result.exit_code == 0
    for name in registry.catalogue():
        assert name in result.stdout
    lines = result.stdout.splitlines()
    line = next(line for line in lines if line.startswith("transpose "))
    assert "moves" in line and "from sm_75" in line and "schedule=vectors|elements" in line
    assert max(map(len, lines)) <= 120, "too wide for a page"
    assert "schedule=auto" in next(line for line in lines if line.startswith("softmax "))


@pytest.mark.parametrize("columns", [40, 100, 120, 150, 400])
def test_a_table_of_any_width_loses_nothing(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = ptx("list").stdout.splitlines()
    assert max(map(len, lines)) <= max(columns, 105)
    entries = registry.catalogue()
    starts = [i for i, line in enumerate(lines) if line.split(" ")[0] in entries]
    assert [lines[i].split()[0] for i in starts] == list(entries)
    at, middle = lines[0].index("constants"), lines[0].index("what it does")
    for (name, entry), first, end in zip(entries.items(), starts, [*starts[1:], len(lines)], strict=True):
        part = lines[first:end]
        assert " ".join(filter(None, (line[middle:at].strip() for line in part))) == " ".join(entry.help.split()), name
        shown = "".join(line[at:].strip() for line in part)
        assert all(f"{c.name}={'' if c.default is None else c.default}" in shown for c in entry.constants), name


def test_the_architecture_where_none_is_named():
    assert ".target sm_90a\n" in ptx("emit", "matmul_wgmma").stdout
    assert ".target sm_90\n" in ptx("emit", "matmul").stdout


@pytest.mark.parametrize("command", ["emit", "run"])
def test_the_help_tells_how_schedules_are_written(command):
    output = ptx(command, "--help").stdout
    assert "schedule" in output and all(
        f"{s}:" in output for s in ("flat256x4", "held32x8", "swept1024x4", "long256x4c32")
    )


def test_list_as_json():
    report = json.loads(ptx("list", "--json").stdout)
    assert [e["name"] for e in report] == list(registry.catalogue())
    (outer,) = (e for e in report if e["name"] == "outer")
    assert outer["family"] == "moves" and "sm_90a" in outer["arches"]
    assert outer["constants"][0] == {"name": "itemsize", "default": 4, "choices": [4, 8], "help": "bytes of an element"}


def test_emit_prints_what_ptxas_takes():
    result = ptx("emit", "outer", "--arch", "sm_80", "--set", "V=2", "--set", "guarded=true")
    assert result.exit_code == 0
    assert ".target sm_80\n" in result.stdout and ".visible .entry outer_f32_guarded_V2_C256(" in result.stdout
    said, _, text = result.stdout.partition("\n")
    assert said == "// trueno ptx emit outer --arch sm_80 --set itemsize=4 --set guarded=True --set V=2 --set C=256"
    assert text == registry.build(registry.find("outer"), "sm_80", {"V": 2, "guarded": True})[0].text
    good, log = ptxas(result.stdout, "sm_80")
    assert good, log


@pytest.mark.parametrize(
    "args, said",
    [
        (["outre"], 'ptx: no kernel is called "outre"; did you mean "outer"?'),
        (["quant_matvec"], "ptx: quant_matvec is an op of Trueno without a kernel of its own here"),
        (["outer", "--set", "V"], "outer: --set 'V' must be NAME=VALUE"),
        (["outer", "--set", "v=2"], "outer: no constant 'v'; did you mean \"V\"?"),
        (["outer", "--set", "V=x"], "outer: V is 'x'; it must be a whole number, as 4"),
        (["outer", "--set", "V=3"], "outer: V is 3; it must be 1, 2 or 4"),
        (["outer", "--set", "V=2", "--set", "V=4"], "outer: --set gives V twice; give it once"),
        (["outer", "--arch", "sm_9"], "outer: it is not for sm_9"),
        (["outer", "--set", "itemsize=8"], "a vector of 4 f64 is not 1, 2, 4, ... of at most 16 bytes"),
    ],
)
@pytest.mark.parametrize("command", ["emit", "run"])
def test_bad_input(command, args, said):
    result = ptx(command, *args)
    assert isinstance(result.exception, ParameterError) and result.stdout == ""
    assert said in str(result.exception)


def test_run():
    result = ptx("run", "transpose", "--seed", "7")
    assert result.exit_code == 0, result.stdout
    assert "instructions:" in result.stdout and "sectors a request" in result.stdout and "no findings" in result.stdout
    assert "y: right:" in result.stdout and "to the bit" in result.stdout


@pytest.mark.parametrize("name", ["softmax", "argmax", "relu", "transpose", "matmul"])
@pytest.mark.parametrize("given", [(), ("dtype=float64",)])
def test_run_launches_what_emit_prints(name, given):
    """The same constants where none are named, and both say which."""
    options = [part for one in given for part in ("--set", one)]
    if given and not any(c.name == "dtype" for c in registry.find(name).constants):
        pytest.skip("it has no such constant")
    printed, ran = ptx("emit", name, *options), ptx("run", name, *options, "--seed", "3")
    assert ran.exit_code == 0, ran.stdout
    command, line, *_ = ran.stdout.splitlines()
    assert f"// {command}".replace(" run ", " emit ").removesuffix(" --seed 3") == printed.stdout.splitlines()[0]
    assert f".visible .entry {line.partition(':')[0]}(" in printed.stdout
    again = command.removeprefix("trueno ptx ").split()
    assert ptx(*again).stdout.splitlines()[0] == command, "the line is a command that does the same"


def test_run_as_json():
    report = json.loads(ptx("run", "convolve2d", "--set", "P=2", "--set", "Q=2", "--json").stdout)
    (launch,) = report["launches"]
    assert report["constants"]["P"] == 2 and report["constants"]["R"] == launch["constants"]["R"]
    assert report["good"] and launch["kernel"] == "convolve2d_taps_f32_P2_Q2_R8" and launch["constants"]["P"] == 2
    assert launch["findings"] == [] and launch["flops"]["f32"] > 0 and launch["accesses"][0]["sectors"] > 0
    (result,) = report["results"]
    assert result["good"] and not result["exact"] and 0 < result["error"] <= 1


@kernel(threads=32)
def broken(k, y: ptr(f32), *, beyond: bool = False):
    """y = 1, where 2 is wanted; or right, and past its end."""
    y.store(k.tid + (8 if beyond else 0), 1.0)


def _sample(rng, *, beyond):
    value = np.ones(32) if beyond else np.full(32, 2.0)
    return Sample((1, 1, 1), {"y": np.ones(32, "f4")}, {"y": Want(value, 0.5)})


@pytest.mark.parametrize("given, said", [([], "y: WRONG: 32 elements"), (["--set", "beyond=1"], "out-of-bounds")])
def test_a_wrong_kernel_is_seen(monkeypatch, given, said):
    entry = CatalogueEntry("broken", "tests", "is wrong", broken.build, _sample, constants(broken))
    monkeypatch.setattr(registry, "catalogue", lambda: {"broken": entry})
    result = ptx("run", "broken", *given)
    assert result.exit_code == 1 and said in result.stdout
    result = ptx("run", "broken", *given, "--json")
    assert result.exit_code == 1 and not json.loads(result.stdout)["good"]


def test_check():
    result = ptx("check", "outer", "sum", "copy_strided", "--backend", "cuda_emulated", "--seed", "3")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines() == [
        "outer: right, 3 variants",
        "sum: right, 3 variants",
        "copy_strided: right, 5 variants",
        "3 kernels are right, 0 are not, 0 are not for sm_90",
    ]


@pytest.mark.parametrize("beyond, said", [(False, "as usual: y WRONG: 32 elements"), (True, "out-of-bounds")])
def test_check_sees_a_wrong_kernel(monkeypatch, beyond, said):
    variants = ({"beyond": True},) if beyond else ({},)
    entry = CatalogueEntry("broken", "tests", "is wrong", broken.build, _sample, constants(broken), variants=variants)
    alike = registry.find("transpose")
    monkeypatch.setattr(registry, "catalogue", lambda: {"broken": entry, "transpose": alike})
    result = ptx("check", "--backend", "cuda_emulated")
    assert result.exit_code == 1 and said in result.stdout
    assert "1 kernels are right, 1 are not, 0 are not for sm_90\nnot right: broken\n" in result.stdout


@kernel(threads=64)
def conflicts(k, y: ptr(f32), *, excuse: bool = False):
    """The lanes of a warp store to one bank of shared memory."""
    s = k.shared(f32, 64, 32)
    with k.allow("bank-conflict", "it is a test") if excuse else nullcontext():
        s.store((k.tid, 0), 1.0)
    k.sync()
    y.store(k.tid, s.load((0, 0)))


def test_check_static(monkeypatch):
    variants = ({}, {"excuse": True})
    entry = CatalogueEntry("conflicts", "tests", "is wrong", conflicts.build, _sample, constants(conflicts),
                           ("sm_80", "sm_90"), variants)  # fmt: skip
    alike = registry.find("matmul_wgmma")
    monkeypatch.setattr(registry, "catalogue", lambda: {"conflicts": entry, "matmul_wgmma": alike})
    result = ptx("check", "--static", "--arch", "sm_90")
    assert result.exit_code == 1, result.stdout
    first, finding, *last = result.stdout.splitlines()
    assert first == "conflicts: 1 finding, 2 builds for sm_90"
    assert finding.startswith("    sm_90: conflicts_excuse0, line ") and finding.endswith("[bank-conflict]")
    assert last == [
        "0 kernels without findings, 1 with; 2 builds, 2 of them differ; 1 excused",
        "with findings: conflicts",
        "not for sm_90: matmul_wgmma",
    ]
    assert "4 builds, 2 of them differ; 1 excused" in ptx("check", "conflicts", "--static").stdout
    for args in (("--arch", "sm_90"), ("--static", "--arch", "sm_1")):
        assert isinstance(ptx("check", *args).exception, ParameterError)


def test_check_without_a_gpu_names_the_emulator():
    if trueno.backends()["cuda"].available:
        pytest.skip("there is a GPU")
    result = ptx("check", "outer")
    assert isinstance(result.exception, trueno.BackendUnavailable)
    assert "without a GPU: trueno ptx check --backend cuda_emulated" in str(result.exception)


def test_check_leaves_out_what_the_gpu_does_not_run():
    result = ptx("check", "matmul_wgmma", "outer", "--backend", "cuda_emulated")
    assert result.exit_code == 0
    assert "1 kernels are right, 0 are not, 1 are not for sm_90\nnot for sm_90: matmul_wgmma\n" in result.stdout
    assert "TRUENO_CUDA_EMULATED_ARCH=sm_90a lets the emulator play such a GPU" in result.stdout
    assert ptx("check", "matmul_wgmma", "--backend", "cuda_emulated").exit_code == 1  # nothing was looked at


@pytest.mark.parametrize("args", [("outre",), ("outer", "--backend", "scalar")])
def test_check_of_what_cannot_be(args):
    assert isinstance(ptx("check", *args).exception, ParameterError)


# ------------------------------------------------------------------------------------- joining the command line


def test_the_entry_point_names_the_function():
    path = Path(trueno_cuda.__file__).parents[2] / "pyproject.toml"
    points = loads(path.read_text())["project"]["entry-points"][hooks.COMMANDS]
    (name,) = points
    assert EntryPoint(name, points[name], hooks.COMMANDS).load() is commands.add


def test_the_command_line_has_it(monkeypatch):
    """Through the entry point, with the core's exit codes."""
    monkeypatch.setattr(hooks, "_state", hooks._State())
    point = index.Point(hooks.COMMANDS, "ptx", "trueno_cuda.commands:add", "cuda")
    monkeypatch.setattr(index, "points", lambda refresh=False: [point])
    command = get_command(app)
    result = CliRunner().invoke(app, ["ptx", "emit", "outre"])
    assert result.exit_code == 2 and 'did you mean "outer"?' in result.stderr
    assert "\n// outer_f32: V=4 C=256\n" in CliRunner().invoke(app, ["ptx", "emit", "outer"]).stdout
    assert "ptx" in command.list_commands(None)
