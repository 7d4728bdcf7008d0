"""The user's cache folder: a check that it can be trusted, atomic writes, and a lock.

A cache is code: compiled kernels are loaded from it, and an index in it names modules to import.  So every folder
from the root down must belong to the user and be writable by no other user, so that no one else can replace it;
otherwise nothing in it is read.  Without a cache everything still works, only slower; one warning per process says why.

Write access to a folder allows renaming its entries.  So the parent folders must belong to the user or the system, and
no other user may write to them, as ssh requires of a home folder.  Exceptions are a sticky folder, where only owners
rename (`/tmp`), and the user's private group (named like the user, without other members), which many systems use.
"""

import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trueno.errors import SettingError, TruenoWarning
from trueno.replacing import replacing
from trueno.settings import settings

STALE = 30.0
"""Seconds after which a lock is taken over: holders only read and write once, so an older holder has died."""

LINKS = 40
"""The most links on the way to a folder; Linux follows as many."""

_said: set[str] = set()


def root() -> Path:
    """The root of all caches: TRUENO_CACHE_DIR, or the platform's own place; SettingError for `~nobody`."""
    if configured := settings.get("TRUENO_CACHE_DIR"):
        try:
            return Path(configured).expanduser().absolute()
        except RuntimeError as error:
            raise SettingError(f"TRUENO_CACHE_DIR is {configured!r}: {error}") from None
    home = os.environ.get("HOME", "")
    if sys.platform == "linux" and os.path.isabs(home) and not os.environ.keys() & {"XDG_CACHE_HOME", "ANDROID_DATA"}:
        return Path(home, ".cache", "trueno")  # the next lines' answer, without the 5 ms of their import
    from platformdirs import user_cache_path

    return user_cache_path("trueno", appauthor=False)


def folder(*parts: str, writing: bool = False) -> Path | None:
    """The folder `parts` of the cache, created for the user alone; None, with one warning, if it cannot be trusted.

    writing: return None also if no file can be created in it, which is tried.
    """
    path, reason = inspect(*parts, writing=writing)
    if reason:
        _warn(f"the cache in {root()} is not used: {reason}; set TRUENO_CACHE_DIR to a folder of your own")
        return None
    return path


def inspect(*parts: str, writing: bool = False) -> tuple[Path, str]:
    """As `folder`, but without a warning: the folder, and the reason why it must not be used, empty if it may."""
    path = root()
    if not path.is_absolute():  # no HOME, and no entry for the user
        return path, "the user has no home folder"
    reason = _make(path)
    for part in parts:
        if reason:
            break
        path = path / part
        reason = _make(path)
    return path, reason or (_try(path) if writing else "")


def read(path: Path) -> str | None:
    """The text of a file; None if it does not exist, cannot be read, or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeError):
        return None


def write(path: Path, text: str) -> bool:
    """Write a file atomically, so that readers never see a part; False, with one warning, if that fails."""
    try:
        with replacing(path) as beside:
            beside.write_bytes(text.encode("utf-8"))
    except (OSError, UnicodeError) as error:
        _warn(f"{path} cannot be written ({_said_by(error)}); its content is computed again the next time")
        return False
    return True


@contextmanager
def lock(path: Path, seconds: float = 5.0) -> Iterator[bool]:
    """Hold the lock file `path` inside the `with`; give False if it is not free within `seconds`, or cannot be made.

    Hold it only for a read and a write: a lock older than STALE seconds is taken over.  Raises no errors of its own.
    """
    token = f"{os.getpid()} {os.urandom(8).hex()}"
    held = _acquire(path, token, seconds)
    try:
        yield held
    finally:
        # A child that was forked inside leaves it alone, and so does a holder that lost the lock.
        if held and token.startswith(f"{os.getpid()} ") and read(path) == token:
            with suppress(OSError):
                os.unlink(path)


def _acquire(path: Path, token: str, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            if not _take_over(path):
                if time.monotonic() >= end:
                    return False
                time.sleep(0.01)
        except PermissionError:  # on Windows also a lock that is being removed
            if os.name != "nt" or time.monotonic() >= end:
                return False
            time.sleep(0.01)
        except OSError:
            return False
        else:
            try:
                os.write(descriptor, token.encode())
            except OSError:  # a full disk creates an empty file, without the token
                os.close(descriptor)
                with suppress(OSError):
                    os.unlink(path)
                return False
            os.close(descriptor)
            return True


def _take_over(path: Path) -> bool:
    """Remove the lock if it is stale; return whether it may be free now."""
    try:
        facts = os.stat(path)
        if abs(time.time() - facts.st_mtime) < STALE:  # a lock from the future is stale, too
            return False
        aside = f"{path}.{os.urandom(4).hex()}"
        os.rename(path, aside)  # only one process can rename it; `unlink` could remove the new lock of another process
        moved = os.stat(aside)
        if (moved.st_ino, moved.st_mtime_ns) != (facts.st_ino, facts.st_mtime_ns):
            os.rename(aside, path)
            return False
        os.unlink(aside)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _make(path: Path) -> str:
    """Create a folder for the user alone, if it does not exist; the reason why it must not be used, or nothing."""
    try:
        if not path.is_dir():
            missing = [path]
            while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
                missing.append(missing[-1].parent)
            if reason := _distrust_above(missing[-1]):
                return reason
            for part in reversed(missing):  # `parents=True` would create the upper ones with the umask's mode
                part.mkdir(mode=0o700, exist_ok=True)
        return _distrust(path)
    except OSError as error:
        return f"{path} cannot be used ({_said_by(error)})"


def _distrust(path: Path) -> str:
    if not hasattr(os, "geteuid"):  # on Windows the profile's access lists protect it
        return ""
    link, facts = os.lstat(path), os.stat(path)
    if not stat.S_ISDIR(facts.st_mode):
        return f"{path} is not a folder"
    me = os.geteuid()  # the owner of a folder, or of a link to it, can replace its content; the system's links are fine
    if facts.st_uid != me or link.st_uid not in (me, 0):
        return f"{path} belongs to another user"
    if facts.st_mode & 0o022:
        return f"{path} can be written by other users"
    return _distrust_above(path)


def _distrust_above(path: Path) -> str:
    """Why another user could replace this folder, or nothing.

    Checks every folder and link on the path, in the order in which the system resolves it, up to a missing one.
    """
    if not hasattr(os, "geteuid"):
        return ""
    me, links = os.geteuid(), 0
    at, left = Path(path.anchor), list(reversed(path.parts[1:]))
    while left:
        facts = os.lstat(at)
        if facts.st_uid not in (me, 0):
            return f"{at}, a parent folder of {path}, belongs to another user"
        others = 0o002 if _alone_in(facts.st_gid) else 0o022
        if facts.st_mode & others and not facts.st_mode & stat.S_ISVTX:
            return f"{at}, a parent folder of {path}, can be written by other users"
        part = left.pop()
        if part == "..":
            at = at.parent
            continue
        try:
            below = os.lstat(at / part)
        except FileNotFoundError:
            return ""
        if not stat.S_ISLNK(below.st_mode):
            at /= part
            continue
        if below.st_uid not in (me, 0):
            return f"{at / part}, a link on the way to {path}, belongs to another user"
        links += 1
        if links > LINKS:
            return f"{path} has too many links on the way"
        aim = Path(os.readlink(at / part))
        left += reversed(aim.parts[1:] if aim.is_absolute() else aim.parts)
        at = Path(aim.anchor) if aim.is_absolute() else at
    return ""


def _alone_in(group: int) -> bool:
    """Whether a group is private to the user: it has the user's name, and no other user belongs to it."""
    import grp
    import pwd

    try:
        name, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    if not group or entry.gr_name != name or not set(entry.gr_mem) <= {name}:  # containers give group 0 to any user
        return False
    return all(user.pw_name == name for user in pwd.getpwall() if user.pw_gid == group)


class _Tried(Exception):
    """Ends the writing of a file that is not needed."""


def _try(path: Path) -> str:
    try:
        with suppress(_Tried), replacing(path / "try"):
            raise _Tried
    except OSError as error:
        return f"{path} cannot be written ({_said_by(error)})"
    return ""


def _said_by(error: OSError | UnicodeError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _warn(sentence: str) -> None:
    """Warn once per process: of a full or read-only disk once for all files; of another user's folder for each."""
    cause = sentence.rpartition(" (")[2].partition(")")[0]
    if cause not in _said:
        _said.add(cause)
        warnings.warn(sentence, TruenoWarning, stacklevel=4)
