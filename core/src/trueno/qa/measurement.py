"""What a gate is handed, and how it ends: it returns, fails with a sentence, or is skipped with a reason."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, NoReturn

BEFORE = ""
"""Python that runs first in every child process of a gate.  Tests plant their faults here."""
TIMEOUT_S = 300
COMMAND = "import sys; sys.argv[0] = 'trueno'; from trueno.cli import main; main()"
STEERING = ("TRUENO_BACKEND", "TRUENO_FORCE_CPU", "TRUENO_PREFER")
"""Settings of the user that would choose a backend in a child process in place of the rules under test."""


class GateFailed(Exception):
    """What the gate guards is broken."""


class GateSkipped(Exception):
    """The gate cannot run here: a device, a plugin or a package is missing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a child process ended: its exit code, its output and its errors."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Measurement:
    """One run of a gate.  facts: what was measured, by name; numbers, texts, and lists of these."""

    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, **facts: Any) -> None:
        """Add facts to the report; it has them whether the gate passes or fails."""
        self.facts |= facts

    def need(self, condition: object, sentence: str) -> None:
        """Fail with the sentence unless the condition holds."""
        if not condition:
            raise GateFailed(sentence)

    def skip(self, reason: str) -> NoReturn:
        """End the gate because something that it needs is missing here."""
        raise GateSkipped(reason)

    def python(self, code: str, *words: str, **environment: str) -> Answer:
        """Run Python in a child process with the arguments `words`; GateFailed after TIMEOUT_S seconds."""
        given = {n: v for n, v in os.environ.items() if n not in STEERING} | {"PYTHONIOENCODING": "utf-8"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", f"{BEFORE}\n{code}", *words], env=given | environment, capture_output=True,
                encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise GateFailed(f"the child process did not end within {TIMEOUT_S} s") from None
        return Answer(done.returncode, done.stdout, done.stderr)

    def command(self, *words: str) -> Answer:
        """Run `trueno WORDS…` in a child process."""
        return self.python(COMMAND, *words)
