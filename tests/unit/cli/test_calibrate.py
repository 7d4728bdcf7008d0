"""`trueno calibrate`: what it measures, keeps, leaves out and says."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from time import sleep

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

import typer
from trueno import cachedir
from trueno.calibrate import honesty, measure, store, timing
from trueno.cli import calibrate
from trueno.cli.app import Group
from trueno.discovery import registry
from trueno.discovery.protocol import Rates
from trueno.ops import TABLE
from trueno.select import calibration, cost, predict
from trueno.settings import settings
from typer.testing import CliRunner

app = typer.Typer(cls=Group, add_completion=False, pretty_exceptions_enable=False)
app.command("calibrate")(calibrate.command)


@app.callback()
def root():
    pass


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith("TRUENO_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cachedir, "_said", set())
    monkeypatch.setattr(measure, "SIZES", {"small": (16, 256), "medium": (), "large": (), "huge": ()})
    settings.reload()
    calibration.forget()
    yield
    monkeypatch.undo()
    settings.reload()
    calibration.forget()


def run(*args):
    result = CliRunner().invoke(app, ["calibrate", *args], prog_name="trueno")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def scalar(*args):
    """A quick run on one backend and dtype: its exit code and its JSON."""
    result = run("--backend", "scalar", "--dtype", "float32", "--seconds", "0.2", "--json", *args)
    return result.exit_code, json.loads(result.stdout)


def test_every_class_is_measured_and_kept():
    code, found = scalar()
    assert code == 0
    assert not found["skipped"] and not found["interrupted"]
    classes = {cost.op_class(op) for op in TABLE.values()}
    assert {r["class"] for r in found["rows"]} | {n.split(",")[0] for n in found["not_measured"]} == classes
    assert found["rows"]
    for r in found["rows"]:
        assert r["flops"] > 0 and r["bytes"] > 0 and r["launch_s"] >= 0 and r["samples"] > 0
        assert r["link_bytes"] is None  # no link
    calibration.forget()
    assert len(calibration.load()) == len(found["rows"])
    assert os.path.dirname(found["file"]).endswith("calibration")


def test_what_was_measured_predicts():
    scalar("--seconds", "2")
    *_, call = measure.calls(TABLE["mul"], np.dtype(np.float32), "small")
    found = predict.predict(call, "scalar", Rates(9.0, 1.0, 1.0))
    assert found.source == "measured"
    assert found.seconds < 0.01


def test_people_get_a_table():
    result = run("--backend", "scalar,reference", "--dtype", "float64", "--seconds", "0.1")
    assert result.exit_code == 0, result.output
    assert "scalar" in result.stdout and "reference" in result.stdout
    assert "speeds in" in result.stdout and "kept in" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_short_budget_measures_the_first_and_names_the_rest():
    _, found = scalar("--seconds", "0.1")
    rows, missing = len(found["rows"]), len(found["not_measured"])
    assert rows >= 1
    assert rows + missing == len(measure.items(["scalar"], ["float32"]))


def test_the_cheap_and_common_comes_first(monkeypatch):
    monkeypatch.setattr(measure, "SIZES", {"small": (256,), "medium": (49_152,), "large": (98_304,), "huge": ()})
    found = measure.items(["scalar"], ["float32", "float64"])
    programs = [not i.op.structured for i in found]
    first = programs.index(False)
    assert {(i.dtype, i.band) for i in found[:first]} == {
        (T, band) for T in ("float32", "float64") for band in ("small", "large")
    }
    assert {i.kind for i in found[:first]} == {cost.op_class(op) for op in TABLE.values() if not op.structured}
    heavy = {name for name in TABLE if name.startswith("attention")}
    heavy |= {"matmul", "batched_matmul", "symmetric_eigen", "quant_matmul", "quant_matmul_colmajor"}
    heavy |= {"quantize_rows", "quantize_rows_weighted", "quant_experts"}
    last = [i.kind in heavy for i in found if i.kind not in ("attention_masked", "attention_ragged")]  # near the border
    assert any(last) and all(last[last.index(True) :])


def test_an_item_that_takes_long_leaves_sizes_out(monkeypatch):
    monkeypatch.setattr(measure, "SIZES", {"small": (16, 64, 256, 1024), "medium": (), "large": (), "huge": ()})
    seen = []
    real = measure._reference
    monkeypatch.setattr(measure, "_reference", lambda *args: (seen.append(1), real(*args))[1])
    (item,) = [i for i in measure.items(["scalar"], ["float32"]) if i.kind == "elementwise plain"]
    outcome = measure.measure(item, 0.0)
    assert len(seen) == 1 and len(outcome.rows) == 1 and not outcome.skipped


def test_who_is_far_slower_is_called_once():
    counts = {"slow": 0, "fast": 0}

    def call(name, seconds):
        counts[name] += 1
        sleep(seconds)

    found, failed = timing.race({"slow": lambda: call("slow", 0.05), "fast": lambda: call("fast", 0)}, 0.02)
    assert not failed and found["slow"][1] == 1 and found["fast"][1] > 1
    assert counts["slow"] == 1


def test_what_did_not_fit_says_how_long_all_of_it_needs():
    _, found = scalar("--seconds", "0.1")
    assert found["not_measured"] and found["seconds_of_all"] >= 10
    assert "all of it needs about" in run("--backend", "scalar", "--seconds", "0.1").stdout


def test_what_is_declared_is_judged_for_authors_alone(monkeypatch):
    monkeypatch.setattr(honesty, "misdeclared", lambda name: [f"{name} lies"])
    args = ("--backend", "scalar", "--dtype", "float32", "--seconds", "0.1")
    assert "lies" not in run(*args).stdout
    assert "scalar lies" in run(*args, "-v").stdout
    assert json.loads(run(*args, "--json").stdout)["declared"] == ["scalar lies"]


# ---- versions of backends --------------------------------------------------------------------------


def speed(backend="scalar", version="", measured="2026-01-01"):
    rates = Rates(1e-6, 1e9, 4e9)
    return calibration.Row(backend, "elementwise plain", "float32", "large", rates, 1, 0.0, measured, version)


def test_rows_survive_another_plugin(boxed):
    store.save([speed()])
    before = calibration.fingerprint()
    registry._registered.pop("boxed")
    registry.forget()
    calibration.forget()
    assert calibration.fingerprint() == before
    assert len(calibration.load()) == 1


def test_rows_of_another_version_of_their_backend_do_not_count():
    store.save([speed(), speed("reference", "0.0.1")])
    calibration.forget()
    assert [key[0] for key in calibration.load()] == ["scalar"]
    assert "those of another version of reference are not valid" in store.describe()
    store.save([speed("reference", measured="2026-02-01")])
    calibration.forget()
    assert {key[0] for key in calibration.load()} == {"scalar", "reference"}
    assert "another version" not in store.describe()


def test_where_only_other_versions_were_measured_doctor_says_so():
    store.save([speed("reference", "0.0.1")])
    calibration.forget()
    assert store.describe().startswith("none that is valid; those of another version of reference")


def test_dry_run_runs_nothing(monkeypatch):
    monkeypatch.setattr(measure, "measure", None)
    result = run("--backend", "scalar", "--dtype", "float32", "--dry-run")
    assert result.exit_code == 0
    assert "nothing was run" in result.stdout and "elementwise plain" in result.stdout
    found = json.loads(run("--backend", "scalar", "--dry-run", "--json").stdout)["would_measure"]
    assert {i["dtype"] for i in found} == {"float32", "float64"}
    assert all(i["backends"] == ["scalar"] for i in found)
    assert calibration.load() == {}


def test_ctrl_c_keeps_what_was_measured(monkeypatch):
    real, calls = measure.measure, []

    def third_time(item, budget):
        calls.append(item)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(item, budget)

    monkeypatch.setattr(measure, "measure", third_time)
    code, found = scalar()
    assert code == 130
    assert found["interrupted"] and len(found["rows"]) == 2
    calibration.forget()
    assert len(calibration.load()) == 2


@pytest.mark.parametrize("change, said", [
    (lambda out: 1 / 0, "division by zero"),
    (lambda out: out.fill(7), "wrong numbers"),
    (lambda out: -1, "refuses these operands"),
])  # fmt: skip
def test_a_kernel_that_fails_is_left_out_and_named(monkeypatch, change, said):
    backend = registry.load("scalar")
    real = type(backend).kernel

    def broken(self, call):
        kernel = real(self, call)
        if cost.op_class(call.op) != "fold plain":
            return kernel
        return lambda *args: (kernel(*args), change(args[-1]))[1] or 0

    monkeypatch.setattr(type(backend), "kernel", broken)
    code, found = scalar("--seconds", "2")
    assert code == 0
    assert said in " ".join(found["skipped"])
    assert "fold plain" not in {r["class"] for r in found["rows"]}
    assert "elementwise plain" in {r["class"] for r in found["rows"]}


def test_the_second_run_changes_little(monkeypatch):
    monkeypatch.setattr(store, "KEEP", 1e9)
    scalar()
    before = dict(calibration.load())
    scalar()
    calibration.forget()
    assert {k: calibration.load()[k] for k in before} == before


def test_merge(tmp_path):
    _, found = scalar()
    text = Path(found["file"]).read_text("utf-8")
    other = tmp_path / "other.jsonl"
    other.write_text(text.replace('"scalar"', '"simd"'), "utf-8")
    result = run("--merge", str(other), "--json")
    assert json.loads(result.stdout)["merged"] == len(found["rows"])
    calibration.forget()
    assert {k[0] for k in calibration.load()} == {"scalar", "simd"}


@pytest.mark.parametrize("args, said", [
    (("--backend", "skalar"), "skalar"),
    (("--dtype", "float16"), "float16"),
    (("--merge", "/no/such/file"), "cannot be read"),
    (("--seconds", "inf"), "--seconds is inf"),
    (("--seconds", "nan"), "--seconds"),
])  # fmt: skip
def test_bad_arguments_are_one_sentence(args, said):
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.stderr and "Traceback" not in result.output


def test_without_a_cache_everything_works_and_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(cachedir, "folder", lambda *parts, **more: None)
    code, found = scalar()
    assert code == 0
    assert found["file"] is None and found["rows"]
    assert len(calibration.load()) == len(found["rows"])


# ---- fitting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch, flops", [(1e-6, 1e9), (0.0, 5e10), (1e-3, 1e12)])
def test_a_fit_finds_what_made_the_times(launch, flops):
    works = [cost.Work(n, 4 * n, 3, 4 * n, n) for n in (1e3, 1e5, 1e7)]
    found = measure.fit([(w, launch + w.flops / flops) for w in works])
    assert found.launch_s == pytest.approx(launch, abs=1e-12)
    assert found.flops == pytest.approx(flops, rel=1e-6)
    assert found.bytes == pytest.approx(4 * flops, rel=1e-6)


@pytest.mark.parametrize("times", [
    (1e-6, 1e-6, 1e-6), (3e-6, 2e-6, 1e-6), (1e-9, 1e-3, 1.0), (1e-6, 9e-6, 2e-6), (1.0, 1e-6, 1e-6), (5e-6,),
    (1e-6, 4e-5),
])  # fmt: skip
def test_a_fit_is_speeds_whatever_the_noise(times):
    works = [cost.Work(10.0 ** (3 + i), 10.0 ** (4 + i), 3, 1, 1) for i in range(len(times))]
    found = measure.fit(list(zip(works, times, strict=True)))
    assert cost.refuse(found) == ""
    assert all(math.isfinite(cost.seconds(found, w)) for w in works)


def test_ops_without_flops_are_fitted_by_bytes():
    works = [cost.Work(0.0, n, 2, n, n) for n in (1e3, 1e6)]
    assert measure.fit([(w, 1e-6 + w.bytes / 1e9) for w in works]).bytes == pytest.approx(1e9, rel=1e-6)


def test_one_op_stands_for_each_class():
    found = measure.typical("reference")
    assert {cost.op_class(op) for op in TABLE.values()} == set(found)
    assert all(cost.op_class(op) == kind for kind, op in found.items())


# ---- a backend with arrays of its own --------------------------------------------------------------


class Boxed:
    """An array that NumPy does not know."""

    def __init__(self, data):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def reshape(self, shape):
        return Boxed(self.data.reshape(shape))


class Boxes:
    """The reference, in boxes; its results arrive at `synchronize`."""

    name, kind = "boxed", "cpu"

    def __init__(self):
        self.inner = registry.load("reference")
        self.accuracy = self.inner.accuracy
        self.waiting = []
        self.moved = 0

    def probe(self, level):
        return self.inner.probe(level)

    def supports(self, call):
        return self.inner.supports(call)

    def rates(self, call):
        return Rates(1e-6, 1e9, 1e9, 1e-5, 1e9)

    def kernel(self, call):
        kernel = self.inner.kernel(call)

        def run(*args):
            assert not any(isinstance(a, np.ndarray) for a in args)
            self.waiting.append((kernel, [a.data if isinstance(a, Boxed) else a for a in args]))
            return 0

        return run

    def empty(self, shape, dtype):
        return Boxed(np.empty(shape, dtype))

    def to_device(self, x):
        self.moved += 1
        return Boxed(np.array(x))

    def to_host(self, x, out=None):
        self.synchronize()
        if out is None:
            return np.array(x.data)
        np.copyto(out, x.data)
        return out

    def synchronize(self):
        for kernel, args in self.waiting:
            kernel(*args)
        self.waiting.clear()

    def close(self):
        pass


@pytest.fixture
def boxed():
    backend = Boxes()
    registry.register(
        {"name": "boxed", "api": [1, 1], "kind": "cpu", "tier": 1, "factory": "test:boxed",
         "arrays": ["test:Boxed"], "install": "nothing"},
        factory=backend,
    )  # fmt: skip
    yield backend
    registry._registered.pop("boxed", None)
    registry.forget()


def test_a_foreign_backend_is_measured_in_its_own_arrays_with_its_link(boxed):
    result = run("--backend", "boxed", "--dtype", "float32", "--seconds", "0.3", "--json")
    found = json.loads(result.stdout)
    assert not found["skipped"] and found["rows"]
    for r in found["rows"]:
        assert r["link_s"] >= 0 and r["link_bytes"] > 0
    assert boxed.moved
    *_, call = measure.calls(TABLE["mul"], np.dtype(np.float32), "small")
    here = predict.predict(call, "boxed", boxed.rates(call)).seconds
    there = predict.predict(replace(call, residency="boxed"), "boxed", boxed.rates(call)).seconds
    assert here > there


def test_a_link_that_breaks_leaves_the_backend_out(boxed, monkeypatch):
    monkeypatch.setattr(measure, "LINK_BYTES", (4096, 4100))

    def broken(x):
        if x.size > 1024:
            raise OSError("the bus is gone")
        return Boxed(np.array(x))

    monkeypatch.setattr(boxed, "to_device", broken)
    found = json.loads(run("--backend", "boxed", "--dtype", "float32", "--seconds", "0.1", "--json").stdout)
    assert not found["rows"]
    assert "the bus is gone" in found["skipped"][0]


def test_a_kernel_that_fails_later_is_left_out(monkeypatch):
    backend = registry.load("scalar")
    real = type(backend).kernel

    def tiring(self, call):
        kernel, left = real(self, call), [1]

        def run(*args):
            left[0] -= 1
            if left[0] < 0:
                raise MemoryError("no more")
            return kernel(*args)

        return run

    monkeypatch.setattr(type(backend), "kernel", tiring)
    code, found = scalar()
    assert code == 0
    assert not found["rows"] and "no more" in found["skipped"][0]
