"""The cache folder: which folders it trusts, that a file is written whole or not at all, and the lock."""

import errno
import os
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from trueno import cachedir
from trueno.errors import SettingError, TruenoWarning
from trueno.settings import settings

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are POSIX's")
MORTAL = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="nothing is read-only to root")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    monkeypatch.setattr(cachedir, "_said", set())
    settings.reload()
    yield tmp_path / "deep" / "cache"
    settings.reload()


def refused(*parts, match, **asked):
    """`folder` gives None and warns once; the second time it is silent."""
    with pytest.warns(TruenoWarning, match=match) as said:
        assert cachedir.folder(*parts, **asked) is None
    assert len(said) == 1
    assert str(said[0].message).endswith("; set TRUENO_CACHE_DIR to a folder of your own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cachedir.folder(*parts, **asked) is None


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_setting_names_the_root(root):
    assert cachedir.root() == root


def test_a_relative_setting_is_absolute(root, monkeypatch):
    monkeypatch.setenv("TRUENO_CACHE_DIR", "here")
    settings.reload()
    assert cachedir.root() == Path.cwd() / "here"


def test_without_a_setting_the_platform_has_a_place(root, monkeypatch):
    import platformdirs

    monkeypatch.delenv("TRUENO_CACHE_DIR")
    settings.reload()
    assert cachedir.root() == platformdirs.user_cache_path("trueno", appauthor=False)


@pytest.mark.parametrize(
    "variables",
    [
        {"HOME": "/somewhere"},
        {"HOME": "/somewhere/"},
        {"HOME": "/"},
        {"HOME": "relative"},
        {"HOME": "/somewhere", "XDG_CACHE_HOME": "/elsewhere"},
        {"HOME": "/somewhere", "XDG_CACHE_HOME": "relative"},
        {"HOME": "/somewhere", "XDG_CACHE_HOME": ""},
        {},
    ],
    ids=str,
)
def test_the_place_is_the_platforms_whatever_the_environment(root, monkeypatch, variables):
    import platformdirs

    for name in ("TRUENO_CACHE_DIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings.reload()
    assert cachedir.root() == platformdirs.user_cache_path("trueno", appauthor=False)


def test_a_home_of_nobody_is_a_setting_error(root, monkeypatch):
    monkeypatch.setenv("TRUENO_CACHE_DIR", "~nobody-of-this-name/cache")
    settings.reload()
    with pytest.raises(SettingError, match="TRUENO_CACHE_DIR is '~nobody-of-this-name/cache'"):
        cachedir.folder("index")


def test_no_home_is_a_reason(root, monkeypatch):
    monkeypatch.setattr(cachedir, "root", lambda: Path("~/.cache/trueno"))
    refused(match="the user has no home folder")
    assert not Path("~").exists()


@POSIX
def test_folders_are_made_for_the_user_alone_whatever_the_umask(root):
    before = os.umask(0o002)
    try:
        path = cachedir.folder("index", "inner")
    finally:
        os.umask(before)
    assert path == root / "index" / "inner"
    assert {mode(p) for p in (path, path.parent, root, root.parent)} == {0o700}
    assert cachedir.folder("index", "inner", writing=True) == path
    assert list(path.iterdir()) == []


@POSIX
@pytest.mark.parametrize("bits", [0o020, 0o002])
@pytest.mark.parametrize("part", ["", "index", "index/inner"])
def test_a_folder_that_others_can_write_is_not_used(root, part, bits):
    cachedir.folder("index", "inner")
    bad = root / part
    bad.chmod(0o700 | bits)
    refused("index", "inner", match=f"is not used: {bad} can be written by other users")
    assert mode(bad) == 0o700 | bits, "it is not ours to change"
    bad.chmod(0o755)
    assert cachedir.folder("index", "inner") is not None


@POSIX
@pytest.mark.parametrize("part", ["", "index", "index/inner"])
def test_a_folder_of_another_user_is_not_used(root, part, monkeypatch):
    cachedir.folder("index", "inner")
    real = os.stat

    def other(path, *args, **kwargs):
        facts = real(path, *args, **kwargs)
        if str(path) == str(root / part):
            facts = os.stat_result([*facts[:4], os.geteuid() + 1, *facts[5:]])
        return facts

    monkeypatch.setattr(cachedir.os, "stat", other)
    refused("index", "inner", match=f"is not used: {root / part} belongs to another user")


@POSIX
def test_a_link_of_another_user_is_not_followed(root, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir(mode=0o700)
    root.parent.mkdir(mode=0o700)
    root.symlink_to(tmp_path / "mine")
    assert cachedir.folder() == root
    real = os.lstat

    def other(path):
        facts = real(path)
        return os.stat_result([*facts[:4], os.geteuid() + 1, *facts[5:]])

    monkeypatch.setattr(cachedir.os, "lstat", other)
    refused(match="belongs to another user")


@POSIX
def test_a_link_to_a_folder_that_others_can_write_is_not_used(root, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    root.mkdir(parents=True, mode=0o700)
    (root / "index").symlink_to(tmp_path / "shared")
    refused("index", match="can be written by other users")


@pytest.fixture
def above(root, tmp_path):
    """A folder that the cache will be in, not directly; its group belongs to no user."""
    above = tmp_path / "above"
    above.mkdir(mode=0o700)
    return above


@POSIX
@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("bits", [0o777, 0o775, 0o757, 0o1777, 0o1770, 0o755, 0o700])
def test_whoever_can_write_above_could_put_another_in_its_place(above, monkeypatch, bits, made):
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(above / "mine" / "cache"))
    monkeypatch.setattr(cachedir, "_alone_in", lambda group: False)
    settings.reload()
    path = above / "mine" / "cache" / "simd"
    if made:
        assert cachedir.folder("simd") == path
    above.chmod(bits)
    if bits & 0o022 and not bits & 0o1000:
        refused("simd", match=f"is not used: {above}, a parent folder .* by other users; set TRUENO_CACHE_DIR")
        assert made or not list(above.iterdir())
    else:
        assert cachedir.folder("simd") == path


@POSIX
def test_the_users_own_group_may_write_above(above, monkeypatch):
    """Where each user has a group alone, the usual umask lets it write, and a project's folder has 0775."""
    import grp
    import pwd

    monkeypatch.setenv("TRUENO_CACHE_DIR", str(above / "cache"))
    settings.reload()
    above.chmod(0o775)
    group, name = 54321, pwd.getpwuid(os.geteuid()).pw_name  # root's own group is everybody's in some containers
    lstat = os.lstat

    def grouped(path, **given):
        facts = lstat(path, **given)
        if os.fspath(path) != os.fspath(above):
            return facts
        fields = list(facts)
        fields[stat.ST_GID] = group
        return os.stat_result(fields, facts.__reduce__()[1][1])

    monkeypatch.setattr(os, "lstat", grouped)

    def like(*facts):
        monkeypatch.setattr(grp, "getgrgid", lambda which: grp.struct_group(facts) if which == group else real(which))

    real = grp.getgrgid
    for members in ([], [name]):
        like(name, "x", group, members)
        assert cachedir.folder("simd") == above / "cache" / "simd"
    for facts in ((name, "x", group, [name, "other"]), ("staff", "x", group, [])):
        like(*facts)
        _, reason = cachedir.inspect("simd")
        assert reason == f"{above}, a parent folder of {above / 'cache'}, can be written by other users"

    def unknown(which):
        raise KeyError(which)

    monkeypatch.setattr(grp, "getgrgid", unknown)
    assert cachedir.inspect("simd")[1]
    above.chmod(0o757)
    like(name, "x", group, [])
    assert cachedir.inspect("simd")[1], "all others are not the group"


@POSIX
def test_a_link_above_is_followed_through_every_folder_on_its_way(above, tmp_path, monkeypatch):
    """cache → above/second/…, and second → end: who can write `above` can turn the second link elsewhere."""
    end = tmp_path / "end"
    (end / "cache").mkdir(parents=True, mode=0o700)
    (above / "second").symlink_to(os.path.relpath(end, above))
    (tmp_path / "first").symlink_to(above / "second")
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(tmp_path / "first" / "cache"))
    monkeypatch.setattr(cachedir, "_alone_in", lambda group: False)
    settings.reload()
    assert cachedir.folder("simd") == tmp_path / "first" / "cache" / "simd"
    assert (end / "cache" / "simd").is_dir()
    above.chmod(0o777)
    refused("simd", match=f"is not used: {above}, a parent folder of .*, can be written by other users")
    above.chmod(0o700)
    end.chmod(0o777)
    assert "can be written by other users" in cachedir.inspect("simd")[1]
    end.chmod(0o700)
    assert not cachedir.inspect("simd")[1]


@POSIX
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("bits", [0o755, 0o1777])
def test_a_folder_of_another_user_above(above, monkeypatch, bits):
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(above / "mine" / "cache"))
    settings.reload()
    assert cachedir.folder("simd")
    os.chown(above, 1, 1)
    above.chmod(bits)
    refused("simd", match=f"is not used: {above}, a parent folder of .*, belongs to another user")


@POSIX
def test_links_in_a_circle_are_a_reason(above, monkeypatch):
    (above / "a").symlink_to("b")
    (above / "b").symlink_to("a")
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(above / "a" / "cache"))
    settings.reload()
    refused("simd", match="links")


@pytest.mark.parametrize("make", [lambda p: p.write_text(""), lambda p: p.symlink_to(p.parent / "nowhere")])
def test_what_is_no_folder_is_not_used(root, make):
    root.mkdir(parents=True, mode=0o700)
    make(root / "index")
    with pytest.warns(TruenoWarning, match="index"):
        assert cachedir.folder("index") is None
    assert cachedir.folder("other") == root / "other"


def test_a_folder_that_cannot_be_made_is_a_reason(root, monkeypatch):
    def mkdir(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    refused("index", match=r"cannot be used \(Read-only file system\)")


def test_only_who_wants_to_write_is_refused_a_read_only_folder(root, monkeypatch):
    (cachedir.folder("index") / "kept").write_text("42")

    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cachedir.os, "open", refuse)
    assert cachedir.read(cachedir.folder("index") / "kept") == "42"
    refused("index", writing=True, match=r"index cannot be written \(Read-only file system\)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the reason is said, for this folder and for all others
        assert cachedir.folder("other", writing=True) is None
        assert not cachedir.write(cachedir.folder("index") / "new", "text")


@MORTAL
@POSIX
def test_a_read_only_folder(root):
    path = cachedir.folder("index")
    path.chmod(0o500)
    try:
        refused("index", writing=True, match="cannot be written")
        with pytest.warns(TruenoWarning, match="cannot be written"):
            assert not cachedir.write(path / "a", "b")
    finally:
        path.chmod(0o700)


def test_inspect_is_silent(root):
    (root.parent).mkdir()
    root.write_text("")
    path, reason = cachedir.inspect("index")
    assert path == root and str(root) in reason


@pytest.mark.parametrize("text", ["", "α\nβ\r\n", "x" * 100_000, "\0"])
def test_what_is_written_is_read(root, text):
    path = cachedir.folder("a") / "b.json"
    assert cachedir.write(path, "before")
    assert cachedir.write(path, text)
    assert cachedir.read(path) == text
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]


@POSIX
def test_files_are_the_users_alone(root):
    path = cachedir.folder() / "a"
    cachedir.write(path, "b")
    assert mode(path) == 0o600


def test_reading_never_raises(root):
    folder = cachedir.folder()
    (folder / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (folder, folder / "none", folder / "bytes", folder / "bytes" / "below", folder / ("x" * 500)):
        assert cachedir.read(path) is None


@pytest.mark.parametrize("call", ["open", "replace", "write"])
def test_a_full_disk_leaves_the_old_file_and_nothing_beside(root, monkeypatch, call):
    path = cachedir.folder() / "a"
    cachedir.write(path, "old")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "write":
        monkeypatch.setattr(Path, "write_bytes", full)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.warns(TruenoWarning, match=r"cannot be written \(No space left on device\)") as said:
        assert not cachedir.write(path, "new")
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cachedir.write(path, "newer")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["a"]


def test_a_lone_surrogate_is_no_crash(root):
    path = cachedir.folder() / "a"
    with pytest.warns(TruenoWarning, match="cannot be written"):
        assert not cachedir.write(path, "\ud800")
    assert list(path.parent.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
from trueno import cachedir
path = Path(sys.argv[1])
for i in range(300):
    assert cachedir.write(path, sys.argv[2] * 20_000)
    text = cachedir.read(path)
    assert text and len(text) == 20_000 and len(set(text)) == 1, text and (len(text), set(text))
"""


def test_processes_that_write_at_once_leave_whole_files(root):
    path = cachedir.folder() / "both"
    writers = [subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, str(path), c]) for c in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert cachedir.read(path) in ("a" * 20_000, "b" * 20_000)
    assert [p.name for p in path.parent.iterdir()] == ["both"]


def test_a_lock_excludes_until_it_is_given_back(root):
    path = cachedir.folder() / "lock"
    with cachedir.lock(path) as held:
        assert held and path.exists()
        with cachedir.lock(path, 0.0) as second:
            assert not second
        assert path.exists(), "who did not hold it does not remove it"
    assert not path.exists()
    with cachedir.lock(path) as held:
        assert held


def test_a_lock_is_given_back_by_an_error(root):
    path = cachedir.folder() / "lock"
    with pytest.raises(ZeroDivisionError), cachedir.lock(path):
        raise ZeroDivisionError
    assert not path.exists()


@pytest.mark.parametrize("seconds", [-2, 2])
def test_a_stale_lock_is_taken_over(root, seconds):
    path = cachedir.folder() / "lock"
    path.write_text("a process that died")
    then = time.time() + seconds * cachedir.STALE
    os.utime(path, (then, then))
    with cachedir.lock(path, 0.0) as held:
        assert held and cachedir.read(path) != "a process that died"
    assert list(path.parent.iterdir()) == []


def test_a_lock_that_was_taken_over_is_not_removed_by_its_first_holder(root):
    path = cachedir.folder() / "lock"
    with cachedir.lock(path) as held:
        assert held
        path.write_text("another")
    assert path.read_text() == "another"


def test_a_lock_that_cannot_be_made_is_no_error(root, monkeypatch):
    with cachedir.lock(root / "no" / "folder" / "lock") as held:
        assert not held

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = cachedir.folder() / "lock"
    monkeypatch.setattr(cachedir.os, "write", full)
    with cachedir.lock(path) as held:
        assert not held
    assert not path.exists()


COUNTER = """
import sys
from pathlib import Path
from trueno import cachedir
path = Path(sys.argv[1])
for _ in range(50):
    with cachedir.lock(path.with_name("lock"), 60.0) as held:
        assert held
        assert cachedir.write(path, str(int(cachedir.read(path) or 0) + 1))
"""


def test_no_count_is_lost_under_the_lock(root):
    path = cachedir.folder() / "count"
    counters = [subprocess.Popen([sys.executable, "-W", "error", "-c", COUNTER, str(path)]) for _ in range(3)]
    assert [counter.wait(120) for counter in counters] == [0, 0, 0]
    assert cachedir.read(path) == "150"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_lock_to_its_parent(root):
    code = """
import os, sys
from pathlib import Path
from trueno import cachedir
path = Path(sys.argv[1])
child = None
with cachedir.lock(path):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0 and path.exists()
if not child:
    os._exit(not path.exists())
assert not path.exists()
"""
    path = cachedir.folder() / "lock"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
