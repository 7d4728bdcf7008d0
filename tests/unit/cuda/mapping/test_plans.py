"""`trueno ptx-map`: both plans of synthesized models, against the files as the `gguf` package reads them.

The commands run in one child process, because a plan registers a backend there.
"""

import ast
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from trueno.ops import TABLE

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
pytest.importorskip("gguf")

import gguf

from examples.qwen2.synthesize import SHAPES, synthesize

ROOT = Path(__file__).parents[4]
LAYERS = 28
STEPS = ["norm", "q", "k", "v", "rope", "attention", "output", "norm", "gate", "up", "swiglu", "down"]
PROGRAM = """
import json, sys
from typer.testing import CliRunner
from trueno.cli.app import app
results = [CliRunner().invoke(app, ["ptx-map", *words]) for words in json.load(sys.stdin)]
json.dump([[r.exit_code, r.stdout, r.output] for r in results], sys.__stdout__)
"""
COMMANDS = {
    "reference": ["DEEP", "--json"],
    "fused": ["DEEP", "--plan", "fused", "--json", "--tokens", "37"],
    "tiny": ["TINY", "--plan", "fused"],
    "prefill": ["TINY", "--plan", "fused", "--prefill", "--tokens", "200", "--json"],
    "many": ["TINY", "--prefill", "--json", "--arch", "sm_80"],
    "kernel": ["TINY", "--kernel", "rope_f32"],
    "part": ["TINY", "--kernel", "rms_norm", "--json"],
    "reverse": ["TINY", "--reverse", "quant_rows_q4_k_q8_1"],
    "line": ["TINY", "--reverse", "rows.py:LINE", "--json"],
    "file": ["TINY", "--reverse", "kernels/rope.py", "--json"],
    "page": ["TINY", "--plan", "fused", "--html", "PAGE"],
    "no kernel": ["TINY", "--kernel", "ropes_f32"],
    "no line": ["TINY", "--reverse", "rope.py:1"],
    "no engine": ["TINY", "--plan", "fused", "--engine", "examples.none"],
    "no step": ["TINY", "--plan", "fused", "--engine", "json"],
    "bad engine": ["TINY", "--plan", "fused", "--engine", "engine_that_returns_none"],
    "unwritable": ["TINY", "--html", "/nowhere/page.html"],
    "long": ["TINY", "--tokens", "512"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SHAPES, "deep", (LAYERS, *SHAPES["tiny"][1:-1], False))
        synthesize(str(folder / "deep.gguf"), "deep", "q4_k_m", "llama")
        synthesize(str(folder / "tiny.gguf"), "tiny")
    return folder


@pytest.fixture(scope="module")
def results(folder):
    line = (
        (ROOT / "plugins/cuda/src/trueno_cuda/kernels/quant/rows.py").read_text().split("\ndef _write(")[0].count("\n")
    )
    words = {"DEEP": folder / "deep.gguf", "TINY": folder / "tiny.gguf", "PAGE": folder / "page.html"}
    commands = [
        [str(words.get(w, w)).replace("LINE", str(line + 3)) for w in [*command, "--no-ptxas"]]
        for command in COMMANDS.values()
    ]
    (folder / "engine_that_returns_none.py").write_text("def step(path, backend, tokens, prefill): pass\n")
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.append({str(folder)!r})\n{PROGRAM}"], cwd=ROOT,
                          input=json.dumps(commands), capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(COMMANDS, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def plans(results):
    assert all(results[name][0] == 0 for name in ("reference", "fused", "prefill", "many", "part", "line", "file"))
    return {name: json.loads(out) for name, (code, out, _) in results.items() if out.startswith("{")}


def sizes(path: Path) -> dict[str, tuple[int, list[int]]]:
    """Bytes and NumPy's shape of each tensor, by an independent reader."""
    return {t.name: (int(t.n_bytes), list(map(int, t.shape))[::-1]) for t in gguf.GGUFReader(path).tensors}


# ---- the reference plan ---------------------------------------------------------------------------


def test_reference_has_12_steps_per_layer_and_2(plans):
    launches = plans["reference"]["launches"]
    assert len(launches) == plans["reference"]["summary"]["launches"] == 12 * LAYERS + 2 == 338
    for layer in range(LAYERS):
        assert [one["op"] for one in launches if one["layer"] == layer] == STEPS
    assert [(one["layer"], one["op"]) for one in launches[-2:]] == [("output", "norm"), ("output", "output")]


def test_reference_moves_the_bytes_of_the_files_tensors(plans, folder):
    tensors = sizes(folder / "deep.gguf")
    seen = []
    for one in plans["reference"]["launches"]:
        seen += one["tensors"]
        nbytes = sum(tensors[name][0] for name in one["tensors"])
        if one["op"] in ("q", "k", "v", "output", "gate", "up", "down") and one["kernel"].startswith("quant"):
            n, k = tensors[one["tensors"][0]][1]
            assert one["bytes"] == nbytes + 4 * (n + k)
            assert one["flops"] == 2 * n * k
        elif one["op"] == "norm":
            width = tensors[one["tensors"][0]][1][0]
            first = one["number"] == 0
            assert one["bytes"] == nbytes + 4 * width * (2 if first else 4)
        elif one["op"] == "attention":
            assert one["bytes"] == 4 * (2 * 4 * 64 + 2 * 512 * 2 * 64)  # queries and results; keys and values
        else:
            assert one["op"] in ("rope", "swiglu")
    assert sorted(seen) == sorted(set(tensors) - {"token_embd.weight"})


# ---- the fused plan -------------------------------------------------------------------------------


def test_fused_names_every_tensor_once(plans, folder):
    tensors = sizes(folder / "deep.gguf")
    plan = plans["fused"]
    seen = [name for one in plan["launches"] for name in one["tensors"] if not name.endswith((".keys", ".values"))]
    assert sorted(seen) == sorted(tensors)
    assert [one["layer"] for one in plan["launches"]] == sorted(
        (one["layer"] for one in plan["launches"]), key=lambda x: {"embedding": -1, "output": LAYERS}.get(x, x)
    )
    assert plan["summary"]["launches"] < plans["reference"]["summary"]["launches"] + LAYERS
    shared = [one for one in plan["launches"] if any("attn_q." in name for name in one["tensors"])]
    norm = TABLE["rms_norm"].program().flops
    assert len(shared) == LAYERS and all(len(one["tensors"]) == 4 for one in shared)
    for one in shared:
        rows = sum(tensors[name][1][0] for name in one["tensors"] if "norm" not in name)
        assert one["bytes"] == sum(tensors[name][0] for name in one["tensors"]) + 4 * (256 + rows)
        assert one["flops"] == 2 * 256 * rows + 256 * norm[0] + norm[1]


def test_fused_reads_the_tokens_that_a_sequence_has(plans):
    read = [one for one in plans["fused"]["launches"] if one["kernel"].startswith("attention_decode")]
    assert len(read) == LAYERS
    tokens, row = 38, 2 * 64 * 2  # 37 before the new one; heads, numbers and bytes of a token's keys
    for one in read:
        assert one["flops"] == 2 * tokens * 4 * 128
        parts = one["bytes"] - 2 * tokens * row - 4 * 4 * 64
        assert 0 < parts < 20_000  # the result, and where tokens lie
    brought = [one for one in plans["fused"]["launches"] if one["op"] == "2 × rope, 2 × kv_cache_scatter"]
    turned, numbers = 2 * 4 * 64 * 4, 2 * 64 * 4  # queries read and written; keys, and values
    assert {one["bytes"] for one in brought} == {turned + 2 * (numbers + row) + 8 + 8 + 32 * 8}
    assert len(brought) == LAYERS


def test_a_prompt_of_many_rows(plans, folder):
    tensors = sizes(folder / "tiny.gguf")
    launches = plans["prefill"]["launches"]
    products = [one for one in launches if {"m", "n", "depth"} <= one["numbers"].keys()]
    assert len(products) == 2 * 7
    for one in products:
        m, n, depth = (one["numbers"][name] for name in ("m", "n", "depth"))
        assert m == 200 and one["flops"] == 2 * m * n * depth
        assert one["bytes"] == 2 * (m + n) * depth + 4 * m * n
    decoded = [one for one in launches if one["kernel"].startswith("dequantize")]
    for one in decoded:
        nbytes, (n, k) = tensors[one["tensors"][0]]
        assert one["bytes"] == nbytes + 2 * n * k
    assert len(decoded) == len(products)
    matrices = [name for name, (_, dims) in tensors.items() if len(dims) == 2]
    assert {name for one in launches for name in one["tensors"]} >= set(matrices)


def test_another_architecture_has_its_own_kernels(plans):
    machine = plans["many"]["machine"]
    assert (machine["card"], machine["target"], machine["multiprocessors"]) == ("A100", "sm_80", 108)
    assert plans["reference"]["machine"]["target"] == "sm_90a"
    assert plans["many"]["launches"][0]["op"] == "norm"
    assert not any("wgmma" in kernel["name"] for kernel in plans["many"]["kernels"])


# ---- kernels --------------------------------------------------------------------------------------


def test_the_line_holds_the_def(plans):
    count = 0
    for plan in plans.values():
        for kernel in plan["kernels"]:
            line = (ROOT / kernel["path"]).read_text("utf-8").split("\n")[kernel["line"] - 1]
            name = kernel["function"].rpartition(".")[2]
            assert re.match(rf"\s*def {name}\(", line), (kernel["path"], kernel["line"], line)
            tree = ast.parse((ROOT / kernel["path"]).read_text("utf-8"))
            ends = [n.end_lineno for n in ast.walk(tree) if getattr(n, "lineno", 0) == kernel["line"]
                    and isinstance(n, ast.FunctionDef)]  # fmt: skip
            assert ends == [kernel["last_line"]]
            count += 1
    assert count > 30


def test_times_are_the_machines(plans):
    for plan in plans.values():
        machine = plan["machine"]
        kernels = {kernel["name"]: kernel for kernel in plan["kernels"]}
        for one in plan["launches"]:
            least = max(one["bytes"] / machine["bandwidth"], one["flops"] / (2 * machine["tensor_flops"]))
            most = max(one["bytes"] / machine["bandwidth"], one["flops"] / machine["flops"])
            assert least <= one["seconds"] - machine["launch_seconds"] + 1e-15 and one["seconds"] <= most + 1e-6
            assert one["kernel"] in kernels
        for name, kernel in kernels.items():
            own = [one for one in plan["launches"] if one["kernel"] == name]
            assert kernel["launches"] == len(own) and kernel["bytes"] == sum(one["bytes"] for one in own)
            assert 0 < kernel["occupancy"]["fraction"] <= 1 and kernel["findings"] == []
        assert plan["summary"]["seconds"] == pytest.approx(sum(one["seconds"] for one in plan["launches"]))
        assert "not measurements" in plan["note"]


# ---- what is printed ------------------------------------------------------------------------------


def test_text_lists_layers_that_are_alike_once(results):
    out = results["tiny"][1]
    assert "plan fused: one token after 511, on one H200 (sm_90, 132 multiprocessors; kernels for sm_90a)" in out
    assert out.count("\nlayer ") == 2 and "kernels/caches/bring.py:" in out
    assert re.search(r"^ 2 × |^ 3 × quant_matvec_bias_activation +quant_rows", out, re.M)
    assert re.search(r"^\d+ launches in \d+ steps, of \d+ kernels: .* at least [\d.]+ µs$", out, re.M)


def test_one_kernel(results, plans):
    out = results["kernel"][1]
    assert "rope_f32" in out and "written by" in out and "occupancy" in out and "layers 0 and 1: 1 launch each" in out
    assert {one["op"] for one in plans["part"]["launches"]} == {"norm"}
    assert plans["part"]["summary"]["launches"] == 5


def test_from_a_kernel_back_to_tensors(results, plans):
    out = results["reverse"][1]
    assert re.search(r"layer 0 +output +blk\.0\.attn_output\.weight", out) and "rope" not in out
    assert all("quant/rows.py" in kernel["path"] for kernel in plans["line"]["kernels"])
    assert plans["line"]["summary"]["launches"] == 2 * 7 + 1
    assert {one["op"] for one in plans["file"]["launches"]} == {"rope"}


def test_parity_of_batched_kernels(plans, results, folder):
    """The table, the JSON and the page have every pair; what this plan launches is counted from its launches."""
    parity = {one["kernel"]: one for one in plans["reference"]["parity"]}
    assert len(parity) == 7 and not any(one["violations"] for one in parity.values())
    assert {one["strategy"] for one in parity.values()} == {"grid_y", "register_unroll"}
    launches = plans["reference"]["launches"]
    for name in ("rms_norm", "rope", "swiglu", "quant_rows_q4_k", "quant_rows_q6_k", "softmax"):
        count = sum(one["kernel"].startswith(name) for one in launches)
        assert parity[name]["launches"] == count and (count > 0) == (name != "softmax"), name
    assert "parity: 7 of 7 batched kernels match their form for one vector, by the text alone" in results["tiny"][1]
    page = (folder / "page.html").read_text("utf-8")
    assert 'id="parity"' in page and page.count("<td>matches</td>") == 7


class Reader(HTMLParser):
    """ids, targets of links and addresses of a page, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ids, self.links, self.outside, self.open, self.rows = set(), set(), [], [], 0

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given["id"]} if "id" in given else set()
        self.links |= {given["href"][1:]} if given.get("href", "").startswith("#") else set()
        self.outside += [v for n, v in attrs if n in ("src", "href") and v and not v.startswith(("#", "data:"))]
        self.rows += "data-seconds" in given
        if tag not in ("meta", "link", "input", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()


def test_page(results, folder):
    assert results["page"][0] == 0 and "launches" in results["page"][1]
    text = (folder / "page.html").read_text("utf-8")
    reader = Reader()
    reader.feed(text)
    assert not reader.outside and not reader.open and "<!--" not in text
    assert reader.links <= reader.ids and len(reader.links) >= 10
    assert reader.rows == int(re.search(r": (\d+) launches", results["page"][1])[1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no kernel", "the plan has no kernel 'ropes_f32'"),
        ("no line", "no function at rope.py:1 writes a kernel of this plan; those do: "),
        ("no engine", "there is no module examples.none here"),
        ("no step", "the engine json has no function step(path, backend, tokens, prefill)"),
        ("bad engine", "the engine engine_that_returns_none returned NoneType"),
        ("unwritable", "/nowhere/page.html cannot be written"),
        ("long", "has a context of 512"),
    ],
)
def test_what_is_not_there_is_a_sentence(results, name, words):
    code, out, text = results[name]
    assert code == 2 and not out and words in " ".join(text.split()) and "Traceback" not in text
