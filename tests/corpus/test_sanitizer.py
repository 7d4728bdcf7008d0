"""compute-sanitizer beside our rules, without a GPU: the archive, the launches, and a stand-in for the tool."""

import ctypes
import json
import os
import stat
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from seeds import fresh_seed

from . import sanitizer, sanitizer_prepare
from .launches import Work
from .origins import SEED, Origin
from .ours import analyzer
from .sanitizer_controls import BODIES, controls
from .sanitizer_run import Failure, launch, operands
from .traps import traps

TOOL = """#!/bin/sh
case "$1" in
    --help) echo "--print-limit arg --base-port arg"; exit ;;
    --version) echo "Version 1.0"; exit ;;
esac
tool=$2
for job; do :; done
while [ "${1#/}" = "$1" ]; do shift; done
"$@" >"$job.texts" || exit 1
if grep -q "finds-$tool" $(cat "$job.texts"); then echo "========= ERROR SUMMARY: 1 error"; exit 99; fi
"""
"""It runs the program, then reports what is written in the texts."""
PROGRAM = """
import json, os, pathlib, subprocess, sys
job = json.loads(pathlib.Path(sys.argv[1]).read_text())
states = []
for case in job["cases"]:
    text = pathlib.Path(case["ptx"]).read_text()
    states.append("started")
    pathlib.Path(job["status"]).write_text(json.dumps({"device": "stand-in", "states": states}))
    if "hangs" in text:
        child = subprocess.Popen(["sleep", "600"])
        pathlib.Path(job["status"]).with_suffix(".pids").write_text(f"{os.getpid()} {child.pid}")
        child.wait()
    print(case["ptx"])
    states[-1] = "refused: by the JIT" if "refused" in text else "ran"
pathlib.Path(job["status"]).write_text(json.dumps({"device": "stand-in", "states": states}))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """compute-sanitizer and the runner; a folder for a run."""
    programs = tmp_path / "programs"
    programs.mkdir()
    tool = programs / "compute-sanitizer"
    tool.write_text(TOOL)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    (programs / "runner.py").write_text(PROGRAM)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sanitizer, "RUNNER", programs / "runner.py")
    monkeypatch.setattr(sanitizer, "controls", lambda: {t: (f"finds-{t}", b"") for t in sanitizer.TOOLS})
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def archive(folder: Path, origins: dict[str, str], mutants: list[tuple[str, str, str]]) -> Path:
    """Texts of origins by name; mutants: rule, origin and text.  Our rules find all but those named `hidden`."""
    path = folder / "mutants.zip"
    index = {"seed": 1, "per_fault": 1, "origins": {}, "mutants": [], "left_out": {"a-fault": {"no effect": 2}}}
    with zipfile.ZipFile(path, "w") as file:
        for number, (name, text) in enumerate(origins.items()):
            file.writestr(f"o{number}.ptx", text)
            index["origins"][name] = {"ptx": f"o{number}.ptx", "operands": "x.npz", "entry": "k", "grid": [1, 1, 1],
                                      "block": [1, 1, 1], "shared": 0}  # fmt: skip
        for number, (rule, origin, text) in enumerate(mutants):
            file.writestr(f"m{number}.ptx", text)
            index["mutants"].append({"mutant": f"{number}", "fault": rule, "rule": rule, "static": rule != "hidden",
                                     "origin": origin, "ptx": f"m{number}.ptx", "ours": rule != "hidden"})  # fmt: skip
        file.writestr("index.json", json.dumps(index))
    return path


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that its parent has not asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_table(stand_in, tmp_path):
    """Each tool's reports count for the mutants of originals that no tool reports anything about."""
    origins = {f"quiet{k}": "" for k in range(9)} | {"noisy": "finds-racecheck"}
    mutants = [("race", "quiet0", "finds-racecheck"), ("race", "quiet1", "finds-memcheck finds-racecheck"),
               ("race", "quiet8", "nothing"), ("race", "noisy", "finds-racecheck"),
               ("race", "quiet2", "refused"), ("hidden", "quiet3", "finds-memcheck")]  # fmt: skip
    record = sanitizer.check(archive(tmp_path, origins, mutants), stand_in, 2, 100, 50)
    assert sanitizer.rows(record) == [
        ["race", 3, 3, 2, 1, 2, 0, 0], ["hidden *", 1, 0, 1, 1, 0, 0, 0], ["**all**", 4, 3, 3, 2, 2, 0, 0]
    ]  # fmt: skip
    assert json.loads(json.dumps(record))["noisy"] == {"race": 1} and record["options"] == ["--print-limit=5"]
    words = sanitizer.table(record)
    assert "| race | 3 | 3 | 2 | 1 | 2 | 0 | 0 |" in words and "Refused by the driver: 1." in words
    assert "racecheck 1" in words and "no effect 2" in words and "stand-in" in words and "Version 1.0" in words


def test_what_hangs_is_killed(stand_in, tmp_path, monkeypatch):
    """With its children; the mutant counts as tried."""
    monkeypatch.setattr(sanitizer, "TOOLS", sanitizer.TOOLS[:2])
    record = sanitizer.check(archive(tmp_path, {"o": ""}, [("barrier", "o", "hangs")]), stand_in, 2, 100, 5)
    (row,) = record["mutants"]
    assert {run["state"] for run in row["tools"].values()} == {"hung"}
    assert sanitizer.rows(record)[0] == ["barrier", 1, 1, 0, 0, 0]
    assert "Hung and killed under some tool: 1, of which no tool reports 1." in sanitizer.table(record)
    pids = [int(pid) for path in stand_in.glob("*.pids") for pid in path.read_text().split()]
    assert len(pids) == 4
    while any(map(alive, pids)):
        time.sleep(0.01)


def test_it_stops_in_time(stand_in, tmp_path):
    """What is left is counted."""
    mutants = [("barrier", "o", "hangs") for _ in range(20)]
    record = sanitizer.check(archive(tmp_path, {"o": ""}, mutants), stand_in, 2, 10, 600)
    assert len(record["mutants"]) == 20 and sanitizer.rows(record)[-1][1] == 0
    assert "Left when the time was up: 20." in sanitizer.table(record)


def test_a_tool_that_starts_nothing_is_an_error(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(sanitizer, "RUNNER", tmp_path / "missing.py")
    with pytest.raises(SystemExit, match="does not start the program"):
        sanitizer.check(archive(tmp_path, {"o": ""}, []), stand_in, 2, 100, 50)


# ---- the archive and the launches ---------------------------------------------------------------


class FakeDriver:
    """Device memory as bytes, by address; what a kernel gets."""

    def __init__(self, refuses: str = "") -> None:
        self.memory: dict[int, bytes] = {}
        self.refuses, self.launches = refuses, []

    def call(self, name: str, *arguments) -> None:
        if name == self.refuses:
            raise Failure(f"{name}: CUDA_ERROR_TEST")
        if name == "cuMemAlloc_v2":
            address = 0x7F0000000000 + 4096 * len(self.memory)
            ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_uint64))[0] = address
            self.memory[address] = bytes(arguments[1].value)
        elif name == "cuMemcpyHtoD_v2":
            self.memory[arguments[0].value] = ctypes.string_at(arguments[1], arguments[2].value)
        elif name == "cuLaunchKernel":
            self.launches.append(([size.value for size in arguments[1:8]], arguments[9]))


def test_operands_arrive(tmp_path):
    """From NumPy through the archive to the driver: arrays, numbers of each width, structs, and memory not set."""
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    text = (".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 n, "
            ".param .f64 d, .param .align 4 .b8 s[12], .param .f32 f, .param .u64 b) { ret; }")  # fmt: skip
    a, b = rng.standard_normal((3, 5)).astype(np.float16), rng.integers(0, 99, 7)
    struct = rng.bytes(12)
    file = tmp_path / "operands.npz"
    file.write_bytes(sanitizer_prepare.save(text, "k", Work([a, -3, 0.1, struct, np.float32(0.3), b])))
    kinds = operands(file)
    assert [kind for kind, _ in kinds] == ["pointer", "value", "value", "value", "value", "pointer"]
    values = [np.int32(-3).tobytes(), np.float64(0.1).tobytes(), struct, np.float32(0.3).tobytes()]
    assert [array.tobytes() for _, array in kinds] == [a.tobytes(), *values, b.tobytes()]

    (tmp_path / "k.ptx").write_text(text)
    case = {"ptx": str(tmp_path / "k.ptx"), "operands": str(file), "entry": "k", "grid": [2, 3, 1],
            "block": [32, 2, 1], "shared": 64}  # fmt: skip
    driver = FakeDriver()
    assert launch(driver, case) == "ran"
    ((sizes, pointers),) = driver.launches
    assert sizes == [2, 3, 1, 32, 2, 1, 64] and len(pointers) == 6
    assert list(driver.memory.values()) == [a.tobytes(), b.tobytes()]
    assert launch(FakeDriver("cuModuleLoadDataEx"), case).startswith("refused: cuModuleLoadDataEx: CUDA_ERROR_TEST")
    assert launch(FakeDriver("cuCtxSynchronize"), case) == "failed: cuCtxSynchronize: CUDA_ERROR_TEST"


def test_an_archive(tmp_path):
    """It has mutants that harm, their origins with operands, and the verdict of the rules."""
    chosen = [t for t in traps() if t.name in ("uniform-exit", "double-buffer", "copy-two-groups")]
    origins = [Origin(f"trap:{t.name}", t.text, t.launch.entry, t.launch) for t in chosen]
    path = tmp_path / "mutants.zip"
    index = sanitizer_prepare.prepare(origins, 7, 1, analyzer, path, {"corpus": "traps"})
    with zipfile.ZipFile(path) as file:
        file.extractall(tmp_path)
        assert json.loads(file.read("index.json")) == index
    assert len(index["mutants"]) > 10 and any(m["ours"] for m in index["mutants"])
    assert not {m["rule"] for m in index["mutants"]} & sanitizer_prepare.TEXT_ALONE
    for one in index["mutants"]:
        place = index["origins"][one["origin"]]
        assert (tmp_path / one["ptx"]).read_text() != (tmp_path / place["ptx"]).read_text()
        (trap,) = [t for t in chosen if f"trap:{t.name}" == one["origin"]]
        args = trap.launch.make(np.random.default_rng(SEED)).args
        stored = operands(tmp_path / place["operands"])
        assert len(stored) == len(args)
        for (kind, array), want in zip(stored, args, strict=True):
            assert kind == "value" or np.array_equal(array, want)


@pytest.mark.parametrize(
    ("target", "good"), [("sm_80", True), ("sm_90", True), ("sm_90a", True), ("sm_100", False), ("sm_103f", False)]
)
def test_which_texts_are_for_hopper(target, good):
    assert sanitizer_prepare.for_hopper(f".version 9.5\n.target {target}, debug\n") is good
    assert sanitizer_prepare.loadable(".version 9.5\n.target") == ".version 9.0\n.target"
    assert sanitizer_prepare.loadable(".version 8.8\n.target") == ".version 8.8\n.target"


def test_controls_are_kernels():
    """One for each tool; the emulator's parser reads them."""
    assert set(BODIES) == set(sanitizer.TOOLS)
    for text, _ in controls().values():
        assert sanitizer_prepare.Module(text).kernel("control")


def test_the_runner_needs_no_package_of_ours():
    """compute-sanitizer starts it as a file, in a process that knows no path of ours."""
    text = sanitizer.RUNNER.read_text("utf-8")
    imports = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import", "from"))}
    assert imports <= set(sys.stdlib_module_names) | {"numpy"}
