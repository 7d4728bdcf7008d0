"""`trueno lz4`: files there and back, beside the package lz4; nothing is overwritten, and nothing half written."""

import json
import os
import re
import subprocess
import sys

import lz4.frame
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from seeds import fresh_seed
from trueno.cli.app import app
from trueno.formats.lz4_samples import pages
from trueno.text import number
from typer.testing import CliRunner


def run(*args, stdin=None):
    wide = {"COLUMNS": "120"}  # so that no cell of a table wraps
    return CliRunner().invoke(app, ["lz4", *map(str, args)], input=stdin, prog_name="trueno", env=wide)


@pytest.fixture
def data(tmp_path):
    import numpy as np

    path = tmp_path / "data"
    path.write_bytes(pages(20, 4096, np.random.default_rng(fresh_seed())).tobytes() + b"end")
    return path


def test_a_file_there_and_back(data, tmp_path):
    packed, back = tmp_path / "data.lz4", tmp_path / "back"
    done = run("compress", data, packed, "--checksum", "--page", 1000, "--level", 2)
    assert done.exit_code == 0 and f"{number(81923)} bytes became {number(packed.stat().st_size)} " in done.stdout
    assert lz4.frame.decompress(packed.read_bytes()) == data.read_bytes()
    assert packed.stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022))
    done = run("decompress", packed, back, "--quiet")
    assert done.exit_code == 0 and not done.stdout and back.read_bytes() == data.read_bytes()
    (fact,) = json.loads(run("info", packed, "--json").stdout)["frames"]
    assert (fact["pages"], fact["content"], fact["linked"], fact["checksum"]) == (82, 81923, False, True)
    assert "independent" in run("info", packed).stdout


@pytest.mark.parametrize(
    "options, said",
    [
        ({}, "none"),
        ({"block_checksum": True}, "pages"),
        ({"content_checksum": True}, "content"),
        ({"block_checksum": True, "content_checksum": True}, "pages and content"),
    ],
)
def test_info_says_what_has_checksums(options, said, tmp_path):
    path = tmp_path / "x.lz4"
    path.write_bytes(lz4.frame.compress(b"x", **options))
    (fact,) = json.loads(run("info", path, "--json").stdout)["frames"]
    assert fact["page_checksums"] == ("pages" in said) and fact["checksum"] == ("content" in said)
    row = run("info", path).stdout.splitlines()[2]
    assert re.search(r"(linked|independent) +(.*?) *$", row)[2] == said


def test_one_byte_is_one_byte(tmp_path):
    (tmp_path / "one").write_bytes(b"x")
    assert "1 byte became 24" in run("compress", tmp_path / "one", tmp_path / "one.lz4").stdout


def test_pipes(data, tmp_path):
    content = data.read_bytes()
    packed = run("compress", "-", "-", stdin=content)
    assert packed.exit_code == 0 and lz4.frame.decompress(packed.stdout_bytes) == content
    assert f"{number(81923)} bytes became" in packed.stderr
    assert run("decompress", "-", "-", stdin=packed.stdout_bytes).stdout_bytes == content
    assert run("compress", "-", tmp_path / "empty", stdin=b"").exit_code == 0
    assert run("decompress", tmp_path / "empty", "-").stdout_bytes == b""


@pytest.mark.skipif(sys.platform == "win32", reason="closes streams as a shell of Unix does")
@pytest.mark.parametrize("closed, number", [("stdin", 0), ("stdout", 1)])
def test_a_closed_stream_is_an_error(closed, number, tmp_path):
    command = [sys.executable, "-m", "trueno.cli", "lz4", "compress", "-", "-"]
    start = f"import os, sys; os.close({number}); os.execv(sys.executable, {command!r})"
    done = subprocess.run([sys.executable, "-c", start], input=b"", capture_output=True, check=False)
    assert done.returncode == 2 and done.stderr.decode().startswith(f"trueno: lz4: {closed} is closed; give the name")


def test_nothing_is_overwritten_or_half_written(data, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    broken = tmp_path / "broken.lz4"
    broken.write_bytes(lz4.frame.compress(data.read_bytes(), content_checksum=True)[:-1] + b"?")
    before = sorted(os.listdir(tmp_path))
    for args, words in (
        (("compress", data, target), "exists already; replace it with --force"),
        (("decompress", broken, target, "--force"), "the checksum of its content is 0x"),
        (("decompress", data, target, "--force"), "frame 0 at byte 0: it begins with"),
        (("decompress", broken, target, "--force", "--limit", 100), "100 are allowed"),
        (("compress", data, data, "--force"), "is the input file"),
        (("compress", data, tmp_path, "--force"), "is a folder"),
        (("compress", data, target, "--force", "--page", 0), "page is 0"),
        (("compress", tmp_path / "nothing", target, "--force"), "cannot be read"),
        (("compress", data, tmp_path / "no" / "such"), "cannot be written"),
        (("info", target), "it begins with"),
    ):
        done = run(*args)
        assert done.exit_code == 2 and words in done.stderr.replace("\n", ""), (args, done.stderr)
        assert target.read_bytes() == b"precious" and sorted(os.listdir(tmp_path)) == before
    assert run("compress", data, target, "--force").exit_code == 0
    assert lz4.frame.decompress(target.read_bytes()) == data.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="links and devices of a Unix")
def test_links_and_devices_stay_what_they_are(data, tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert run("compress", data, link, "--force").exit_code == 0
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert lz4.frame.decompress(real.read_bytes()) == data.read_bytes()
    assert run("compress", data, "/dev/null").exit_code == 0 and not os.path.isfile("/dev/null")
    command = [sys.executable, "-m", "trueno.cli", "lz4", "decompress", "-", "-"]
    done = subprocess.run(command, input=real.read_bytes(), capture_output=True, check=True)
    assert done.stdout == data.read_bytes()
