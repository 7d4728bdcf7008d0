"""The processor's name and facts, from what systems write of it."""

import platform

import pytest
from trueno import machine

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: fpu sse2

processor\t: 1
model name\t: another
"""
BOARD = """processor\t: 0
Features\t: fp asimd
CPU part\t: 0xd08

processor\t: 1
CPU part\t: 0xd08

Hardware\t:
Model\t\t: Raspberry Pi 4 Model B Rev 1.4
"""


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """Writes a file that stands for the system's."""
    monkeypatch.setattr(machine, "CPUINFO", str(tmp_path / "cpuinfo"))
    machine.cpu.cache_clear()
    yield lambda text: (tmp_path / "cpuinfo").write_text(text, "utf-8")
    machine.cpu.cache_clear()


@pytest.mark.parametrize(
    "text, name",
    [
        (X86, "Intel(R) Xeon(R) Platinum 8480C"),
        (BOARD, "Raspberry Pi 4 Model B Rev 1.4"),
        (BOARD.replace("\n\n", f"\n{'x' * 300}\t: 1\n\n") * 60, "Raspberry Pi 4 Model B Rev 1.4"),
    ],
    ids=["x86", "board", "behind many CPUs"],
)
def test_the_name(cpuinfo, text, name):
    cpuinfo(text)
    assert machine.cpu() == name


def test_the_facts_are_of_the_first_cpu(cpuinfo):
    cpuinfo(X86)
    assert machine.cpu_facts() == {
        "processor": "0", "vendor_id": "GenuineIntel", "model": "143",
        "model name": "Intel(R) Xeon(R) Platinum 8480C", "flags": "fpu sse2",
    }  # fmt: skip


def test_without_such_a_file_python_says_the_name(cpuinfo, monkeypatch):
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert machine.cpu() == "arm64" and machine.cpu_facts() == {}


def test_what_is_no_text_is_no_error(cpuinfo, tmp_path):
    (tmp_path / "cpuinfo").write_bytes(b"model name: \xff chip\n")
    assert machine.cpu() == "\ufffd chip"
