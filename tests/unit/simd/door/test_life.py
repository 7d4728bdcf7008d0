"""Entries from the first call to the end of the process: objects, references, memory, forks, the exit."""

import copy
import functools
import gc
import inspect
import os
import pickle
import pydoc
import subprocess
import sys
import tracemalloc
import weakref

import numpy as np
import pytest
import trueno
from unit.simd.door.opened import opened, stays

X, Y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)


def test_the_public_object_is_as_before() -> None:
    door, add = opened("add"), trueno.add
    assert inspect.isfunction(add) and list(inspect.signature(add).parameters) == ["x", "y", "out"]
    assert str(inspect.signature(add)) == "(x: 'ArrayLike', y: 'ArrayLike', *, out: 'Any' = None)"
    assert door.function is add
    assert (add.__name__, add.__qualname__, add.__module__) == ("add", "add", "trueno")
    assert add.op.name == "add" and callable(add.plan) and add.__annotations__["out"] == "Any"
    assert (
        add.__doc__ is not None
        and add.__doc__.startswith(add.op.doc)
        and add.op.doc.splitlines()[0] in pydoc.render_doc(add)
    )
    assert pickle.loads(pickle.dumps(add)) is add and copy.copy(add) is add and copy.deepcopy([add])[0] is add
    assert weakref.ref(add)() is add and functools.wraps(add)(lambda: 0).op is add.op

    class Holder:
        plus = add

    assert Holder.plus is add and type(Holder().plus).__name__ == "method"
    assert next(map(add, [X], [Y])).tobytes() == add(X, Y).tobytes()


def test_an_early_import_gets_the_entry() -> None:
    code = """
import numpy as np
from trueno import tanh
from trueno.door.doors import door_of
x = np.ones(9, np.float32)
before = tanh
tanh(x)
tanh(x)
door = door_of("tanh")
assert door is not None and door.function is before is tanh
door._put("slow", id(None))  # whatever is not machine code would fail
from trueno.dispatch import state
assert np.allclose(tanh(x), np.tanh(x)) and state.overridden[0] == 0
import trueno
with trueno.use("reference"):
    try: tanh(x)
    except TypeError: pass
    else: raise AssertionError("the base state's kernel ran")
assert np.allclose(tanh(x), np.tanh(x)) and state.overridden[0] == 1
"""
    opened("tanh")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_door_can_be_off_from_the_start() -> None:
    code = """
import sys, types, numpy as np, trueno
x = np.ones(9, np.float32)
trueno.add(x, x)
assert type(trueno.add) is types.FunctionType and "trueno.door.doors" not in sys.modules
trueno.settings.override("TRUENO_DOOR", "auto")
trueno.add(x, x)
from trueno.door.doors import door_of
assert door_of("add").function is trueno.add
"""
    opened("add")
    environment = {**os.environ, "TRUENO_DOOR": "off"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)


def test_no_reference_is_lost_or_gained() -> None:
    opened("add")
    opened("sum")
    cube, row, out = X.reshape(5, 5, 4).copy(), Y[:4].copy(), np.empty_like(X)
    number, single = 2.5, np.dtype(np.float32)
    watched = [X, Y, cube, row, out, number, single, np.ndarray, None, trueno.add, "out", np.float32, trueno.sum]

    def calls() -> None:
        trueno.add(X, Y)
        trueno.add(X, Y, out=out)
        trueno.add(X, Y, out=None)
        trueno.add(cube, row)
        trueno.add(X, number)
        trueno.sum(X)
        trueno.sum(cube, axis=-1)
        trueno.add(out, X, out=out[:])
        for wrong in (((X, Y[:3]), {}), ((X,), {}), ((X, Y), {"axis": 1}), ((X, 10**400), {})):
            with pytest.raises(Exception):  # noqa: B017, PT011 - each has an error of its own
                trueno.add(*wrong[0], **wrong[1])

    for _ in range(5):
        calls()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(200):
        calls()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert [b - a for a, b in zip(before, after, strict=True) if abs(b - a) > 20] == []


def test_results_are_counted_and_freed() -> None:
    for _ in range(3):
        trueno.add(X, Y)
    assert stays("add", X, Y)
    tracemalloc.start()
    try:
        kept = [trueno.add(X, Y) for _ in range(100)]
        held, _ = tracemalloc.get_traced_memory()
        assert held >= 100 * X.nbytes
        del kept
        for _ in range(1000):
            trueno.add(X, Y)
        freed, _ = tracemalloc.get_traced_memory()
        assert freed < held - 50 * X.nbytes
    finally:
        tracemalloc.stop()


def test_a_kernel_that_refuses_leaves_nothing_behind() -> None:
    """Half overlapping: the kernel refuses, and the Python function copies."""
    room = np.arange(101, dtype=np.float32)
    expected = room[:-1] + Y
    assert trueno.add(room[:-1], Y, out=room[1:]).tobytes() == expected.tobytes()


def test_copies_of_views_are_freed() -> None:
    """Also where the kernel refuses, as it does where `out` overlaps half of another operand."""
    wide, room = np.arange(2000, dtype=np.float32), np.arange(1001, dtype=np.float32)
    square, turned = wide[:1024].reshape(32, 32), np.empty((32, 32), np.float32).T
    expected = wide[::2] + room[:-1]

    def calls() -> None:
        trueno.add(wide[::2], wide[::-2])
        trueno.add(square.T, square, out=turned)
        room[:] = np.arange(1001, dtype=np.float32)
        assert trueno.add(wide[::2], room[:-1], out=room[1:]).tobytes() == expected.tobytes()

    for _ in range(5):
        calls()
    assert stays("add", wide[::2], wide[::-2]) and stays("add", square.T, square, out=turned)
    assert not stays("add", wide[::2], room[:-1], out=room[1:])
    tracemalloc.start()
    try:
        calls()
        held, _ = tracemalloc.get_traced_memory()
        for _ in range(200):
            calls()
        assert tracemalloc.get_traced_memory()[0] < held + 20 * wide.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_of_a_fork_calls_on() -> None:
    code = """
import os, numpy as np, trueno
x = np.ones(64, np.float32)
for _ in range(3): trueno.add(x, x)
child = os.fork()
good = trueno.add(x, x)[0] == 2 and trueno.exp(x)[0] > 2
with trueno.use("reference"): good = good and trueno.add(x, x)[0] == 2
if child == 0: os._exit(0 if good else 1)
assert good and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    opened("exp")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_calls_until_the_interpreter_has_ended() -> None:
    code = """
import atexit, threading, numpy as np, trueno
x = np.ones(64, np.float32)
class Late:
    def __init__(self): self.add = trueno.add
    def __del__(self):
        for n in (64, 64, 7):
            try: assert self.add(x[:n], x[:n])[0] == 2
            except (TypeError, AttributeError, ImportError): pass
with trueno.use("simd"): trueno.add(x, x)
for _ in range(3): trueno.add(x, x)
kept = Late(); kept.itself = kept
import sys; sys.late = Late()
atexit.register(lambda: trueno.add(x, x))
def forever():
    while True: trueno.add(x, x)
threading.Thread(target=forever, daemon=True).start()
"""
    opened("add")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set through Linux's /proc")
def test_without_room_the_python_functions_error_is_raised() -> None:
    code = """
import resource, numpy as np, trueno
x = np.ones(1 << 24, np.float32)
out = np.empty_like(x)
for _ in range(3): trueno.add(x, x, out=out)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20),) * 2)
for _ in range(2):
    try: trueno.add(x, x)
    except trueno.OutOfMemory as error: assert "there is no room for z" in str(error), error
    else: raise AssertionError("there was room")
assert trueno.add(x[:64], x[:64])[0] == 2
"""
    opened("add")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_large_calls_release_the_gil_once() -> None:
    """Kernels of large arrays release it themselves: an entry that did so too would end the process."""
    code = """
import threading, numpy as np, trueno
x = np.linspace(0, 1, 1 << 20, dtype=np.float32)
out, stop = np.empty_like(x), []
for _ in range(3): trueno.exp(x, out=out)
expected = out.copy()
def work():
    mine = np.empty_like(x)
    while not stop: assert trueno.exp(x, out=mine) is mine and (mine == expected).all()
thread = threading.Thread(target=work)
thread.start()
for _ in range(50): assert (trueno.exp(x) == expected).all()
stop.append(1)
thread.join()
"""
    opened("exp")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
