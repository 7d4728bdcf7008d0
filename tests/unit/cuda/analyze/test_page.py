"""`trueno ptx --html`: one file without addresses, whose pictures are well-formed and whose findings stand in place."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from trueno.errors import ParameterError
from trueno_cuda import commands
from typer.testing import CliRunner

TEXT = """.version 8.0
.target sm_80
.address_size 64
.file 1 "/src/a<b.cu"
.visible .entry k(.param .u64 x, .param .u32 n)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
.shared .align 16 .b8 s[4096];
mov.u32 %r1, %tid.x; mov.u32 %r3, s; // <script>alert(1)</script>
ld.param.u64 %rd1, [x];
ld.param.u32 %r9, [n];
.loc 1 7 0
mul.wide.u32 %rd2, %r1, 12;
add.u64 %rd3, %rd1, %rd2;
ld.global.f32 %f1, [%rd3];
shl.b32 %r4, %r1, 4;
add.u32 %r5, %r3, %r4;
mov.u32 %r7, 0;
LOOP:
st.shared.f32 [%r5], %f1;
setp.lt.u32 %p2, %r7, 3;
@%p2 bra SKIP;
add.f32 %f1, %f1, 0f3F800000;
SKIP:
add.u32 %r7, %r7, 1;
setp.lt.u32 %p1, %r7, %r9;
@%p1 bra LOOP;
xor.b32 %r6, %r4, 1024;
add.u32 %r6, %r6, %r3;
ld.shared.f32 %f2, [%r6];
st.global.f32 [%rd3], %f2;
ret;
}
.func helper() { ret; }
"""


@pytest.fixture
def page(tmp_path):
    (tmp_path / "k&.ptx").write_text(TEXT)
    target = tmp_path / "page.html"
    result = CliRunner().invoke(
        commands.app, [str(tmp_path / "k&.ptx"), "--html", str(target), "--block", "256", "--no-ptxas"]
    )
    assert result.exit_code == 1 and result.stdout == f"{target}: 1 entry in 1 file: 1 critical\n"
    return target.read_text("utf-8")


def row(page: str, line: int) -> str:
    return re.search(rf'<tr id="k0-L{line}">.*?</tr>', page, re.S)[0]


def test_it_needs_no_network_and_text_is_no_markup(page):
    assert not re.search(r"(?:src|href)=\"(?!data:|#)|https?://|@import|url\(", page)
    assert page.count("<script") == page.count("</script>") == 1 and "<!--" not in page
    assert "default-src 'none'" in page and "&lt;script&gt;alert(1)" in row(page, 9)
    assert "a&lt;b.cu:7" in row(page, 13)


def test_lines_bars_and_findings(page):
    assert all(f'<td class="n">{line}</td>' in row(page, line) for line in range(5, 34))
    assert re.search(r'width:\d+px" title="\d+ words', row(page, 13)) and "width" not in row(page, 5)
    assert "[missing-barrier]" in row(page, 30) and 'data-severity="critical"' in row(page, 30)
    assert len(re.findall(r'<div class="finding', page)) == 1
    assert "helper (device function)" in page and '<h2 id="k1">' in page


def test_pictures_are_well_formed(page):
    pictures = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]
    kinds = [svg.get("class") for svg in pictures]
    assert kinds.count("flow") == 2 and kinds.count("lanes") == 4
    flow = pictures[0]
    assert len(flow.findall(".//g")) == 5 and len(flow.findall("path")) == 7  # two branches, the others one arrow each
    assert len(flow.findall("path[@class='back']")) == 1
    assert flow.find(".//g[@class='block depth0 critical']") is not None
    for svg in pictures[1:5]:
        assert len(svg.findall("g/circle")) == 32
    sectors, banks = pictures[1], pictures[2]
    assert "12 sectors" in "".join(sectors.itertext()) and len(sectors.findall(".//rect[@class='used']")) == 12
    assert len(banks.findall(".//rect[@class='clash']")) == 8 and "4 words at most" in "".join(banks.itertext())


def test_a_bank_of_one_word(tmp_path):
    (tmp_path / "k.ptx").write_text(TEXT.replace("shl.b32 %r4, %r1, 4", "shl.b32 %r4, %r1, 2"))
    written(tmp_path, "k.ptx")
    assert "32 banks, 1 word at most in one" in (tmp_path / "page.html").read_text("utf-8")


def written(folder, *words):
    files = [str(folder / word) if word.endswith(".ptx") else word for word in words]
    options = ["--html", str(folder / "page.html"), "--block", "256", "--no-ptxas"]
    result = CliRunner().invoke(commands.app, [*files, *options])
    assert result.exit_code in (0, 1), result.output


def test_of_several_files_each_kernel_names_its_own(tmp_path):
    for name in ("a.ptx", "b.ptx"):
        (tmp_path / name).write_text(TEXT)
    written(tmp_path, "a.ptx", "b.ptx")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '<h2 id="k0">k in a.ptx</h2>' in page and '<h2 id="k2">k in b.ptx</h2>' in page
    assert '<a href="#k2">k in b.ptx: 1 finding</a>' in page and '<a href="#k3">helper in b.ptx</a>' in page


def test_what_a_run_saw_stands_in_place(tmp_path):
    (tmp_path / "k.ptx").write_text(TEXT)
    written(tmp_path, "k.ptx", "--run", "--array", "x=f32[100]", "--param", "n=1")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<b>error in the run</b> x[102]: past the end of x" in row(page, 15) and "[out-of-bounds]" in row(page, 15)
    assert re.search(r'<a href="#k0">k: 1 finding, \d in the run</a>', page)
    assert re.search(r"<p>1 finding, \d in the run\.</p>", page)


def test_every_link_leads_somewhere(page):
    names = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= names


def test_a_page_that_cannot_be_written(tmp_path):
    (tmp_path / "k.ptx").write_text(TEXT)
    result = CliRunner().invoke(commands.app, [str(tmp_path / "k.ptx"), "--html", str(tmp_path / "no" / "page.html")])
    assert isinstance(result.exception, ParameterError) and "cannot be written: No such file" in str(result.exception)
