"""Batched kernels and their forms for one vector: what is declared, read and run; the commands that show it."""

import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from tomllib import loads

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

import trueno_cuda
from seeds import fresh_seed
from trueno import hooks
from trueno.backend import TABLE
from trueno.errors import KernelError
from trueno_cuda import commands, counting, gates, pairing
from trueno_cuda.catalogue import parity, registry
from trueno_cuda.catalogue.registry import Watched
from trueno_cuda.gates import model
from trueno_cuda.ptx import kernel, ptr, u32
from trueno_cuda.rows import rowprogram
from trueno_cuda.rows.catalogue import _key
from trueno_cuda.rows.rowprogram import RowKernel
from trueno_cuda.rows.schedule import Schedule, parse
from typer.testing import CliRunner

STRATEGIES = {
    "rms_norm": "grid_y", "softmax": "grid_y", "residual_add": "grid_y", "swiglu": "grid_y", "rope": "grid_y",
    "quant_rows_q4_k": "register_unroll", "quant_rows_q6_k": "register_unroll",
}  # fmt: skip


@pytest.fixture
def rng():
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def pair(name):
    return next(p for p in parity.pairs() if p.name == name)


def test_the_pairs_and_their_strategies():
    assert {p.name: p.parity.strategy for p in parity.pairs()} == STRATEGIES
    assert all(p.violations() == [] for p in parity.pairs())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_batched_launch_has_the_bits_of_single_launches(name, rng):
    device = Watched("sm_90")
    result = parity.compared(pair(name), device, rng)
    assert result.numbers > 0 and result.differing == 0
    assert all(report.completed and not report.findings for report in device.reports)
    batched, *rest = sorted(device.kernels, key=lambda k: k is not pair(name).batched)
    assert batched is pair(name).batched and len(rest) >= 3 and all(k is pair(name).single for k in rest)


@pytest.mark.parametrize(
    "name, old, new, said",
    [
        ("rms_norm", "%ctaid.y", "%ctaid.x", "does not read %ctaid.y"),
        ("quant_rows_q4_k", "%ctaid.x", "%ctaid.y", "but its vectors are in registers"),
        ("quant_rows_q6_k", "dp4a.s32.s32", "mad.lo.s32", "products"),
        ("softmax", "ld.shared.f32 %f", "ld.shared.f32 %f0, [%rd1]; //", "addresses shared memory in 64 bits"),
    ],
)
def test_a_text_that_breaks_its_strategy(name, old, new, said):
    right = pair(name)
    changed = right.batched.text.replace(old, new)
    if changed == right.batched.text:
        changed = right.batched.text.replace("dp4a.", "mad.")
    wrong = replace(right, batched=replace(right.batched, text=changed))
    assert any(said in sentence for sentence in wrong.violations()), wrong.violations()


def test_operands_sizes_and_shared_memory_are_compared():
    right = pair("rms_norm")
    fewer = replace(right, batched=replace(right.batched, params=right.batched.params[1:]))
    assert any("the operands differ: in1, out0, p0 and in0, in1, out0, p0" in s for s in fewer.violations())
    more = replace(right, single=replace(right.single, params=tuple(p for p in right.single.params if p.name != "n")))
    assert any("takes sizes that the single kernel does not have: n" in s for s in more.violations())
    larger = replace(right, batched=replace(right.batched, static_shared=64))
    assert any(
        "has 64 bytes of shared memory, and 1 times the single kernel's are 32" in s for s in larger.violations()
    )
    same = replace(right, batched=right.single)
    assert "the batched kernel is the text of the single one" in same.violations()


# ---- rows along the grid's y ----------------------------------------------------------------------------


def test_schedules_with_rows_along_y():
    assert parse("held256x4y") == Schedule("held", 256, 4, along_y=True)
    assert [str(parse(text)) for text in ("flat256x2y", "held32x8y")] == ["flat256x2y", "held32x8y"]
    for text in ("swept1024x4y", "long256x4c32y", "held2048x8y"):
        with pytest.raises(KernelError, match="rows along y"):
            parse(text)


@pytest.mark.parametrize(
    "op, schedule",
    [("rms_norm", "held32x2y"), ("argmax", "held256x1y"), ("bias_activation", "flat256x1y")],
)
@pytest.mark.parametrize("most", [65535, 2])
def test_more_rows_than_the_grid_has_along_y(monkeypatch, rng, op, schedule, most):
    """The rows are those of one launch where y ends, and of several below each other."""
    monkeypatch.setattr(rowprogram, "ALONG_Y", most)
    row, n, rows = TABLE[op], 77, 37
    shapes = {"e": (rows, n), "w": (n,), "r": (rows,), "u": ()}
    operands = [rng.standard_normal(shapes[kind]).astype(np.float32) for kind in row.layout]
    params = [float(p.default) for p in row.params if p.symbolic]
    results, device = [], Watched("sm_90")
    for name in (schedule, schedule.removesuffix("y")):
        call = RowKernel(device, _key(row, "float32", False), name)
        program = call.program
        node = program.nodes[program.outputs[0]]
        out = device.empty(
            (rows, n) if node.space == "e" else (rows,), np.dtype(np.int64 if node.type == "index" else "f4")
        )
        assert call(*map(device.to_device, operands), *params, out) == 0
        results.append(device.to_host(out))
    assert np.array_equal(*results)
    assert not any(report.findings for report in device.reports)


# ---- the commands ---------------------------------------------------------------------------------------


def ptx(*words):
    return CliRunner().invoke(commands.app, list(words))


def test_the_table_and_json(monkeypatch):
    result = ptx("parity", "--static")
    assert result.exit_code == 0 and "7 of 7 pairs agree (texts alone; nothing ran)" in result.stdout
    assert all(name in result.stdout for name in STRATEGIES)
    monkeypatch.setattr(parity, "pairs", lambda *arch: (pair_of_swiglu,))
    record = json.loads(ptx("parity", "--json", "--seed", "5").stdout)
    assert list(record) == ["backend", "seed", "pairs", "summary"] and record["seed"] == 5
    (one,) = record["pairs"]
    assert one["kernel"] == "swiglu" and one["numbers"] == 20200 and one["differing"] == 0 and one["violations"] == []


pair_of_swiglu = pair("swiglu")


def test_a_difference_is_an_exit_code(monkeypatch):
    wrong = replace(
        pair_of_swiglu,
        batched=replace(pair_of_swiglu.batched, text=pair_of_swiglu.batched.text.replace("mul.f32", "add.f32")),
    )
    monkeypatch.setattr(parity, "pairs", lambda *arch: (wrong,))
    result = ptx("parity")
    assert result.exit_code == 1 and "results differ" in result.stdout and "0 of 1 pairs agree" in result.stdout
    assert pairing.examined("cuda_emulated")["summary"]["good"] is False


def test_distinct_texts_are_counted_once():
    texts, summary = counting.distinct()
    entries = registry.catalogue()
    assert summary["distinct"] == len(texts) == sum(summary["families"].values()) >= 95
    assert summary["entries"] == len(entries) and {t.entry for t in texts} <= set(entries)
    assert summary["texts"] <= summary["printed"] and summary["distinct"] <= summary["texts"]
    softmax = next(t for t in texts if t.entry == "softmax")
    assert softmax.family == "normalization" and softmax.floor.startswith("the bytes of operands and results")
    assert summary["floors"] == len(texts)
    result = ptx("list", "--count")
    assert result.exit_code == 0 and result.stdout.splitlines()[-1] == counting.sentence(summary)
    record = json.loads(ptx("list", "--count", "--json").stdout)
    assert record["summary"] == summary and len(record["kernels"]) == len(texts)


def test_every_entry_states_a_floor():
    without = {f"{entry.name}: {k.name}" for entry, k in counting.printed() if counting.floor(k) == counting.NO_FLOOR}
    assert not without, "state `Floor: …` in the docstring of the function that writes the kernel, or of its module"


def test_a_floor_is_that_of_the_function_or_of_the_module():
    def floor_of(name: str) -> str:
        return counting.floor(registry.build(registry.find(name))[0])

    assert floor_of("matvec") != floor_of("vecmat")  # two functions of one module, each with its own
    assert floor_of("matvec").startswith("m k elements read once") and floor_of("outer").startswith("the result is")

    @kernel(threads=32)
    def stated_by_neither(k, out: ptr(u32)):
        out.store(k.tid, 1)

    assert counting.floor(stated_by_neither.build("sm_90")) == counting.NO_FLOOR


def test_builds_that_differ_in_numbers_and_names_are_one():
    @kernel(threads=32)
    def fill(k, out: ptr(u32), *, N: int, TWICE: bool):
        out.store(k.tid, k.const(u32, N) * 2 if TWICE else k.const(u32, N))

    one, other, twice = (fill.build("sm_90", N=n, TWICE=t) for n, t in ((5, False), (70, False), (5, True)))
    assert one.text != other.text and counting.bare(one) == counting.bare(other) != counting.bare(twice)


def test_the_entry_point_names_the_gates():
    path = Path(trueno_cuda.__file__).parents[2] / "pyproject.toml"
    (value,) = loads(path.read_text())["project"]["entry-points"][hooks.GATES].values()
    assert EntryPoint("ptx", value, hooks.GATES).load() is gates.add


def test_a_source_that_does_not_exist_is_seen():
    here = {"path": __file__, "line": pair.__code__.co_firstlineno, "function": "pair"}
    assert model._missing(here) == ""
    for change in ({"line": 1}, {"path": f"{__file__}.gone"}, {"function": "pairs"}, {"path": None}):
        assert model._missing(here | change), change
