"""The gates about the analyzer of PTX."""

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trueno_cuda.ptx.analyze import report
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.rules import RULES, USUAL, example

VECTOR_ADD = """.version 7.8
.target sm_80
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd4, %rd5;
    cvta.to.global.u64 %rd7, %rd2;
    add.s64 %rd8, %rd7, %rd5;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd6];
    add.f32 %f3, %f2, %f1;
    cvta.to.global.u64 %rd9, %rd3;
    add.s64 %rd10, %rd9, %rd5;
    st.global.f32 [%rd10], %f3;
DONE:
    ret;
}
"""
"""As nvcc prints it.  Counted by a reader: 22 instructions, one flop for 12 bytes, and the registers below."""
COUNTED = {"f32": 3, "b32": 5, "b64": 10, "pred": 1}
ADDRESSES = """.version 7.8
.target sm_80
.address_size 64
.visible .entry turn(.param .u64 out)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b8 tile[1024];
    mov.u32 %r1, %tid.x;
{address}
    st.shared.u32 [{register}], %r1;
    bar.sync 0;
    ld.shared.u32 %r4, [{register}];
    ld.param.u64 %rd4, [out];
    cvta.to.global.u64 %rd5, %rd4;
    mul.wide.u32 %rd6, %r1, 4;
    add.s64 %rd7, %rd5, %rd6;
    st.global.u32 [%rd7], %r4;
    ret;
}}
"""
WIDE = "    mov.u64 %rd1, tile;\n    mul.wide.u32 %rd2, %r1, 4;\n    add.s64 %rd3, %rd1, %rd2;"
NARROW = "    mov.u32 %r2, tile;\n    mad.lo.u32 %r3, %r1, 4, %r2;"
RULE = "shared-64-bit-address"
MISSING = "no-such-file.ptx"


def vector_add_is_analyzed(m: Any) -> None:
    """Analyze vector_add, whose figures a reader has counted, and compare every one of them.

    Instructions, registers by class, two loads and one store of 4 bytes with all their sectors used, one flop for 12
    bytes, memory-bound, occupancy above half, and no finding.
    """
    (entry,) = _analyzed(VECTOR_ADD, USUAL)["entries"]
    memory = [[a["space"], a["kind"], a["bytes"], a["count"], a["sectors"], a["efficiency"]] for a in entry["memory"]]
    roof, registers = entry["roofline"], entry["registers"]
    m.note(kernel=entry["name"], instructions=entry["instructions"], virtual_registers=registers["virtual"])
    m.note(
        live_words=registers["live_words"],
        occupancy=entry["occupancy"]["fraction"],
        memory=[" ".join(map(str, a)) for a in memory],
    )
    m.note(roofline=roof["class"], intensity=roof["intensity"], findings=len(entry["findings"]))
    m.need(
        entry["name"] == "vector_add" and entry["instructions"] == 22, f"{entry['instructions']} instructions, not 22"
    )
    m.need(registers["virtual"] == COUNTED, f"the registers are {registers['virtual']}, not {COUNTED}")
    wanted = [["global", "load", 4, 2, 4, 1.0], ["global", "store", 4, 1, 4, 1.0]]
    m.need(memory == wanted, f"the accesses are {memory}, not {wanted}")
    m.need((roof["flops"], roof["bytes"], roof["class"]) == (1, 12, "memory-bound"), f"the roofline is {roof}")
    m.need(entry["occupancy"]["fraction"] > 0.5, f"the occupancy is {entry['occupancy']['fraction']}")
    m.need(not entry["findings"], f"it finds {[f['rule'] for f in entry['findings']]} in a right kernel")


def wide_addresses_are_found(m: Any) -> None:
    """Analyze one kernel twice, strictly: with 64-bit and with 32-bit addresses of shared memory.

    The rule must report the first at the line of its store, once, and nothing of the second.
    """
    wide = ADDRESSES.format(address=WIDE, register="%rd3")
    narrow = ADDRESSES.format(address=NARROW, register="%r3")
    found, clean = ([f for f in _findings(text, list(RULES)) if f["rule"] == RULE] for text in (wide, narrow))
    line = wide[: wide.index("st.shared")].count("\n") + 1
    m.note(rule=RULE, lines_found=[f["line"] for f in found], line_wanted=line, found_in_32_bits=len(clean))
    m.need([f["line"] for f in found] == [line], f"{RULE} reports the lines {[f['line'] for f in found]}, not {line}")
    m.need(not clean, f"{RULE} reports 32-bit addresses in line {clean[0]['line'] if clean else 0}")


def json_parses(m: Any) -> None:
    """Run `trueno ptx FILE FILE --json`, and read the output by the letter of the standard.

    Nothing else may be printed; no NaN or Infinity, no key twice; and the report must follow its schema, if the package
    `jsonschema` is installed.
    """
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("vector_add.ptx", 'a "quoted"\\name.ptx')]
        paths[0].write_text(VECTOR_ADD)
        paths[1].write_text(ADDRESSES.format(address=WIDE, register="%rd3"))
        answer = m.command("ptx", *map(str, paths), "--json", "--strict", "--no-ptxas")
    m.note(bytes=len(answer.out.encode()), exit_code=answer.code)
    try:
        record = json.loads(answer.out, parse_constant=_refuse, object_pairs_hook=_once)
    except ValueError as error:
        m.need(False, f"the output is not JSON: {error}; {answer.err.strip()[-200:]}")
        return
    names = [Path(one["path"]).name for one in record["files"]]
    m.note(files=names, findings=record["summary"]["findings"], schema="not checked: jsonschema is not installed")
    if find_spec("jsonschema") is not None:
        from jsonschema import Draft202012Validator  # optional

        schema = json.loads(files("trueno_cuda.ptx.analyze").joinpath("schema.json").read_text("utf-8"))
        errors = [error.message for error in Draft202012Validator(schema).iter_errors(record)]
        m.note(schema="followed" if not errors else "broken")
        m.need(not errors, f"the report breaks its schema: {'; '.join(errors[:2])}")
    m.need(names == [path.name for path in paths], f"the report names the files {names}")


def strict_finds_no_less(m: Any) -> None:
    """Analyze the bad example of every rule with the usual rules and with all, as `--strict` does.

    Each finding of the first must be among those of the second, and the second must have more in all.
    """
    lost, counts = [], [0, 0]
    for rule in RULES.values():
        text = example(rule.bad)
        usual, strict = ({(f["rule"], f["line"]) for f in _findings(text, names)} for names in (USUAL, list(RULES)))
        counts = [counts[0] + len(usual), counts[1] + len(strict)]
        lost += [f"{rule.id}: {name} in line {line}" for name, line in sorted(usual - strict)]
    m.note(kernels=len(RULES), usual_rules=len(USUAL), strict_rules=len(RULES))
    m.note(usual_findings=counts[0], strict_findings=counts[1])
    m.need(not lost, f"--strict loses findings: {'; '.join(lost[:3])}")
    m.need(0 < counts[0] < counts[1], f"--strict finds {counts[1]}, and the default {counts[0]}")


def missing_file_is_an_error(m: Any) -> None:
    """Run `trueno ptx` on a file that does not exist.

    The exit code must be 2, stdout empty, and stderr one line that names the file, without a traceback.
    """
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / MISSING)
        answer = m.command("ptx", path)
    said = answer.err.strip()
    m.note(exit_code=answer.code, says=said.replace(path, MISSING)[:120])
    m.need(answer.code == 2, f"the exit code is {answer.code}, not 2")
    m.need(not answer.out, f"stdout has {answer.out[:80]!r}")
    m.need(path in said and "\n" not in said and "Traceback" not in said, f"stderr has {said[-200:]!r}")


def _analyzed(text: str, rules: Any) -> dict[str, Any]:
    return report.report("gate.ptx", text, Launch(None, None, {}, {}), rules, real=False)


def _findings(text: str, rules: Any) -> list[dict[str, Any]]:
    """All findings of a text, of its entries and of the whole."""
    record = _analyzed(text, rules)
    return [*record["findings"], *(f for entry in record["entries"] for f in entry["findings"])]


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


GATES = {
    "F-PTX-EXPLAIN-001": vector_add_is_analyzed,
    "F-PTX-EXPLAIN-002": wide_addresses_are_found,
    "F-PTX-EXPLAIN-003": json_parses,
    "F-PTX-EXPLAIN-004": strict_finds_no_less,
    "F-PTX-EXPLAIN-005": missing_file_is_an_error,
}
