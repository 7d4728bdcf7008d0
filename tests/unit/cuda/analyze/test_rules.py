"""Every rule finds its bad kernel, alone, and is silent on its good one, on all of ours, and on what nvcc prints."""

import re
import shutil
import subprocess

import pytest
from trueno_cuda.catalogue import registry
from trueno_cuda.ptx.analyze.check import check, check_whole
from trueno_cuda.ptx.analyze.entry import entries
from trueno_cuda.ptx.analyze.finding import CONFIDENCES, SEVERITIES, Finding
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.rules import RULES, example
from trueno_cuda.ptx.syntax.parse import parse
from unit.cuda.emulate.test_nvcc import SOURCE


def found(text: str, launch: Launch | None = None) -> list[Finding]:
    """Findings of all rules in a text that has no line the parser cannot read."""
    program = parse(text, tolerant=True)
    assert not program.problems
    return check_whole(program) + [f for entry in entries(program, launch) for f in check(entry)]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_and_its_examples(name):
    rule = RULES[name]
    assert rule.severity in SEVERITIES and rule.confidence in CONFIDENCES
    assert {f.rule for f in found(example(rule.bad))} == {name}
    assert not found(example(rule.good))


@pytest.mark.parametrize("name", RULES)
def test_a_reason_excuses_and_its_lack_does_not(name):
    rule = RULES[name]
    text = example(rule.bad)
    finding = found(text)[0]
    lines = text.splitlines()
    line = lines[finding.line - 1]
    for comment, silent in ((f"// ptx: allow({name}) it is a test", True), (f"// ptx: allow({name})", False)):
        lines[finding.line - 1] = f"{line} {comment}"
        left = [f for f in found("\n".join(lines)) if f.line == finding.line and f.rule == name]
        assert bool(left) is not silent


def catalogue() -> list[tuple[str, str, int]]:
    entries_ = registry.catalogue().values()
    return [(e.name, registry.usual(e), k) for e in entries_ for k in range(len(e.variants))]


@pytest.mark.parametrize("name, arch, variant", catalogue())
def test_our_own_kernels_are_silent(name, arch, variant):
    entry = registry.find(name)
    text = registry.module(registry.build(entry, arch, entry.variants[variant]))
    assert not found(text)


@pytest.fixture(scope="module", params=["-arch=sm_80", "-arch=sm_90 -lineinfo", "-arch=sm_75 -G"])
def nvcc(request, tmp_path_factory) -> str:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = tmp_path_factory.mktemp("nvcc")
    source = SOURCE
    if "sm_75" in request.param:  # it has neither cp.async nor bfloat16 products
        source = source[: source.index("K halves")]
    (folder / "k.cu").write_text(source)
    command = ["nvcc", "-ptx", *request.param.split(), "-o", str(folder / "k.ptx"), str(folder / "k.cu")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "k.ptx").read_text()


def test_what_nvcc_prints_is_silent(nvcc):
    assert not found(nvcc)


SYNC = re.compile(r"(?m)^\s*bar\.sync[^;]*;")
NEEDED = {"matmul": 2, "pipeline": 1}
"""Kernels each of whose barriers orders warps in the same round, and how many are at least found missing."""


def test_a_barrier_that_is_taken_away_is_missed(nvcc):
    tried = 0
    for name, least in NEEDED.items():
        begin = nvcc.find(f".entry {name}(")
        if begin < 0:
            continue
        tried += 1
        missed = 0
        for match in SYNC.finditer(nvcc, begin, nvcc.index("\n}", begin)):
            text = nvcc[: match.start()] + nvcc[match.end() :]
            missed += any(f.rule == "missing-barrier" and f.entry == name for f in found(text))
        assert missed >= least, name
    assert tried
