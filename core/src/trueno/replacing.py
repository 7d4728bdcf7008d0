"""Files that are written whole or not at all: beside their place first, then moved there."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LETTERS = 40
"""Of a file's name in that of the one beside it: a file system limits names."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside `path`, for the user alone, that becomes `path` when the block ends without an error.

    So no reader sees a part, and of two writers one wins.  After an error the file beside is gone, and `path` as it
    was.  Raises OSError.  The block closes the file itself.
    """
    beside = path.with_name(f".{path.name[:LETTERS]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield beside
        _replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _replace(beside: Path, path: Path) -> None:
    for attempt in range(5):
        try:
            os.replace(beside, path)
        except PermissionError:
            if os.name != "nt" or attempt == 4:
                raise
            time.sleep(0.01)  # Windows refuses while another process has the file open
        else:
            return


def permit(beside: Path, target: Path) -> None:
    """Give `beside` the permissions of the file that it replaces, or those of a new one.  Raises OSError."""
    if target.exists():
        os.chmod(beside, target.stat().st_mode & 0o777)
    else:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
