"""Findings that are known already: those of an earlier report, by rule, entry and the instruction's text.

Lines and files do not count, so that a finding stays known while the text around it changes; each known finding excuses
one, so that a second one beside it is new.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

Known = Counter[tuple[str, str, str]]


def known(text: str) -> Known:
    """The findings of a report as `trueno ptx --json` prints it; ValueError where it is not one."""
    report = json.loads(text)
    try:
        return Counter(_key(finding) for record in report["files"] for part in _parts(record) for finding in part)
    except (TypeError, KeyError, AttributeError):
        raise ValueError("it is not a report of trueno ptx --json") from None


def remove(record: dict[str, Any], left: Known) -> int:
    """Take known findings out of a file's report, and out of `left`; their number."""
    count = 0
    for part in _parts(record):
        new = []
        for finding in part:
            key = _key(finding)
            if left[key] > 0:
                left[key] -= 1
                count += 1
            else:
                new.append(finding)
        part[:] = new
    return count


def _parts(record: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    for entry in record["entries"]:
        yield entry["findings"]
    yield record["findings"]


def _key(finding: dict[str, Any]) -> tuple[str, str, str]:
    return finding["rule"], finding.get("entry", ""), finding.get("text", "")
