"""Ops whose calls run through a compiled entry, and a way to see that a call did."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import trueno
from trueno.door import doors
from trueno.door.doors import Door


class LeftError(AssertionError):
    """A call went to the Python function."""


def _left(*_: Any, **__: Any) -> Any:
    raise LeftError


def opened(name: str) -> Door:
    """The open door of an op, after a call that opens it; a skip where there is none."""
    op = getattr(trueno, name).op
    x = np.full(4, 0.5, np.float32)
    numbers = {p.name: 0.5 for p in op.params if p.required}
    getattr(trueno, name)(*[x] * len(op.operands), **numbers)
    door = doors.door_of(name)
    if door is None:
        try:
            doors._layout()
        except Exception as reason:
            pytest.skip(f"no compiled entries here: {reason}")
        raise AssertionError(f"{name} has no entry")
    return door


@contextmanager
def machine_code_alone(*names: str) -> Iterator[None]:
    """Inside, a call of these ops that leaves their entries raises LeftError."""
    descriptors = [opened(name) for name in names]
    for door in descriptors:
        door._put("slow", id(_left))
    try:
        yield
    finally:
        for door in descriptors:
            door._put("slow", id(door.slow))


def stays(name: str, *args: Any, **keywords: Any) -> bool:
    """Whether a call runs in machine code alone."""
    try:
        with machine_code_alone(name):
            getattr(trueno, name)(*args, **keywords)
    except LeftError:
        return False
    return True
