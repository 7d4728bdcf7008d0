"""The conformance kit itself: a sound backend passes, and each fault is found by the check that is there for it.

The faulty backends are a distribution of their own, made here: a class each, found through entry points as any.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trueno_scalar", reason="the faulty backends are made from the scalar one")

from anomaly.conftest import install
from trueno.discovery import registry
from trueno.dispatch.canonical import canonical
from trueno.dispatch.state import forget_plans
from trueno.ops import TABLE
from trueno.settings import settings
from trueno.testing import declared, hygiene
from trueno.testing.checks import check_batch, check_out, check_values, rejected
from trueno.testing.guards import check_guard
from trueno.testing.kernels import KERNEL_CHECKS, check_guarded, check_lengths, check_memory
from trueno.testing.layouts import SQUARE, TALL, forms, user_shapes
from trueno.testing.ledger import facts
from trueno.testing.rates import compare
from trueno.testing.threads import check_threads

MODULE = '''
import os, signal, time
from dataclasses import replace
import numpy as np
from trueno.discovery.protocol import Accuracy, Probe, Rates, Reject
from trueno_scalar.backend import ScalarBackend


class sound(ScalarBackend):
    def __init__(self):
        self.name = type(self).__name__

    def kernel(self, call):
        bare, count = super().kernel(call), len(call.op.operands)
        return lambda *arguments: self.run(bare, arguments[:count], arguments)

    def run(self, bare, operands, arguments):
        return bare(*arguments)


class writes_then_refuses(sound):
    def run(self, bare, operands, arguments):
        status = bare(*arguments)
        if status == -1 and arguments[-1].flags.writeable:
            arguments[-1][...] = 0
        return status


class takes_any_length(sound):
    def run(self, bare, operands, arguments):
        if len({a.shape for a in (*operands, arguments[-1])}) > 1:
            return 0
        return bare(*arguments)


class goes_forward(sound):
    """relu one element after the other, with no look at what overlaps."""

    def run(self, bare, operands, arguments):
        x, y = operands[0], arguments[-1]
        if x.shape != y.shape or not x.flags.c_contiguous or not y.flags.c_contiguous or not y.flags.writeable:
            return -1
        source, target = x.reshape(-1), y.reshape(-1)
        for i in range(len(source)):
            target[i] = max(source[i], 0) if source[i] == source[i] else source[i]
        return 0


class sees_nothing(sound):
    def kernel(self, call):
        bare = super().kernel(call)
        return lambda *arguments: min(bare(*arguments), 0)


class wrong_word(sound):
    def supports(self, call):
        return Reject("unsupported_op", "not when guarded") if call.guarded else super().supports(call)


class changes_operands(sound):
    def run(self, bare, operands, arguments):
        status = bare(*arguments)
        if status == 0 and operands[0].flags.writeable:
            operands[0][...] = 1
        return status


class no_status(sound):
    def run(self, bare, operands, arguments):
        bare(*arguments)
        return "done"


class stumbles(sound):
    def run(self, bare, operands, arguments):
        raise TypeError("unsupported operand type(s)")


class stumbles_under_guard(sound):
    def kernel(self, call):
        return (lambda *arguments: None + 1) if call.guarded else super().kernel(call)


class slightly_off(sound):
    def run(self, bare, operands, arguments):
        status = bare(*arguments)
        if status == 0:
            arguments[-1][...] *= arguments[-1].dtype.type(1.000001)
        return status


class never_takes(sound):
    def run(self, bare, operands, arguments):
        return -1


class shares_scratch(sound):
    def run(self, bare, operands, arguments):
        self.scratch = operands[0].copy()
        time.sleep(0.0002)
        return bare(self.scratch, *arguments[1:]) if self.scratch.shape == operands[0].shape else bare(*arguments)


class small_only(sound):
    def supports(self, call):
        return Reject("unsupported_shape", "up to 255") if call.sizes[0] > 8 else super().supports(call)


class plain_rows(sound):
    def supports(self, call):
        laid = call.op.quantized and call.op.blocks(dict(call.static)).plain
        return Reject("unsupported_call", f"rows of {laid} interleaved") if laid else super().supports(call)


class takes_interleaved_rows_for_plain(sound):
    def kernel(self, call):
        static = {k: v.removesuffix("_r16") for k, v in call.static}
        return super().kernel(replace(call, static=tuple(static.items())))


class odd_words(sound):
    def supports(self, call):
        return Reject("dont_like_it") if call.op.name == "relu" else super().supports(call)


class exchanges(sound):
    """Divides the wrong way round where the first operand is shared."""

    def kernel(self, call):
        if call.op.name != "div" or call.layout[0] == "e":
            return super().kernel(call)
        other = super().kernel(replace(call, layout=call.layout[::-1]))
        return lambda x, y, z: other(y, x, z)


class broadcasts(sound):
    """Adds with NumPy's own broadcasting wherever the shapes let it."""

    def kernel(self, call):
        bare = super().kernel(call)

        def add(x, y, z):
            status = bare(x, y, z)
            if status == 0 and "r" in call.layout and z.shape[0] == z.shape[1]:
                np.add(x, y, out=z)
            return status

        return add


class warns(sound):
    def run(self, bare, operands, arguments):
        np.zeros(2) / np.zeros(2)
        return bare(*arguments)


class says_yes(sound):
    def supports(self, call):
        return True


class one_error(sound):
    accuracy = Accuracy(ulp=4.0)


class adds_only(sound):
    def supports(self, call):
        return super().supports(call) if call.op.name == "add" else Reject("unsupported_op", "adds only")


class few_layouts(sound):
    def supports(self, call):
        return Reject("unsupported_layout") if call.layout == "eu" else super().supports(call)


class no_speed(sound):
    def rates(self, call):
        return Rates(launch_s=1e-6, flops=float("nan"), bytes=0)


class boasts(sound):
    def rates(self, call):
        return Rates(launch_s=1e-12, flops=1e30, bytes=1e30)


class takes_integers(sound):
    def supports(self, call):
        return None


class takes_nothing(sound):
    def supports(self, call):
        return Reject("unsupported_op", "none")


class half_there:
    name, kind = "somebody", "cpu"

    def probe(self, level):
        return Probe(True)

    def supports(self, call, more):
        return None

    def kernel(self):
        return None


class prints(sound):
    def probe(self, level):
        if level == 2 or self.name != "prints":
            os.write(1, b"hello from C")
        return super().probe(level)


class edits_environment(sound):
    def probe(self, level):
        os.environ["OMP_NUM_THREADS"] = "3"
        os.environ.pop("HOME", None)
        return super().probe(level)


class dies_after_fork(sound):
    def probe(self, level):
        if level == 1:
            self.first = os.getpid()
        if level == 2 and getattr(self, "first", os.getpid()) != os.getpid():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().probe(level)


class changes_its_mind(sound):
    asked = 0

    def probe(self, level):
        verdict = super().probe(level)
        type(self).asked += 1
        return Probe(verdict.ok, verdict.reason, verdict.devices * self.asked)
'''

CLASSES = [line.split()[1].split("(")[0].rstrip(":") for line in MODULE.splitlines() if line.startswith("class ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for sys.path that holds the distribution, as an installer would leave it."""
    made = tmp_path_factory.mktemp("site")
    package, facts = made / "trueno_faulty", made / "trueno_faulty-1.0.dist-info"
    package.mkdir()
    facts.mkdir()
    (package / "__init__.py").write_text("")
    (package / "backend.py").write_text(MODULE)
    lines = ["[trueno.backends]"]
    for name in CLASSES:
        lines.append(f"{name} = trueno_faulty:{name}.toml")
        (package / f"{name}.toml").write_text(
            f'name = "{name}"\napi = [1, 1]\nkind = "cpu"\ntier = 1\nopt_in = true\n'
            f'factory = "trueno_faulty.backend:{name}"\ninstall = "pip install trueno-faulty"\n'
        )
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: trueno-faulty\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return made


@pytest.fixture(autouse=True)
def installed(folder, monkeypatch, tmp_path_factory):
    """The distribution is installed for one test, in this process and its children."""
    for name in [n for n in os.environ if n.startswith("TRUENO_") and n != "TRUENO_CACHE_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRUENO_PROBE", "off")  # a backend that fails its probe would never get as far as the kit
    settings.reload()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    registry.forget()
    yield
    monkeypatch.undo()
    settings.reload()
    registry.forget()
    forget_plans()


OPS = ("relu", "add", "softmax", "sum", "residual_rms_norm", "matmul", "batched_matmul", "embedding_lookup", "argmax")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_a_sound_backend_passes(op, dtype):
    for check in KERNEL_CHECKS.values():
        assert check(TABLE[op], "sound", dtype) > 0


def test_a_sound_backend_says_nothing_wrong():
    assert declared.manifest_problems("sound") == []
    assert declared.protocol_problems("sound") == []
    assert declared.record_problems("sound") == []
    assert declared.array_problems("sound") == []
    assert declared.code_problems("sound") == []
    assert hygiene.probe_problems("sound") == []
    assert hygiene.fork_problems("sound") == []
    assert hygiene.discovery_problems("sound") == []
    assert hygiene.force_cpu_problems("sound") == []


@pytest.mark.parametrize(
    "check, backend, op, said",
    [
        (check_lengths, "writes_then_refuses", "add", "refused after it had written"),
        (check_lengths, "takes_any_length", "add", "it must return -1"),
        (check_memory, "goes_forward", "relu", "begins at element 1 of operand 0"),
        (KERNEL_CHECKS["call"], "exchanges", "div", "layout 'ue'"),
        (KERNEL_CHECKS["call"], "broadcasts", "add", "wrong: "),
        (KERNEL_CHECKS["call"], "warns", "relu", "np.errstate"),
        (check_guarded, "sees_nothing", "relu", "status is 0b0, but the results are 0b"),
        (check_guarded, "sees_nothing", "matmul", "but the results are 0b1"),
        (check_guarded, "wrong_word", "relu", "say 'unguarded'"),
        (KERNEL_CHECKS["call"], "changes_operands", "relu", "an operand was changed"),
        (KERNEL_CHECKS["call"], "no_status", "relu", "the kernel returned 'done'"),
        (KERNEL_CHECKS["call"], "slightly_off", "add", "wrong: "),
        (
            KERNEL_CHECKS["call"],
            "never_takes",
            "add",
            "given x of 65, y of 65, result z of 65, all as they must be, it returned -1",
        ),
        (
            KERNEL_CHECKS["call"],
            "stumbles",
            "add",
            "the kernel raised TypeError: unsupported operand type(s); to refuse",
        ),
        (check_lengths, "stumbles", "add", "the kernel raised TypeError"),
        (check_memory, "stumbles", "add", "the kernel raised TypeError"),
        (check_guarded, "stumbles_under_guard", "add", "guarded, seed 0: the kernel raised TypeError"),
        (check_lengths, "takes_any_length", "add", "given x of 66, y of 65, result z of 65 it must return -1"),
    ],
)
def test_a_fault_of_a_kernel_is_found(check, backend, op, said):
    with pytest.raises(AssertionError) as caught:
        check(TABLE[op], backend, "float32")
    assert said in str(caught.value)
    assert f"{backend}: {op}(" in str(caught.value) and "seed 0" in str(caught.value)


def test_what_is_claimed_and_never_taken_fails():
    with pytest.raises(AssertionError, match="raised KernelError"):
        check_values(TABLE["relu"], "never_takes", "float32")


def test_sizes_that_a_backend_rejects_are_left_out():
    report = check_values(TABLE["relu"], "small_only", "float32")
    assert report.cases > 0 and report.declined > 0
    assert rejected(TABLE["relu"], "small_only", "float32") is None


def test_interleaved_rows_may_be_rejected_but_not_taken_for_plain_ones():
    for name in ("dequantize", "quant_matvec"):
        report = check_values(TABLE[name], "plain_rows", "float32")
        assert report.cases > report.declined > 0
        for check in (check_out, check_batch):
            check(TABLE[name], "plain_rows", "float32")
        with pytest.raises(AssertionError, match=r"format='q4_k_r16'.*wrong: "):
            check_values(TABLE[name], "takes_interleaved_rows_for_plain", "float32")


def test_threads_that_share_scratch_are_found():
    with pytest.raises(AssertionError, match="in thread"):
        check_threads("shares_scratch", "float32")


@pytest.mark.parametrize(
    "backend, said",
    [
        ("no_speed", "rates().flops is nan; it must be a number"),
        ("takes_integers", "takes add in int8"),
        ("takes_nothing", "takes none of the ops"),
    ],
)
def test_impossible_records_are_found(backend, said):
    assert any(said in sentence for sentence in declared.record_problems(backend))


def test_all_that_is_missing_is_said_at_once():
    from trueno_faulty.backend import half_there

    said = "\n".join(declared.member_problems(half_there(), "half_there", "gpu"))
    for sentence in (
        "accuracy is missing",
        "rates(call) is missing",
        "to_host(x, out) is missing",
        "supports(call, more) cannot be called as supports(call)",
        "kernel() cannot be called as kernel(call)",
        "name is 'somebody', but its manifest says 'half_there'",
        "kind is 'cpu', but its manifest says 'gpu'",
    ):
        assert sentence in said


@pytest.mark.parametrize("backend, op", [("exchanges", "div"), ("broadcasts", "add")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wrong_broadcasting_is_found_through_the_public_function(backend, op, dtype):
    with pytest.raises(AssertionError, match=r"layout .*wrong: "):
        check_values(TABLE[op], backend, dtype)


def test_every_layout_is_one_that_the_core_makes():
    for op in TABLE.values():
        for layout in forms(op):
            for rows, n in (TALL, SQUARE):
                assert canonical(op.name, tuple(user_shapes(op, layout, rows, n))).layout == layout, op.name
    assert set(forms(TABLE["div"])) == {"ue", "eu", "we", "ew", "re", "er", "wr", "rw"}


def test_layouts_that_a_backend_rejects_are_named():
    report = check_values(TABLE["add"], "few_layouts", "float32", long=False)
    assert report.layouts == ["eu"] and report.declined > 0


def test_a_warning_of_a_kernel_is_a_fault_with_its_cure():
    with pytest.raises(AssertionError, match=r"np\.errstate"):
        check_values(TABLE["relu"], "warns", "float32")


@pytest.mark.parametrize("backend, said", [("says_yes", "gave True; it must be None"), ("one_error", "ulp is 4.0")])
def test_what_makes_all_the_rest_meaningless_is_said_first(backend, said):
    assert said in "\n".join(declared.blocking_problems(backend))
    assert said in "\n".join(declared.record_problems(backend))


@pytest.mark.parametrize("op", ["ln", "div", "exp", "softmax", "argmax", "matmul", "fma", "transpose", "lerp"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_guards_on_a_sound_backend(op, dtype):
    check_guard(TABLE[op], "sound", dtype)


@pytest.mark.parametrize("op, kind", [("ln", "nan"), ("recip", "inf"), ("exp", "inf")])
def test_a_guard_that_does_not_stop_is_found(op, kind):
    with pytest.raises(AssertionError, match=f"guard on {kind}"):
        check_guard(TABLE[op], "sees_nothing", "float32")


def test_an_optional_method_is_called_as_the_core_does_wherever_there_is_one():
    from trueno_faulty.backend import sound

    backend = sound()
    before = declared.member_problems(backend, "sound", "cpu")
    backend.own_environment, backend.limits = lambda: True, {"threads": 1}
    (wrong,) = set(declared.member_problems(backend, "sound", "cpu")) - set(before)
    assert "own_environment() cannot be called as own_environment(call)" in wrong


def test_a_foreign_backend_must_copy():
    from trueno_faulty.backend import sound

    assert "copy(x, out) is missing" in declared.member_problems(sound(), "sound", "cpu", foreign=True)


@pytest.mark.parametrize("op", ["scale", "lerp", "clamp"])
def test_threads_give_the_parameters_that_an_op_demands(op, monkeypatch):
    monkeypatch.setattr("trueno.testing.threads.CHOSEN", (op,))
    assert check_threads("sound", "float32") == 1


def test_words_of_its_own_are_a_fault_and_names_a_remark():
    assert "dont_like_it" in declared.code_problems("odd_words")[0]
    assert any("trueno-faulty" in remark for remark in declared.name_remarks("sound"))


def test_rates_that_boast_are_off():
    rows = compare("boasts", "float32", ops=("add",))
    assert rows and all(row.off for row in rows)


@pytest.mark.parametrize(
    "backend, said",
    [
        ("prints", "prints on stdout: 'hello from C"),
        ("edits_environment", "changed the environment variable OMP_NUM_THREADS"),
        ("edits_environment", "changed the environment variable HOME"),
        ("changes_its_mind", "another verdict the second time"),
    ],
)
def test_bad_manners_of_a_probe_are_found(backend, said, monkeypatch):
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/nowhere"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert said in "\n".join(hygiene.probe_problems(backend))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_probe_that_a_fork_breaks_is_found():
    assert "signal 9" in "\n".join(hygiene.fork_problems("dies_after_fork"))


def kit(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The kit as its users run it, in a folder of no project."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "trueno.testing.plugin", "-p", "no:cacheprovider"]
    command += ["--pyargs", "trueno.testing", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_kit_reports_a_pass(tmp_path):
    done = kit("--trueno-backend", "sound", "--trueno-ops", "relu,matmul", "--trueno-json", "r.json", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "sound conforms" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert report["ok"] is True and report["quick"] is False
    (backend,) = report["backends"]
    assert backend["distribution"] == "trueno-faulty" and backend["counts"]["failed"] == 0
    assert {(row["op"], row["dtype"]) for row in backend["ops"]} == {
        (op, dtype) for op in ("relu", "matmul") for dtype in ("float32", "float64")
    } | {("matmul", "float16"), ("matmul", "bfloat16")}
    assert all(row["verdict"] == "pass" and row["cases"] > 0 for row in backend["ops"])
    assert backend["rates"] and {"declared", "measured", "ratio"} <= set(backend["rates"][0])


def test_the_kit_judges_16_bit_floats(tmp_path):
    """All ops that are asked for, by the same rules."""
    wanted = ("--trueno-ops", "relu,matmul", "--trueno-dtype", "float16,bfloat16", "--trueno-json", "r.json")
    done = kit("--trueno-backend", "sound", *wanted, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    (backend,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["backends"]
    assert {(row["op"], row["dtype"]) for row in backend["ops"] if row["cases"]} == {
        (op, dtype) for op in ("relu", "matmul") for dtype in ("float16", "bfloat16")
    }


def test_several_workers_report_what_one_does(tmp_path):
    """The process that reports has judged nothing itself, and hears of ops in any order."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    wanted = ("--trueno-ops", "relu,add,matmul", "--trueno-dtype", "float32", "-k", "values or names or manifest")
    reports = []
    for number, several in enumerate(((), ("-n", "2"))):
        path = f"{number}.json"
        done = kit("--trueno-backend", "sound", *wanted, "--trueno-json", path, *several, folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        reports.append(json.loads((tmp_path / path).read_text("utf-8")))
    one, two = (report["backends"][0] for report in reports)
    assert [row["op"] for row in two["ops"]] == [name for name in TABLE if name in ("relu", "add", "matmul")]
    assert one.pop("tests") and two.pop("tests")
    assert one == two


def test_what_is_reported_of_a_backend_that_only_workers_loaded():
    registry.forget()
    assert facts("sound")["accuracy"]["chain"] > 0


def test_the_kit_reports_a_failure(tmp_path):
    wanted = ("--trueno-ops", "add", "--trueno-dtype", "float32", "-k", "test_values or test_records or test_threads")
    done = kit("--trueno-backend", "slightly_off", *wanted, "--trueno-json", "r.json", folder=tmp_path)
    assert done.returncode == 1
    assert "slightly_off does not conform" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))
    failures = report["backends"][0]["failures"]
    assert report["ok"] is False
    assert "test_values[add-slightly_off-float32]" in [f["test"] for f in failures]
    assert all("wrong: " in f["message"] for f in failures)


def test_the_kit_shows_what_a_kernel_raises(tmp_path):
    """First, and for what it is: not as a call that no backend takes."""
    wanted = ("--trueno-ops", "add", "--trueno-dtype", "float32", "-k", "test_kernels or test_values")
    done = kit("--trueno-backend", "stumbles", *wanted, "--trueno-json", "r.json", folder=tmp_path)
    assert done.returncode == 1
    failures = json.loads((tmp_path / "r.json").read_text("utf-8"))["backends"][0]["failures"]
    assert {f["test"].partition("[")[0] for f in failures} == {"test_kernels", "test_values"}
    assert all("TypeError: unsupported operand type(s)" in f["message"].splitlines()[0] for f in failures), failures


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--trueno-backend", "sounds"), 'did you mean "sound"'),
        (("--trueno-backend", "sound", "--trueno-ops", "rellu"), "did you mean"),
        (("--trueno-backend", "sound", "--trueno-dtype", "float8"), "'float8' is not a dtype"),
    ],
)
def test_what_cannot_be_judged_is_an_error_with_its_reason(arguments, said, tmp_path):
    done = kit(*arguments, folder=tmp_path)
    assert done.returncode == 4
    assert said in done.stderr + done.stdout


def test_ops_that_it_does_not_take_say_nothing_about_it(tmp_path):
    done = kit("--trueno-backend", "adds_only", "--trueno-ops", "exp", "--trueno-json", "r.json", folder=tmp_path)
    assert done.returncode == 5, done.stdout
    assert "adds_only cannot be judged: it takes none of these ops: exp" in done.stdout
    assert "not taken, unsupported_op: 1 ops: exp" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["ok"] is False


@pytest.mark.parametrize("backend, said", [("says_yes", "gave True"), ("one_error", "accuracy.ulp is 4.0")])
def test_an_answer_of_the_wrong_type_stops_the_rest(backend, said, tmp_path):
    done = kit("--trueno-backend", backend, "--trueno-ops", "add", "-k", "records or values", folder=tmp_path)
    assert done.returncode == 1
    assert "does not conform: 1 tests failed" in done.stdout and said in done.stdout


@pytest.mark.parametrize("path, said", [("nowhere/r.json", "there is no folder"), (".", "is a folder")])
def test_a_report_that_cannot_be_written_is_said_before(path, said, tmp_path):
    done = kit("--trueno-backend", "sound", "--trueno-json", path, folder=tmp_path)
    assert done.returncode == 4 and said in done.stdout + done.stderr


def test_an_unavailable_backend_is_an_error_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUENO_BLOCK", "sound")
    done = kit("--trueno-backend", "sound", folder=tmp_path)
    assert done.returncode == 4
    assert "TRUENO_BLOCK" in done.stderr + done.stdout


def test_a_device_that_is_lost_is_said_once(tmp_path, monkeypatch):
    """By the test in which it happens, and by the next one, which names that; the others are skipped."""
    install(tmp_path, "fake")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    for word, value in (("AT", "8"), ("WITH", "lost"), ("KIND", "kernel")):
        monkeypatch.setenv(f"TRUENO_FAKE_FAIL_{word}", value)
    wanted = ("--trueno-ops", "relu,add,exp", "--trueno-dtype", "float32", "-k", "test_kernels or test_values")
    done = kit("--trueno-backend", "fake", *wanted, "--trueno-json", "r.json", folder=tmp_path)
    assert done.returncode == 1, done.stdout
    (report,) = json.loads((tmp_path / "r.json").read_text("utf-8"))["backends"]
    culprit, after = report["failures"]
    assert "fails at kernel 8" in culprit["message"] and culprit["test"] == "test_kernels[relu-fake-float32]"
    assert after["message"].startswith(f"Failed: fake was lost in {culprit['test']} (")
    assert report["counts"] == {"passed": 0, "failed": 2, "skipped": 4}
    assert "not judged: 1 ops: exp" in done.stdout and "fake does not conform: 2 tests failed" in done.stdout
