"""JSON files with a checksum of themselves, which detects bit rot and manual edits.

A damaged file counts as none.  The checksum is no defence against tampering; the folder's ownership
(`trueno.cachedir`) is.
"""

import json
from typing import Any
from zlib import crc32

KEY = "checksum"


def seal(data: dict[str, Any]) -> str:
    """The text of a file that holds `data`, whose keys are texts."""
    return json.dumps({**data, KEY: _checksum(data)}, indent=1)


def unseal(text: str | None) -> dict[str, Any]:
    """The data that `seal` was given; ValueError for any other text, and for None."""
    try:
        data = json.loads(text or "")
        if not isinstance(data, dict) or data.pop(KEY, None) != _checksum(data):
            raise ValueError("its checksum is of something else")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return data


def _checksum(data: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(data, sort_keys=True).encode()):08x}"
