"""A child process of the driver: `python -m tests.hostile.worker ATTACK BACKEND SEED FIRST END SECONDS`.

It says which case it begins before it runs it, so that the driver knows which one ended the process, and stops at the
first failure, so that the next case begins in a sound one.
"""

import faulthandler
import json
import os
import sys
import time
import traceback
from typing import Any

from .attack import Tally, generator, load

SHOWN = 6
"""Frames of a traceback that are shown: those nearest to the error."""


def main(name: str, backend: str, seed: int, first: int, end: int, seconds: float) -> None:
    stop = time.monotonic() + seconds
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is not for the driver

    def say(**facts: Any) -> None:
        channel.write(json.dumps(facts) + "\n")

    faulthandler.enable()
    attack = load(name)
    for number in range(first, end):
        if number > first and time.monotonic() >= stop:
            break
        say(begin=number)
        tally = Tally()
        faulthandler.dump_traceback_later(attack.limit)
        try:
            attack.case(generator(seed, name, backend, number), backend, tally)
        except BaseException as error:
            say(failed=number, why=_short(error), calls=tally.calls, states=tally.states)
            break
        finally:
            faulthandler.cancel_dump_traceback_later()
        say(done=number, calls=tally.calls, states=tally.states)
    say(end=True)


def _short(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    lines = [f"{os.path.relpath(f.filename)}:{f.lineno} {f.name}: {f.line}" for f in frames[-SHOWN:]]
    cause = error.__cause__ or error.__context__
    if cause is not None:
        lines.append(f"from {type(cause).__name__}: {str(cause)[:500]}")
    return "\n".join([*lines, f"{type(error).__name__}: {str(error)[:2000]}"])


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], given[1], int(given[2]), int(given[3]), int(given[4]), float(given[5]))
