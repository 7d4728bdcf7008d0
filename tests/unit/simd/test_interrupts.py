"""Ctrl-C at any moment of the first calls, forks and exits during a compilation: the process goes on computing."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest
from seeds import fresh_seed

pytest.importorskip("numba", reason="needs numba")
from trueno_simd.llvm import elsewhere


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """A shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


ON_POSIX = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="elsewhere a wait is not interrupted")

HEAD = """
import os, random, signal, sys, threading, time
import numpy as np, trueno
"""

STORM = """
draw, armed, count = random.Random(int(sys.argv[1])), False, 0
def interrupt(*_):
    global count
    if count < 40:
        signal.setitimer(signal.ITIMER_REAL, draw.expovariate(1 / 0.05))
    if armed:
        count += 1
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
def patiently(function, *args, **options):
    global armed
    while True:
        try:
            armed = True
            found = function(*args, **options)
            armed = False
            return found
        except KeyboardInterrupt:
            armed = False
x = np.linspace(-3, 3, 150_001, dtype=np.float32)
a = np.arange(12, dtype=np.float32).reshape(3, 4)
e = np.exp(x.astype(np.float64))
signal.setitimer(signal.ITIMER_REAL, draw.expovariate(1 / 0.05))
def check():
    assert np.allclose(patiently(trueno.exp, x), e, rtol=1e-6)
    assert np.allclose(patiently(trueno.softmax, x), e / e.sum(), rtol=1e-5)
    assert (patiently(trueno.transpose, a) == a.T).all()
check()
signal.setitimer(signal.ITIMER_REAL, 0)
check()
assert count, "no interrupt came"
"""


def begin(code: str, cache: Path, *arguments: str) -> "subprocess.Popen[str]":
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRUENO_", "NUMBA_"))}
    environment |= {"TRUENO_CACHE_DIR": str(cache), "TRUENO_PROBE": "off", "TRUENO_FALLBACK": "error"}
    environment |= {"TRUENO_BACKEND": "simd", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + code, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )


def end_well(*children: "subprocess.Popen[str]", silent: bool = True) -> None:
    try:
        said = [child.communicate(timeout=120)[1] for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    for child, text in zip(children, said, strict=True):
        assert child.returncode == 0 and not (silent and text), text


@ON_POSIX
def test_an_interrupt_of_the_first_calls_breaks_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    seeds = [fresh_seed() for _ in range(2)]
    print("seeds", seeds)
    # Python itself may tell of an interrupt that it had to ignore
    end_well(*(begin(STORM, tmp_path / str(seed), str(seed)) for seed in seeds), silent=False)


LEFT = """
import _imp
assert "numba" not in sys.modules
_imp.acquire_lock()  # as Ctrl-C between two steps of an import leaves it
assert np.allclose(trueno.exp(np.zeros(3, np.float32)), 1) and "numba" in sys.modules
assert not _imp.lock_held()
"""


def test_an_import_that_ctrl_c_ended_holds_up_no_compilation(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    end_well(begin(LEFT, tmp_path))


FORK = """
import warnings
warnings.simplefilter("ignore")  # Python's own, about forks of processes with threads
draw = random.Random(int(sys.argv[1]))
x = np.ones(1000, np.float32)
from importlib import import_module
from trueno_simd.llvm import elsewhere
other = threading.Thread(target=elsewhere.run, args=(lambda: import_module("trueno_simd.kernels"),))
other.start()
time.sleep(draw.uniform(0.05, 1))
child = os.fork()
assert np.allclose(trueno.exp(x), np.e)
if child:
    assert os.waitpid(child, 0)[1] == 0
    other.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_process_that_loads_numba_computes(tmp_path: Path) -> None:
    """Neither it nor its parent waits forever for a lock that a thread of the parent held."""
    tmp_path.chmod(0o700)
    seed = fresh_seed()
    print(f"seed {seed}")
    end_well(begin(FORK, tmp_path, str(seed)))


EXIT = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
threading.stack_size(65536)  # of the program's own threads: LLVM needs more
from trueno_simd.llvm import elsewhere
run = elsewhere.run
def interrupted(task):
    def first():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return task()
    return run(first)
elsewhere.run = interrupted
try:
    trueno.exp(np.ones(3, np.float32))
except KeyboardInterrupt:
    sys.exit()
raise AssertionError("no interrupt came")
"""


@ON_POSIX
def test_an_exit_while_a_kernel_is_compiled(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    end_well(begin(EXIT, tmp_path))


def test_a_task_has_its_callers_context_and_another_thread() -> None:
    word = ContextVar("word", default="none")
    word.set("mine")
    assert elsewhere.run(lambda: (word.get(), threading.get_ident() == threading.main_thread().ident)) == (
        "mine",
        False,
    )
    me = threading.get_ident
    within, nested = elsewhere.run(lambda: (me(), elsewhere.run(me)))
    assert within == nested != me()


def test_a_tasks_error_is_the_callers_with_its_traceback() -> None:
    def fails() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here") as error:
        elsewhere.run(fails)
    assert error.traceback[-1].name == "fails"


INTERRUPTED = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
from trueno_simd.llvm import elsewhere
going, ended = threading.Event(), []
def task():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    assert going.wait(60)
    ended.append(elsewhere.wait(0.0))  # not for itself
try:
    elsewhere.run(task)
except KeyboardInterrupt:
    assert not ended and not elsewhere.wait(0.0)
    going.set()
    assert elsewhere.wait() and ended == [True]
    assert elsewhere.run(lambda: 42) == 42
    sys.exit()
raise AssertionError("no interrupt came")
"""


@ON_POSIX
def test_an_interrupted_caller_goes_on_and_so_does_the_task(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    end_well(begin(INTERRUPTED, tmp_path))


def test_several_wait_for_one_task() -> None:
    """The first to wait for its end leaves it to the others."""
    going, waiting = threading.Event(), threading.Semaphore(0)
    seen: list[bool] = []

    def wait() -> None:
        waiting.release()
        seen.append(elsewhere.wait(60))

    crowd = [threading.Thread(target=elsewhere.run, args=(going.wait,))]
    crowd[0].start()
    while elsewhere.wait(0.0):
        pass
    crowd += [threading.Thread(target=wait) for _ in range(4)]
    for one in crowd[1:]:
        one.start()
        waiting.acquire()
    going.set()
    for one in crowd:
        one.join(30)
    assert seen == [True] * 4


def test_where_there_are_no_threads_it_runs_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    assert elsewhere.run(threading.get_ident) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        elsewhere.run(lambda: 1 // 0)
    assert elsewhere.wait(0.0)


COMPILING = """
import numba, numpy as np, trueno
from numba.extending import overload

def table(x): ...

@overload(table)
def made(x):
    c = float(trueno.sum(np.ones(8, np.float32)))  # while Numba compiles f
    return lambda x: x + c

@numba.njit
def f(x):
    return table(x)

with trueno.use("simd"):
    assert f(1.0) == 9.0
print("done")
"""


def test_a_call_within_numbas_own_compilation_waits_for_nobody(tmp_path):
    """Its lock is this thread's; another thread would wait forever."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILING], env=os.environ | {"TRUENO_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
