"""The command line: every command's normal run, its JSON, its exit codes, and what it says to bad input."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

import trueno
from trueno.cli import crew, peers, report
from trueno.cli.app import app
from trueno.cli.plans import usual, variants
from trueno.cli.samples import sample
from trueno.discovery import registry
from trueno.errors import ParameterError
from trueno.formats.lz4 import library
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op
from trueno.remedies import install
from trueno.settings import settings
from trueno.testing.checks import rejected
from typer.testing import CliRunner

VARIABLES = ("FORCE_CPU", *(name for name in os.environ if name.startswith("TRUENO_") and name != "TRUENO_CACHE_DIR"))


WITHOUT_NVIDIA = pytest.mark.skipif(
    Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists(), reason="there is an NVIDIA GPU here"
)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No setting but the cache folder; the registry and settings are as new, before and after."""
    for name in (*VARIABLES, "COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    fresh()
    yield
    monkeypatch.undo()
    fresh()


def fresh():
    from trueno.dispatch.state import forget_plans

    settings.reload()
    registry.forget()
    forget_plans()


def run(*args, env=None):
    """One command in this process: its result, with stdout and stderr apart."""
    for name, value in (env or {}).items():
        os.environ[name] = value
    fresh()
    try:
        result = CliRunner().invoke(app, list(args), prog_name="trueno")
    finally:
        for name in env or {}:
            del os.environ[name]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def child(*args, **env):
    """One command as a user has it, in a child process, into a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "trueno.cli", *args],
        capture_output=True, encoding="utf-8", check=False, env={**os.environ, "PYTHONIOENCODING": "utf-8", **env},
    )  # fmt: skip


def clean(text):
    """No escape codes, no markup, no traceback."""
    return "\x1b" not in text and "[/" not in text and "Traceback" not in text


# ---- demo ------------------------------------------------------------------------------------------


def test_demo_runs_checks_and_sums_up():
    result = run("demo", "--ops", "add,softmax", "--backend", "scalar")
    assert result.exit_code == 0, result.output
    assert clean(result.stdout)
    assert "2 ops on scalar: all right." in result.stdout
    assert "right" in result.stdout and "WRONG" not in result.stdout


def test_demo_leaves_out_what_needs_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    library.cache_clear()
    try:
        result = run("demo", "--ops", "lz4_compress,add", "--backend", "scalar")
        assert result.exit_code == 0, result.output
        assert "1 ops on scalar: all right." in result.stdout
        assert "lz4_compress was left out, lz4: the package is not installed" in result.stdout
        alone = run("demo", "--ops", "lz4_compress", "--backend", "scalar")
        assert alone.exit_code == 2 and "lz4: the package is not installed" in alone.stderr
    finally:
        library.cache_clear()


def test_demo_json_holds_every_row():
    result = run("demo", "--ops", "add,softmax", "--backend", "reference", "--json")
    answer = json.loads(result.stdout)
    assert answer["backend"] == "reference" and answer["summary"]["wrong"] == []
    assert [(r["op"], r["size"]) for r in answer["rows"]] == [
        (op, size) for op in ("add", "softmax") for size in (1000, 100_000, 1_000_000)
    ]
    for row in answer["rows"]:
        assert row["ok"] and row["worst"] <= 1 and row["seconds"] > 0 and row["speedup"] > 0


def test_demo_says_when_a_result_is_wrong(monkeypatch):
    def off_by_one(call):
        def kernel(x, y, out):
            out[...] = x + y + 1
            return 0

        return kernel

    scalar = registry.load("scalar")
    monkeypatch.setattr(type(scalar), "kernel", lambda self, call: off_by_one(call))
    result = run("demo", "--ops", "add", "--backend", "scalar")
    assert result.exit_code == 1
    assert "1 wrong: add" in result.stdout and "WRONG" in result.stdout
    assert "wrong: 1000 of 1000 values" in result.stdout


def test_demo_survives_a_kernel_that_raises(monkeypatch):
    def broken(self, call):
        raise RuntimeError("the compiler is out")

    monkeypatch.setattr(type(registry.load("scalar")), "kernel", broken)
    result = run("demo", "--ops", "add", "--backend", "scalar", "--json")
    assert result.exit_code == 1
    assert "the compiler is out" in json.loads(result.stdout)["rows"][0]["error"]


@pytest.mark.parametrize("args, said", [
    (("demo", "--ops", "sofmax"), 'no op is called "sofmax"; did you mean "softmax"?'),
    (("demo", "--ops", ","), "--ops is ','"),
    (("demo", "--backend", "simdd"), '"simdd" is not installed; did you mean "simd"?'),
    pytest.param(("demo", "--backend", "cuda"), "cuda: no device", marks=WITHOUT_NVIDIA),
    (("ops", "softmx"), 'did you mean "softmax"?'),
    (("ops", "zzzzzz"), "`trueno ops` lists them"),
    (("bench", "multiplyy"), 'did you mean "multiply"?'),
    (("bench", "add", "--sizes", "1000,x"), "--sizes has 'x'"),
    (("bench", "add", "--sizes", "0"), "--sizes has '0'"),
    (("bench", "add", "--dtype", "float23"), "it must be float32 or float64"),
    (("bench", "add", "--backend", "skalar"), 'did you mean "scalar"?'),
    (("bench", "add", "--set", "alpha=1"), "--set has 'alpha'; it has no parameters"),
    (("bench", "elu", "--set", "alpha"), "--set 'alpha' must be NAME=VALUE"),
    (("bench", "elu", "--set", "alpha=x"), "alpha is 'x'; it must be a number"),
    (("bench", "layer_norm", "--set", "eps=-1"), "eps is -1.0, but eps >= 0 must hold"),
    (("bench", "quant_matvec", "--set", "formt=q4_0"), 'did you mean "format"?'),
    (("bench", "quant_matvec", "--set", "format=q9"), "format is 'q9'; it must be 'q4_k' or"),
    (("bench", "quant_matvec", "--set", "format=q4_0", "--set", "format=q4_1"), "--set gives format twice"),
    (("explain", "sum", "8", "--set", "axs=0"), 'did you mean "axis"?'),
    (("warmup", "--dtype", "float16"), "it must be float32 or float64"),
    (("warmup", "--jobs", "-1"), "--jobs is -1"),
    (("warmup", "--backend", "nothing"), '"nothing" is not installed'),
])  # fmt: skip
def test_bad_words_are_one_sentence(args, said):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == "" or args[0] == "demo"
    assert said in result.stderr and result.stderr.startswith("trueno: ")
    assert result.stderr.count("\n") == 1 and clean(result.stderr)


@pytest.mark.parametrize("args", [(), ("gguf",)])
def test_without_words_the_help_has_lines(args):
    result = run(*args)
    assert result.exit_code in (0, 2) and "\\n" not in result.output
    assert len(result.output.splitlines()) > 5


def test_errors_leave_stdout_empty_under_json():
    result = run("demo", "--ops", "sofmax", "--json")
    assert result.exit_code == 2 and result.stdout == ""


# ---- doctor ----------------------------------------------------------------------------------------


def test_doctor_names_backends_settings_and_cache():
    result = run("doctor", "--verbose")
    assert result.exit_code == 0, result.output
    for word in (
        trueno.__version__,
        "NumPy",
        "simd",
        "scalar",
        "reference",
        "TRUENO_FORCE_CPU",
        "Cache:",
        "ok",
    ):
        assert word in result.stdout
    assert clean(result.stdout)


def test_doctor_json():
    answer = json.loads(run("doctor", "--json").stdout)
    assert answer["health"] == "ok" and answer["best"]["name"] in trueno.backends()
    by_name = {b["name"]: b for b in answer["backends"]}
    assert by_name["reference"]["available"] and by_name["cuda"]["status"] in ("available", "no device")
    assert {s["name"] for s in answer["settings"]} == set(settings.all())
    assert all(s["origin"] for s in answer["settings"])


def test_doctor_shows_where_a_value_came_from():
    answer = json.loads(run("doctor", "--json", env={"FORCE_CPU": "1", "TRUENO_BLOCK": "scalar"}).stdout)
    values = {s["name"]: s for s in answer["settings"]}
    assert values["TRUENO_FORCE_CPU"]["value"] is True
    assert values["TRUENO_FORCE_CPU"]["origin"] == "environment FORCE_CPU"
    by_name = {b["name"]: b for b in answer["backends"]}
    assert by_name["scalar"]["status"] == by_name["cuda"]["status"] == "switched off"
    assert answer["health"] == "ok"  # nothing that was asked for is missing


def test_doctor_is_degraded_when_a_backend_fails(monkeypatch):
    def fails(self, level):
        raise OSError("libfoo.so is missing")

    monkeypatch.setattr(type(registry.load("scalar")), "probe", fails)
    result = run("doctor", env={"TRUENO_PROBE": "off"})
    assert result.exit_code == 1
    assert "advice: scalar: OSError: libfoo.so is missing\n" in result.stdout
    assert result.stdout.rstrip().endswith("degraded")


def test_doctor_is_broken_when_a_setting_cannot_be_read():
    result = run("doctor", env={"TRUENO_FORCE_CPU": "perhaps"})
    assert result.exit_code == 2
    assert "broken: TRUENO_FORCE_CPU is 'perhaps'" in result.stdout
    assert json.loads(run("doctor", "--json", env={"TRUENO_FORCE_CPU": "perhaps"}).stdout)["health"] == "broken"


@WITHOUT_NVIDIA
def test_doctor_is_broken_when_the_backend_asked_for_is_not_there():
    result = run("doctor", env={"TRUENO_BACKEND": "cuda"})
    assert result.exit_code == 2 and "broken: cuda: no device" in result.stdout


def test_doctor_says_what_to_install_when_the_core_is_alone():
    result = run("doctor", env={"TRUENO_AUTOLOAD": "0"})
    assert result.exit_code == 0
    assert "only the reference can run" in result.stdout and install("simd") in result.stdout


def test_unknown_settings_are_a_warning_everywhere():
    said = "TRUENO_TREADS is set, but no such setting exists"
    assert f"warning: {said}" in run("doctor", env={"TRUENO_TREADS": "2"}).stdout
    result = child("ops", "add", "--json", TRUENO_TREADS="2")  # once a process
    assert result.returncode == 0 and json.loads(result.stdout)["name"] == "add"
    assert result.stderr.startswith(f"trueno: warning: {said}") and ".py:" not in result.stderr


# ---- ops -------------------------------------------------------------------------------------------


def test_ops_lists_every_op():
    shown = run("ops").stdout
    assert clean(shown) and all(f"  {name} " in shown for name in TABLE)
    assert {op["name"] for op in json.loads(run("ops", "--json").stdout)["ops"]} == set(TABLE)


def test_ops_fits_eighty_columns():
    assert max(map(len, run("ops", env={"COLUMNS": "80"}).stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", TABLE)
def test_ops_tells_all_about_one(name):
    shown = run("ops", name).stdout
    assert TABLE[name].signature.text in shown and clean(shown)
    answer = json.loads(run("ops", name, "--json").stdout)
    assert bool(answer["passes"]) != TABLE[name].structured
    assert answer["kernels"]["reference"] == "yes"
    assert [p["name"] for p in answer["parameters"]] == [p.name for p in TABLE[name].params]


def test_ops_knows_aliases_and_passes():
    assert json.loads(run("ops", "Clip", "--json").stdout)["name"] == ALIASES["clip"]
    assert json.loads(run("ops", "softmax", "--json").stdout)["passes"] == [
        "reads x; folds max",
        "reads x; 2 steps; folds sum; writes y",
        "reads y; 1 step; writes y",
    ]


# ---- bench -----------------------------------------------------------------------------------------


@pytest.fixture
def no_torch(monkeypatch):
    """Importing PyTorch takes seconds."""
    monkeypatch.setattr(peers, "has_torch", lambda: False)


def test_bench_compares_backends_with_numpy(no_torch):
    result = run("bench", "gelu", "--sizes", "100,5_000", "--time", "0.01", "--backend", "scalar,reference")
    assert result.exit_code == 0, result.output
    header = next(line for line in result.stdout.splitlines() if "elements" in line).split()
    assert header == ["elements", "backend", "median", "±", "×", "NumPy", "GB/s", "GFLOP/s"] and clean(result.stdout)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[1] for row in rows if row[:1] == ["100"]] == ["scalar"]
    assert sum("numpy" in row for row in rows) == 2


def test_bench_json(no_torch):
    result = run(
        "bench", "sum", "--sizes", "300", "--time", "0.01", "--backend", "scalar", "--json", "--dtype", "float64"
    )
    (measured,) = json.loads(result.stdout)["runs"]
    assert measured["dtype"] == "float64" and measured["seconds"]["scalar"] > 0 and measured["seconds"]["numpy"] > 0


def test_bench_takes_parameters(no_torch):
    short = ("--sizes", "2000", "--time", "0.01", "--backend", "scalar")
    result = run("bench", "quant_matvec", "--set", "format=Q6_K", "--set", "activations=f32", *short, "--json")
    report = json.loads(result.stdout)
    assert report["set"] == {"format": "q6_k", "activations": "f32"} and report["runs"][0]["seconds"]["scalar"] > 0
    (w, x) = report["runs"][0]["shapes"]
    assert w[1] == x[0] // 256 * 210  # bytes of a row in that format
    result = run("bench", "layer_norm", "--set", "eps=0.5", *short)
    assert result.exit_code == 0 and "float32, eps=0.5\n" in result.stdout
    result = run("explain", "sum", "10x10", "--set", "axis=0", "--set", "keepdims=true", "--backend", "scalar")
    assert result.exit_code == 0, result.output


def test_parameters_reach_kernels_and_peers():
    op = TABLE["elu"]
    plain, other = (sample(op, "float32", 100, parameters=given) for given in (None, {"alpha": 3.0}))
    np.testing.assert_array_equal(plain.operands[0], other.operands[0])
    got = peers.numpy_peer(op, other.operands, other.kwargs)()
    np.testing.assert_array_equal(got, peers.meaning(op, other.operands, {"alpha": 3.0})())
    assert not np.array_equal(got, peers.meaning(op, plain.operands, plain.kwargs)())


@pytest.mark.parametrize("op", TABLE.values(), ids=list(TABLE))
def test_peers_give_the_ops_values(op: Op):
    drawn = sample(op, "float32", 2000)
    peer = peers.numpy_peer(op, drawn.operands, drawn.kwargs)
    with np.errstate(all="ignore"):
        for got, wanted in zip(*map(results, (peer(), peers.meaning(op, drawn.operands, drawn.kwargs)())), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    if op.name in ("exp", "ln", "argmax"):  # NumPy's own takes part; which one is quicker, a stopwatch says
        (own,) = peers.numpy_functions(op, drawn.operands, drawn.kwargs)
        assert isinstance(own, partial) and own.keywords["out"] is not None


def results(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.slow
@pytest.mark.skipif(not peers.has_torch(), reason="PyTorch is not installed")
def test_pytorch_is_found_where_it_has_the_op():
    found = {
        name for name, op in TABLE.items()
        for given in [sample(op, "float32", 2000)] if peers.torch_peer(op, given.operands, given.kwargs)
    }  # fmt: skip
    wanted = (
        "add exp gelu silu softmax log_softmax layer_norm rms_norm sum matmul argmax clamp tanh relu variance norm_l2"
    )
    assert set(wanted.split()) <= found


# ---- warmup ----------------------------------------------------------------------------------------


def test_warmup_compiles_in_children():
    result = run("warmup", "--backend", "scalar", "--ops", "add,softmax", "--jobs", "2", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["failed"] == 0 and answer["jobs"] == 2
    assert [(r["op"], r["dtype"]) for r in answer["rows"]] == [
        (op, dtype) for op in ("add", "softmax") for dtype in ("float32", "float64")
    ]
    assert answer["kernels"] >= 8


def test_warmup_in_this_process():
    result = run("warmup", "--backend", "scalar", "--ops", "add", "--dtype", "float32", "--jobs", "1")
    assert result.exit_code == 0 and "none failed" in result.stdout


def test_warmup_is_honest_about_failures(monkeypatch):
    def fails(self, call):
        raise RuntimeError("LLVM says no")

    monkeypatch.setattr(type(registry.load("scalar")), "kernel", fails)
    result = run("warmup", "--backend", "scalar", "--ops", "add", "--dtype", "float32", "--jobs", "1")
    assert result.exit_code == 1
    assert "failed: add (float32, rank 1, size class 10): RuntimeError: LLVM says no" in result.stdout


def test_a_child_that_dies_takes_one_op_with_it(monkeypatch):
    """The other ops are compiled all the same, by the child that comes after it."""
    start = crew._start
    started = []

    def mortal(backend):
        process = start(backend)
        if not started:
            process.kill()
            process.wait()
        started.append(process)
        return process

    monkeypatch.setattr(crew, "_start", mortal)
    work = [("add", "float32", ()), ("sub", "float32", ())]
    outcomes = {o.op: o for o in crew.compile_all("scalar", work, 1)}
    assert "the compiling process was ended by signal 9" in outcomes["add"].failures[0]
    assert outcomes["sub"].failures == [] and outcomes["sub"].done > 0


def test_a_backend_may_name_its_own_variants(monkeypatch):
    scalar = registry.load("scalar")
    only = next(iter(usual(TABLE["add"], "float32")))
    monkeypatch.setattr(type(scalar), "variants", lambda self, op, dtype: [only], raising=False)
    assert variants("scalar", TABLE["add"], "float32") == [only]


# ---- pipes, colours, and a missing extra -----------------------------------------------------------


def test_a_pipe_gets_plain_text_and_a_terminal_colours():
    assert clean(child("ops", "add").stdout)
    assert "\x1b" in child("ops", "add", FORCE_COLOR="1").stdout
    coloured = child("doctor", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert "\x1b[3" not in coloured and "\x1b[9" not in coloured  # bold may stay; colours may not


def test_the_console_script_shows_no_traceback():
    done = child("ops", "sofmax")
    assert done.returncode == 2 and done.stdout == "" and clean(done.stderr)
    assert child("--version").stdout == f"trueno {trueno.__version__}\n"


def test_an_ascii_terminal_gets_question_marks_and_no_error():
    done = child("ops", "softmax", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "trueno.softmax" in done.stdout


def test_compiling_children_need_neither_typer_nor_rich():
    code = "import sys; import trueno.cli.child; import trueno.cli.plans; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typer", "rich"} & set(done.stdout.split())


# ---- the parts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", TABLE.values(), ids=list(TABLE))
def test_every_op_has_operands_at_every_size(op: Op):
    """What the demo will call exists and is accepted, for ops that are still to come as well."""
    for size in (1, 10, 1000, 100_000):
        drawn = sample(op, "float32", size)
        least = 768 if op.quantized else 0  # a row has a whole block at least
        numbers = sum(x.nbytes // 4 if op.caches and x.dtype == np.uint8 else x.size for x in drawn.operands)
        assert numbers <= 4 * max(size, least) + max(100, 32 * len(drawn.operands))  # a stack of cubes, at the least
        shapes = op.result_shapes(tuple(drawn.shapes), {p.name: drawn.kwargs.get(p.name, p.default) for p in op.static})
        assert all(extent >= 0 for shape in shapes for extent in shape)
    if op.over is None and not op.structured:
        assert sample(op, "float32", 100_000).operands[0].size == 100_000
    assert rejected(op, "reference", "float32") is None


def test_numbers_for_people():
    assert [report.times(r) for r in (0.036, 0.456, 3.21, 12.3, 456.7)] == ["0.04×", "0.5×", "3.2×", "12×", "457×"]
    assert report.geometric_mean([2.0, 8.0]) == pytest.approx(4) and report.geometric_mean([]) is None


def test_json_has_no_nan(capsys):
    report.write_json({"a": float("nan"), "b": (1, float("inf")), 3: {"c": None}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1, None], "3": {"c": None}}


def test_lists_of_words_are_read_strictly():
    assert report.find_sizes("1_000, 5") == [1000, 5]
    assert [op.name for op in report.find_ops("add,ADD, swish")] == ["add", "silu"]
    with pytest.raises(ParameterError, match="float32 or float64"):
        report.find_dtypes("")
