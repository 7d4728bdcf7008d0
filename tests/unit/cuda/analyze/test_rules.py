"""Every rule finds its bad kernel, alone, and is silent on its good one, on all of ours, and on what nvcc prints."""

import re
import shutil
import subprocess

import pytest
from trueno_cuda.catalogue import registry
from trueno_cuda.checking import static
from trueno_cuda.ptx.analyze.assembled import assembled, ptxas
from trueno_cuda.ptx.analyze.check import check, check_whole
from trueno_cuda.ptx.analyze.entry import entries
from trueno_cuda.ptx.analyze.finding import CONFIDENCES, SEVERITIES, Finding
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.rules import RULES, USUAL, example
from trueno_cuda.ptx.syntax.parse import parse
from unit.cuda.emulate.test_nvcc import SOURCE


def found(text: str, launch: Launch | None = None, rule: str = "") -> list[Finding]:
    """Findings of the usual rules, and of one more, in a text that has no line the parser cannot read."""
    program = parse(text, tolerant=True)
    assert not program.problems
    rules = [name for name in RULES if name in (*USUAL, rule)]
    parts = entries(program, launch)
    if rule == "spill":
        if ptxas() is None:
            pytest.skip("ptxas is not installed, which alone knows")
        figures, reason = assembled(text, "sm_80")
        assert figures, reason
        for part in parts:
            part.assembled = figures[part.name]
    return check_whole(program, rules) + [f for entry in parts for f in check(entry, rules)]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_and_its_examples(name):
    rule = RULES[name]
    assert rule.severity in SEVERITIES and rule.confidence in CONFIDENCES
    assert {f.rule for f in found(example(rule.bad), rule=name)} == {name}
    assert not found(example(rule.good), rule=name)


@pytest.mark.parametrize("name", RULES)
def test_a_reason_excuses_and_its_lack_does_not(name):
    rule = RULES[name]
    text = example(rule.bad)
    finding = found(text, rule=name)[0]
    lines = text.splitlines()
    line = lines[finding.line - 1]
    for comment, silent in ((f"// ptx: allow({name}) it is a test", True), (f"// ptx: allow({name})", False)):
        lines[finding.line - 1] = f"{line} {comment}"
        left = [f for f in found("\n".join(lines), rule=name) if f.line == finding.line and f.rule == name]
        assert bool(left) is not silent


@pytest.mark.parametrize("name", registry.catalogue())
def test_our_own_kernels_are_silent(name):
    """All builds, for each architecture: what `trueno ptx check --static` looks at."""
    entry = registry.find(name)
    result = static(entry, entry.arches)
    assert result.builds and not result.failures, "\n".join(result.failures)


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
