"""A process that compiles: `python -m trueno.cli.child BACKEND` reads and writes lines of JSON.

Compilers hold a lock for the whole process, so kernels are compiled in parallel in several of these processes, and
shared through the disk cache.  A compiler's own output goes to stderr; stdout carries answers alone.
"""

import json
import os
import sys


def main(backend: str) -> None:
    """Answer `["softmax", "float32", []]` with `{"done": 4, "failures": []}`, until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from trueno.cli.plans import ready  # start-up
    from trueno.ops import TABLE  # start-up

    for line in sys.stdin:
        name, dtype, keys = json.loads(line)
        done, failures = ready(backend, TABLE[name], dtype, keys)
        answers.write(json.dumps({"done": done, "failures": failures}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
