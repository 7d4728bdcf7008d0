"""A file is replaced whole or stays as it was, and nothing is left beside it."""

import os
import stat
from threading import Barrier, Thread

import pytest
from trueno.replacing import replacing


def test_the_new_file_is_there_when_the_block_ends(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old" and beside.parent == tmp_path
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_it_is_for_the_user_alone(tmp_path):
    with replacing(tmp_path / "a") as beside:
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "a"
    path.write_text("old")

    def write():
        with replacing(path) as beside:
            beside.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a"]


def test_a_move_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.mkdir()
    with pytest.raises(IsADirectoryError if os.name == "posix" else PermissionError), replacing(path) as beside:
        beside.write_text("new")
    assert path.is_dir() and os.listdir(tmp_path) == ["a"]


def test_the_longest_name_is_possible(tmp_path):
    with replacing(tmp_path / ("x" * 255)) as beside:
        beside.write_text("new")
    assert os.listdir(tmp_path) == ["x" * 255]


def test_where_no_file_can_be_made_nothing_runs(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "none" / "a"):
        pytest.fail("the block ran")


def test_of_several_writers_one_wins(tmp_path):
    path, together = tmp_path / "a", Barrier(8)

    def put(letter):
        with replacing(path) as beside:
            beside.write_text(letter * 100_000)
            together.wait(60)

    threads = [Thread(target=put, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = path.read_text()
    assert len(text) == 100_000 and len(set(text)) == 1 and os.listdir(tmp_path) == ["a"]
