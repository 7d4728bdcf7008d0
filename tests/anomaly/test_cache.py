"""The cache folder: shared, read-only, full, another's, damaged.  Everything still works; at most one warning."""

import os
import stat

import pytest

ASK = """
x = np.ones(3, np.float32)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    total = trueno.add(x, x).tolist()
    names = {n: [e.available, e.reason, e.probed] for n, e in trueno.backends().items()}
    [trueno.add(x, x) for _ in range(3)]
said = [str(w.message) for w in caught if issubclass(w.category, trueno.TruenoWarning)]
say(total=total, names=names, said=said)
"""


def check(met, *, warnings):
    assert met["total"] == [2, 2, 2]
    assert met["names"]["fake"][0], met["names"]["fake"]
    assert not met["names"]["says_no"][0] and "plug one in" in met["names"]["says_no"][1]
    assert len(met["said"]) <= warnings, met["said"]


@pytest.fixture
def there(host, tmp_path):
    def make(folder):
        return host(own_cache=folder, fake=None, chaos=["says_no"])

    return make


def test_a_new_folder_is_made_for_the_user_alone(there, tmp_path):
    folder = tmp_path / "not" / "there"
    check(there(folder).says(ASK), warnings=0)
    assert folder.is_dir()
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_two_processes_share_it(there, tmp_path):
    """Started at once on an empty folder: both are right, and a third finds everything known."""
    host = there(tmp_path / "cache")
    children = [host.begin(ASK) for _ in range(2)]
    for child in children:
        done = host.finish(child)
        assert done.code == 0, str(done)
        check(done.said, warnings=0)
    third = host.says(ASK)
    check(third, warnings=0)
    assert third["names"]["fake"][2] == "cached"


def test_damaged(there, tmp_path):
    """Whatever lies in it, cut off or overwritten: read as nothing, and written again."""
    folder = tmp_path / "cache"
    host = there(folder)
    check(host.says(ASK), warnings=0)
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert files
    for content in (b"", b"\xff\x00\xfe" * 50, b"{}", b"[1, 2", b'{"version": 999}', b"null\n" * 3):
        for path in files:
            if path.exists():
                path.write_bytes(content)
        check(host.says(ASK), warnings=1)


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are POSIX'")
@pytest.mark.parametrize("kind", ["anothers", "writable by all", "a file", "beneath a file"])
def test_a_folder_that_is_not_to_be_trusted(there, tmp_path, kind):
    folder = tmp_path / "cache"
    if kind == "a file":
        folder.write_text("")
    elif kind == "beneath a file":
        folder.write_text("")
        folder = folder / "inside"
    else:
        folder.mkdir(mode=0o700)
    if kind == "anothers":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(folder, 1, 1)
    if kind == "writable by all":
        folder.chmod(0o777)
    met = there(folder).says(ASK)
    check(met, warnings=1)
    assert met["said"] and str(folder) in met["said"][0]
    assert not (folder.is_dir() and list(folder.rglob("*")))


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are POSIX'")
def test_a_read_only_folder(there, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o500)
    try:
        check(there(folder).says(ASK), warnings=1)
    finally:
        folder.chmod(0o700)


FULL = """
import builtins, errno, io
def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")
real_open, real_os_open = builtins.open, os.open
cache = os.environ["TRUENO_CACHE_DIR"]
def inside(path):
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(cache)
def opened(path, mode="r", *args, **kwargs):
    if inside(path) and set(mode) & set("wax+"):
        full()
    return real_open(path, mode, *args, **kwargs)
def os_opened(path, flags, *args, **kwargs):
    if inside(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        full()
    return real_os_open(path, flags, *args, **kwargs)
builtins.open = io.open = opened
os.open = os_opened
"""


@pytest.mark.slow
def test_a_full_disk(there, tmp_path):
    """Nothing can be written: no error, and nothing half-written that a later process would trip over."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    host = there(folder)
    check(host.says(FULL + ASK), warnings=1)
    check(host.says(ASK), warnings=0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full_at_the_last_byte(there, tmp_path):
    """Opening works and writing does not."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    host = there(folder)
    half = """
import errno
real = os.write
def full(fd, data):
    if fd > 2:
        raise OSError(errno.ENOSPC, "No space left on device")
    return real(fd, data)
os.write = full
os.replace = os.rename = os.link = lambda *a, **k: full(9, b"")
"""
    check(host.says(half + ASK), warnings=1)
    left = [p for p in folder.rglob("*") if p.is_file() and p.suffix == ".tmp"]
    assert not left
    check(host.says(ASK), warnings=0)
