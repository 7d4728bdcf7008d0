"""Where reports go: a stream that is closed, full, or whose reader has gone must not end a command in a traceback."""

import errno
import os
import sys

PIPE_CLOSED, NOT_WRITTEN = 141, 74
"""Exit codes if the report could not be written: that of a process that SIGPIPE ended, and EX_IOERR."""
UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)


def open_streams() -> None:
    """If stdout or stderr was closed (`>&-`), print nothing; a file opened later must not get its number."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="replace", closefd=False))


def failed(error: OSError) -> tuple[int, str]:
    """The exit code where the report could not be written, and a sentence, empty if its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)  # Python flushes the rest when it ends
    os.dup2(nowhere, 1)
    if error.errno == errno.EPIPE:
        return PIPE_CLOSED, ""
    return NOT_WRITTEN, f"stdout cannot be written: {error.strerror}"
