"""`trueno ptx FILE…`: reports, exit codes, errors, and the contract of its JSON."""

import json
import re
import shutil
import sys
from importlib import resources

import jsonschema
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from trueno.errors import ParameterError
from trueno_cuda import commands
from trueno_cuda.ptx import f32, kernel, ptr, u32
from trueno_cuda.ptx.analyze import assembled
from trueno_cuda.ptx.analyze.rules import RULES, example
from typer.testing import CliRunner

BAD, GOOD = RULES["missing-barrier"].bad, RULES["missing-barrier"].good
SCHEMA = json.loads(resources.files("trueno_cuda.ptx.analyze").joinpath("schema.json").read_text("utf-8"))


def ptx(*args, stdin=None):
    return CliRunner().invoke(commands.app, list(map(str, args)), input=stdin)


@pytest.fixture
def file(tmp_path):
    def write(body: str, name: str = "k.ptx"):
        path = tmp_path / name
        path.write_text(example(body))
        return path

    return write


@pytest.mark.parametrize("command", [[], ["analyze"]])
def test_a_file(file, command):
    path = file(BAD)
    result = ptx(*command, path)
    assert result.exit_code == 1, result.output
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "ld.shared" in text)
    column = path.read_text().splitlines()[line - 1].index("ld.shared") + 1
    assert f"{path}:{line}:{column}: critical: thread 0 reads shared memory" in result.stdout
    assert "[missing-barrier]" in result.stdout and "fix: Put bar.sync" in result.stdout
    assert result.stdout.endswith("1 entry in 1 file: 1 critical\n")
    assert ptx(*command, file(GOOD)).exit_code == 0


def test_options_before_the_file_and_stdin(file):
    assert ptx("--json", file(BAD)).exit_code == 1
    result = ptx("-", "--json", stdin=example(GOOD))
    assert result.exit_code == 0 and json.loads(result.stdout)["files"][0]["path"] == "<stdin>"


def test_severities_and_exit_codes(file):
    path = file(RULES["redundant-move"].bad)
    assert ptx(path).exit_code == 0 and "redundant-move" in ptx(path).stdout
    assert ptx(path, "--strict").exit_code == 1
    assert "no findings" in ptx(path, "--ignore", "redundant-move").stdout
    assert "no findings" in ptx(path, "--rule", "dead-code", "--strict").stdout
    waste = file(RULES["uncoalesced-access"].bad)
    assert "uncoalesced-access" in ptx(waste).stdout and "no findings" in ptx(waste, "--bugs").stdout


@pytest.mark.parametrize("args, message", [
    (["nowhere.ptx"], "ptx: nowhere.ptx cannot be read: No such file"),
    (["analyze", "."], "ptx: . cannot be read: Is a directory"),
    (["F", "--rule", "missing-bariers"], "no rule is called 'missing-bariers'; did you mean \"missing-barrier\"?"),
    (["F", "--block", "0"], "--block '0' must be X[,Y[,Z]]"),
    (["F", "--block", "1024,2"], "more than 1024 threads"),
    (["F", "--assume", "n > 4"], "must be NAME % NUMBER == 0"),
    (["F", "--param", "n=x"], "must be NAME=VALUE"),
    (["F", "--arch", "sm_1"], "--arch 'sm_1' is not known"),
])  # fmt: skip
def test_what_cannot_be(file, args, message):
    result = ptx(*[file(GOOD) if a == "F" else a for a in args])
    assert isinstance(result.exception, ParameterError) and message in str(result.exception)


def test_text_that_is_not_ptx(tmp_path):
    path = tmp_path / "x.bin"
    for raw in (b"", b"\x7fELF\x00\xff", b"int main() {}"):
        path.write_bytes(raw)
        result = ptx(path)
        assert isinstance(result.exception, ParameterError) and "is this PTX?" in str(result.exception)


def test_an_unknown_word_is_still_a_command():
    result = ptx("lits")
    assert result.exit_code == 2 and "lits" in result.output


@pytest.mark.parametrize("name", RULES)
def test_json_keeps_its_contract(file, name):
    bodies = RULES[name].bad, RULES[name].good
    paths = [file(body, f"{k}.ptx") for k, body in enumerate(bodies)]
    result = ptx(*paths, "--json", "--no-ptxas", "--block", "128")
    report = json.loads(result.stdout)
    jsonschema.validate(report, SCHEMA)
    assert [f["path"] for f in report["files"]] == list(map(str, paths))
    findings = [f for file in report["files"] for part in (*file["entries"], file) for f in part["findings"]]
    assert report["summary"]["findings"] == len(findings)
    assert not report["files"][1]["findings"]


def test_a_strict_rule_is_for_those_who_ask(file):
    path = file(RULES["shared-64-bit-address"].bad)
    assert "no findings" in ptx(path).stdout
    for option in ("--strict", "--rule=shared-64-bit-address"):
        result = ptx(path, option)
        assert "[shared-64-bit-address]" in result.stdout and result.exit_code == (option == "--strict")


def test_a_baseline_leaves_out_what_it_has(file, tmp_path):
    path, kept = file(BAD), tmp_path / "before.json"
    kept.write_text(ptx(path, "--json", "--block", 128).stdout)
    again = file("mov.u32 %r9, 1;\n" + BAD, "again.ptx")  # another line of another file
    result = ptx(again, "--block", 128, "--baseline", kept)
    assert result.exit_code == 0 and result.stdout.endswith("1 entry in 1 file: no findings, 1 known\n")
    both = file(BAD.replace("ret;", "") + RULES["wrong-space"].bad, "both.ptx")
    report = json.loads(ptx(both, "--json", "--block", 128, "--baseline", kept).stdout)
    jsonschema.validate(report, SCHEMA)
    rules = [f["rule"] for f in report["files"][0]["entries"][0]["findings"]]
    assert report["summary"]["known"] == 1 and "wrong-space" in rules and "missing-barrier" not in rules
    kept.write_text('{"files": 3}')
    for wrong in (kept, tmp_path / "none.json", path):
        assert isinstance(ptx(path, "--baseline", wrong).exception, ParameterError)


@pytest.mark.parametrize("options, code, said", [
    (["--array", "x=f32[128]", "--array", "1=u32[4]", "--param", "n=3", "--block", "128"], 0,
     "run        grid 1x1x1 and block 128x1x1: 896 instructions of threads, no findings\n\n"),
    (["--array", "x=f32[100]", "--param", "y=0", "--param", "n=3", "--block", "128"], 1,
     "no findings\n"),
    (["--array", "x=f32[128]", "--block", "128"], 2, "k: y has neither --param nor --array"),
    (["--array", "x=f32[128]", "--array", "y=f32[1]", "--param", "n=1"], 2, "k: --block is missing"),
    (["--array", "x=q32[128]"], 2, "must be a type and a number of elements, as f32[1024]"),
    (["--array", "x=u8[9999999999]"], 2, "1073741824 is the most"),
    (["--array", "z=u8[9]", "--block", "128"], 2, "no entry has a parameter 'z'"),
])  # fmt: skip
def test_run(file, options, code, said):
    body = """mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
ld.global.u32 %r2, [%rd3]; st.global.u32 [%rd3], %r2; ret;"""
    result = ptx(file(body), "--run", "--no-ptxas", *options)
    if code == 2:
        assert isinstance(result.exception, ParameterError) and said in str(result.exception)
        return
    assert result.exit_code == code
    if code == 0:
        assert said in result.stdout
    else:
        assert "error in the run: x[100]: past the end of x" in result.stdout and "2 in the run" in result.stdout
        report = json.loads(ptx(file(body), "--run", "--no-ptxas", "--json", *options).stdout)
        jsonschema.validate(report, SCHEMA)
        assert report["files"][0]["entries"][0]["run"]["findings"][0]["kind"] == "out-of-bounds"


def test_a_run_names_the_line_of_the_source(file):
    body = """.file 1 "/src/k.cu"
mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
.loc 1 7 2
ld.global.u32 %r2, [%rd3]; ret;"""
    options = "--run", "--no-ptxas", "--array", "x=f32[100]", "--param", "y=0", "--param", "n=3", "--block", "128"
    assert " (/src/k.cu:7): error in the run: x[100]" in ptx(file(body), *options).stdout
    report = json.loads(ptx(file(body), *options, "--json").stdout)
    jsonschema.validate(report, SCHEMA)
    assert report["files"][0]["entries"][0]["run"]["findings"][0]["source"] == "/src/k.cu:7"


def test_run_of_what_the_emulator_does_not_know(file):
    result = ptx(file("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [s, {%r1}]; ret;"), "--run", "--block", 32,
                 "--param", "x=0", "--param", "y=0", "--param", "n=0")  # fmt: skip
    assert result.exit_code == 2 and "run        not possible:" in result.stdout
    assert isinstance(ptx(file(GOOD), "--array", "x=u8[4]").exception, ParameterError)


def test_sarif(file):
    result = ptx(file(BAD), "--sarif")
    (run,) = json.loads(result.stdout)["runs"]
    assert result.exit_code == 1 and run["results"][0]["ruleId"] == "missing-barrier"
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == set(RULES)


def test_figures_of_vector_add(tmp_path):
    """What an element of an array costs, counted by hand."""
    path = tmp_path / "add.ptx"
    path.write_text(ptx("emit", "add", "--arch", "sm_80").stdout)
    entry = json.loads(ptx(path, "--json").stdout)["files"][0]["entries"][0]
    memory = {(m["kind"], m["bytes"]): m for m in entry["memory"]}
    assert set(memory) == {("load", 16), ("store", 16)}
    assert all(m["efficiency"] == 1 for m in memory.values())
    assert entry["roofline"]["class"] == "memory-bound" and entry["roofline"]["intensity"] == pytest.approx(
        1 / 12, abs=1e-4
    )
    assert entry["findings"] == []


def test_registers_of_ptxas_are_labelled(file):
    path = file(GOOD)
    entry = json.loads(ptx(path, "--json", "--no-ptxas").stdout)["files"][0]["entries"][0]
    assert entry["registers"]["real"] is None and entry["occupancy"]["registers_are"] == "virtual"
    assert entry["registers"]["live_words"] == 5
    if assembled.ptxas() is None:
        pytest.skip("ptxas is not installed")
    entry = json.loads(ptx(path, "--json").stdout)["files"][0]["entries"][0]
    assert 4 <= entry["registers"]["real"] <= 16 and entry["occupancy"]["registers_are"] == "real"
    assert shutil.which("nvcc") is None or "reason" not in entry["registers"]


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 11 registers, 1024 bytes smem
info    : used 11 registers, 0 stack, 2048 bytes smem, 556 bytes cmem[0], 0 bytes lmem
"""


@pytest.fixture
def linker(monkeypatch, tmp_path):
    """What runs in place of nvJitLink, on a machine without ptxas: a program that prints this and gives this status."""

    def replace(log: str, status: int) -> None:
        program = tmp_path / "linked.py"
        program.write_text(
            f"import sys\nassert sys.argv[1:] == ['library', 'sm_80']\nprint({log!r})\nsys.exit({status})"
        )
        monkeypatch.setattr(assembled, "ptxas", lambda: None)
        monkeypatch.setattr(assembled, "linker", lambda: "library")
        monkeypatch.setattr(assembled.linked, "__file__", str(program))

    return replace


def test_registers_of_the_linker_are_labelled(file, linker):
    linker(LOG, 0)
    result = ptx(file(GOOD))
    assert "  registers  11 (from nvJitLink), 20 bytes SPILLED\n" in result.stdout and "[spill]" in result.stdout
    report = json.loads(ptx(file(GOOD), "--json").stdout)
    jsonschema.validate(report, SCHEMA)
    registers = report["files"][0]["entries"][0]["registers"]
    assert (registers["real"], registers["real_by"], registers["spill_loads"]) == (11, "nvJitLink", 12)


def test_what_the_linker_refuses(file, linker):
    linker("ptxas application ptx input, line 7; error   : Not a name of any known instruction: 'frob'", 1)
    result = ptx(file(GOOD))
    said = "nvJitLink does not accept this text: line 7: Not a name of any known instruction: 'frob'"
    assert result.exit_code == 0 and said in result.stdout


def test_the_linker_where_it_is_installed(file, monkeypatch):
    if assembled.linker() is None:
        pytest.skip("nvJitLink is not installed")
    monkeypatch.setattr(assembled, "ptxas", lambda: None)
    registers = json.loads(ptx(file(GOOD), "--json").stdout)["files"][0]["entries"][0]["registers"]
    assert registers["real_by"] == "nvJitLink" and 4 <= registers["real"] <= 16


def test_programs_of_packages_are_found(monkeypatch, tmp_path):
    for version in ("cu12", "cu13"):
        tmp_path.joinpath("nvidia", version, "bin").mkdir(parents=True)
        tmp_path.joinpath("nvidia", version, "bin", "ptxas").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert assembled.packaged(*assembled.PROGRAMS) == str(tmp_path / "nvidia" / "cu13" / "bin" / "ptxas")
    assert assembled.packaged("trueno_no_such_package/*") is None


def test_what_is_not_read_is_listed_and_makes_the_exit_code_2(file, tmp_path):
    whole = file(GOOD)
    cut = tmp_path / "cut.ptx"
    cut.write_text("\n".join(whole.read_text().splitlines()[:8]))
    result = ptx(cut)
    assert result.exit_code == 2 and "1 statement was not read" in result.stdout
    assert "k: a brace is not closed" in result.stdout
    assert result.stdout.endswith("1 entry in 1 file: no findings, 1 statement not read\n")
    odd = file("mov.u32 %r1 %r2;\nfrob.u32 [;\nld.global.u32 %r1;\nret;", "odd.ptx")
    result = ptx(odd)
    assert result.exit_code == 2 and "3 statements were not read" in result.stdout
    report = json.loads(ptx(odd, "--json").stdout)
    assert report["summary"]["unread"] == 3 and [n["line"] for n in report["files"][0]["unread"]] == [8, 9, 10]


def test_an_unknown_instruction_is_listed(file):
    path = file(GOOD.replace("ret;", "frobnicate.u32 %r1, %r2; ret;"))
    result = ptx(path)
    line = 1 + path.read_text()[: path.read_text().index("frobnicate")].count("\n")
    assert result.exit_code == 0 and f"  line {line}: frobnicate.u32 %r1, %r2" in result.stdout
    assert "1 instruction that PTX does not have" in result.stdout
    assert result.stdout.endswith("no findings, 1 unknown instruction\n")
    assert ptx(path, "--strict").exit_code == 1
    jsonschema.validate(json.loads(ptx(path, "--json").stdout), SCHEMA)
    if assembled.ptxas() is not None:
        assert f"ptxas does not accept this text: line {line}: Not a name of any known instruction" in result.stdout


LIMITED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n)
DIRECTIVE
{
.reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[512];
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1;
BARRIER
sub.u32 %r5, 127, %r1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];
ld.param.u64 %rd1, [x]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6; ret;
}
"""


@pytest.mark.parametrize("directive, said", [
    (".maxntid 128", "--block 256 is more than .maxntid 128; not applied"),
    (".reqntid 128", "--block 256 differs from .reqntid 128; not applied"),
])  # fmt: skip
def test_a_block_that_an_entry_cannot_have_is_not_applied(tmp_path, directive, said):
    path = tmp_path / "k.ptx"
    path.write_text(LIMITED.replace("DIRECTIVE", directive).replace("BARRIER", "bar.sync 0;"))
    result = ptx(path, "--block", 256)
    assert result.exit_code == 0 and said in result.stdout and "no findings" in result.stdout
    assert "not applied" not in ptx(path, "--block", 128).stdout
    path.write_text(LIMITED.replace("DIRECTIVE", "").replace("BARRIER", "bar.sync 0;"))
    assert "shared-out-of-bounds" in ptx(path, "--block", 256).stdout


@pytest.mark.parametrize("directive, block", [("", 256), (".maxntid 128", 128)])
def test_a_block_that_is_not_known_is_said(tmp_path, directive, block):
    path = tmp_path / "k.ptx"
    path.write_text(LIMITED.replace("DIRECTIVE", directive).replace("BARRIER", ""))
    result = ptx(path)
    note = f"the block is not known, so fewer races and bounds are checked; name it, such as --block {block}"
    assert note in result.stdout
    assert json.loads(ptx(path, "--json").stdout)["files"][0]["entries"][0]["notes"] == [note]
    assert "the block is not known" not in ptx(path, "--block", 128).stdout
    path.write_text(LIMITED.replace("DIRECTIVE", ".reqntid 128").replace("BARRIER", ""))
    assert "the block is not known" not in ptx(path).stdout


@pytest.mark.parametrize("option, fact", [("--param", "{}=4"), ("--assume", "{} % 4 == 0")])
def test_a_fact_about_a_parameter_that_no_entry_has(file, option, fact):
    path = file(GOOD)
    result = ptx(path, option, fact.format("m"))
    assert isinstance(result.exception, ParameterError)
    assert str(result.exception) == "ptx: no entry has a parameter 'm'; k has x, y, n; or name it by its place, from 0"
    wide = file(example(GOOD).replace(".param .u64 x,", ".param .u64 x, .param .u64 z,"), "wide.ptx")
    assert str(ptx(wide, option, fact.format("m")).exception).endswith("; k has x … n; or name it by its place, from 0")
    assert "no entry has a parameter '3'" in str(ptx(path, option, fact.format("3")).exception)
    for name in ("n", "2"):
        assert ptx(path, option, fact.format(name)).exit_code == 0


def test_a_parameter_by_its_place(file):
    body = """ld.param.u32 %r1, [n]; mov.u32 %r2, s; add.u32 %r2, %r2, %r1; st.shared.u32 [%r2], %r1; bar.sync 0;
ld.shared.u32 %r3, [%r2]; ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], %r3; ret;"""
    for name in ("n", "2"):
        assert "shared-out-of-bounds" in ptx(file(body), "--param", f"{name}=1024").stdout
        assert "shared-out-of-bounds" not in ptx(file(body), "--param", f"{name}=1020").stdout


def test_parameters_as_our_builder_names_them(tmp_path):
    """`n` in Python is `arg_n` in the text; both are the parameter, and so is its place."""

    @kernel(threads=32)
    def twice(k, x: ptr(f32), n: u32):
        i = k.tid
        x.store(i, x.load(i, where=i < n) * 2.0, where=i < n)

    path = tmp_path / "twice.ptx"
    path.write_text(twice.build().text)
    for x, n in (("x", "n"), ("arg_x", "arg_n"), ("0", "n"), ("x", "1")):
        result = ptx(path, "--run", "--no-ptxas", "--array", f"{x}=f32[8]", "--param", f"{n}=8")
        assert result.exit_code == 0 and "no findings" in result.stdout
        assert ptx(path, "--run", "--no-ptxas", "--array", f"{x}=f32[7]", "--param", f"{n}=8").exit_code == 1
        assert ptx(path, "--assume", f"{n} % 4 == 0").exit_code == 0
    assert "has arg_x, arg_n" in str(ptx(path, "--param", "m=1").exception)


@pytest.mark.parametrize("blanks", [" ", " \t"])
def test_the_source_of_inlined_code_is_where_it_was_called(tmp_path, blanks):
    """Of two calls within each other the outer one; plain code after it keeps its own place."""
    path = tmp_path / "k.ptx"
    path.write_text(
        example(BAD).replace(
            "ld.shared",
            """
.file 1 "user.cu"
.file 2 "header.h"
.loc 2 20 4, function_name $L__info_string0, inlined_at 1 10 3
.loc 3 30 5, function_name $L__info_string1, inlined_at 2 20 4
ld.shared""".replace(" inlined_at ", f"{blanks}inlined_at "),
        )
    )
    assert "k.ptx:14:1 (user.cu:10): critical" in ptx(path).stdout
    finding = json.loads(ptx(path, "--json").stdout)["files"][0]["entries"][0]["findings"][0]
    assert finding["source"] == "user.cu:10"
    place = json.loads(ptx(path, "--sarif").stdout)["runs"][0]["results"][0]["relatedLocations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "user.cu"}, "region": {"startLine": 10}}
    path.write_text(path.read_text().replace("\nld.shared", "\n.loc 2 20 4\n.loc 3 5 1, inlined_at 2 20 4\nld.shared"))
    assert "(header.h:20)" in ptx(path).stdout


def test_comments_that_excuse_nothing_are_said(file):
    def excused(comment: str, *args):
        return ptx(
            file(BAD.replace("ld.shared.u32 %r6, [%r5];", f"ld.shared.u32 %r6, [%r5]; // ptx: {comment}")), *args
        )

    result = excused("allow(missing-barrier) a test")
    assert result.exit_code == 0 and result.stdout.endswith("no findings, 1 excused\n") and "note:" not in result.stdout
    result = excused("allow(missing-barrier)")
    assert (
        result.exit_code == 1 and "line 9: allow(missing-barrier) has no reason, so it excuses nothing" in result.stdout
    )
    result = excused("allow(missing-barier) a test")
    assert result.exit_code == 1
    assert "note: line 9: no rule is called 'missing-barier'; did you mean \"missing-barrier\"?" in result.stdout
    words = "line 9: allow(dead-code) excuses nothing: line 9 has no such finding"
    assert words in excused("allow(dead-code) a test").stdout
    assert words not in excused("allow(dead-code) a test", "--ignore", "dead-code").stdout
    report = json.loads(excused("allow(dead-code, missing-barrier) a test", "--json").stdout)
    jsonschema.validate(report, SCHEMA)
    assert report["summary"]["excused"] == 1 and [n["line"] for n in report["files"][0]["notes"]] == [9]


def test_json_and_sarif_are_not_printed_together(file):
    result = ptx(file(GOOD), "--json", "--sarif")
    assert isinstance(result.exception, ParameterError) and "choose one" in str(result.exception) and not result.stdout


def test_files_are_reported_although_others_cannot_be_read(file, tmp_path):
    text = tmp_path / "x.txt"
    text.write_text("nothing")
    result = ptx("a/nowhere.ptx", file(BAD), text)
    assert result.stdout.endswith("1 entry in 1 file: 1 critical\n")
    assert isinstance(result.exception, ParameterError)
    assert str(result.exception).startswith("ptx: a/nowhere.ptx cannot be read: No such file or directory; ")
    assert str(result.exception).endswith("is this PTX?")
    result = ptx(text, file(GOOD), "--json")
    assert json.loads(result.stdout)["summary"]["files"] == 1 and isinstance(result.exception, ParameterError)


def test_bank_passes_of_a_block_that_is_assumed(file):
    path = file(RULES["bank-conflict"].bad)
    assert re.search(r": \d+ passes per warp \(block assumed\)\n", ptx(path).stdout)
    assert (
        "passes per warp" in ptx(path, "--block", 64).stdout and "block assumed" not in ptx(path, "--block", 64).stdout
    )
    assert "1 sector per warp" in ptx(file(RULES["missing-bounds-check"].good), "--block", 1).stdout


@pytest.mark.parametrize("rule, words", [
    ("divergent-barrier", "because of the branch at line 8, some threads of the block never reach this barrier"),
    ("missing-barrier", "wrote at line 8, and no barrier separates them on some path"),
    ("partial-shuffle-mask", "the mask 0xffffffff names lane 16, which does not execute this"),
    ("misaligned-vector", "reads 16 bytes from an address that is not a multiple of 16 (4 bytes past one)"),
    ("shared-out-of-bounds", "accesses bytes 4096 to 4099 of s, which has 1024 bytes"),
])  # fmt: skip
def test_sentences(file, rule, words):
    assert words in ptx(file(RULES[rule].bad)).stdout
