"""Compiled kernels on disk: each is found again by what it is, and never given out for another."""

import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno_simd.store import _Files

SSE2, AVX2 = ("x86_64-unknown-linux-gnu", "x86-64", ""), ("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2")


def key(target, code="3a"):
    return ("(float32[::1],)", target, (code, ""))


def test_two_processes_that_compile_for_two_targets_keep_both(tmp_path):
    """Neither finds anything, then both write: with numbered files both took the first number."""
    one, other = _Files(tmp_path, "kernel"), _Files(tmp_path, "kernel")
    assert one.load(key(SSE2)) is None and other.load(key(AVX2)) is None
    one.save(key(SSE2), "code for SSE2")
    other.save(key(AVX2), "code for AVX2")
    for files in (one, other):
        assert files.load(key(SSE2)) == "code for SSE2"
        assert files.load(key(AVX2)) == "code for AVX2"
        assert files.load(key(AVX2, code="3b")) is None


def test_a_file_that_holds_another_kernel_is_a_miss(tmp_path):
    files = _Files(tmp_path, "kernel")
    files.save(key(AVX2), "code for AVX2")
    files.path(key(AVX2)).rename(files.path(key(SSE2)))
    assert files.load(key(SSE2)) is None
    files.save(key(SSE2), "code for SSE2")
    assert files.load(key(SSE2)) == "code for SSE2"


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    files = _Files(tmp_path, "kernel")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space"):
        files.save(key(SSE2), "code for SSE2")
    assert list(tmp_path.iterdir()) == []
