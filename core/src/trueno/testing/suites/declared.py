"""Manifest, names, protocol, records and arrays: the backend's declarations."""

import pytest

from trueno.testing.declared import (
    array_problems,
    code_problems,
    manifest_problems,
    name_remarks,
    protocol_problems,
    record_problems,
)
from trueno.testing.suites.rows import none_of, skip_unsound, tell


def test_manifest(backend: str) -> None:
    """The manifest is valid, declares our protocol version, and is the one that the entry point names."""
    none_of(manifest_problems(backend))


def test_names(backend: str, request: pytest.FixtureRequest) -> None:
    """Names that users would not guess are remarks."""
    for remark in name_remarks(backend):
        tell(request, "remark", remark)


def test_protocol(backend: str) -> None:
    """Every member of the protocol exists and can be called as the core calls it."""
    none_of(protocol_problems(backend))


def test_records(backend: str) -> None:
    """Accuracy, probes, rejections and rates are records of the protocol with valid values."""
    none_of([*record_problems(backend), *code_problems(backend)])


def test_arrays(backend: str) -> None:
    """Arrays go to the device and come back bit by bit, in any shape."""
    skip_unsound(backend)
    none_of(array_problems(backend))
