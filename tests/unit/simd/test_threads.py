"""The pool does each chunk once, for any caller, and is never the reason that a process hangs or dies."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from numba import int64, types
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil, unpack
from trueno_simd.llvm.jit import outer
from trueno_simd.threads import cpus, pool
from trueno_simd.threads.region import ALWAYS, WAKE_NS
from trueno_simd.threads.words import EACH, FOREGONE, SLEEPS, SPIN_TICKS, WAKE_TICKS, pause, peek, poke

COUNTS = types.Array(int64, 1, "C")
load = unpack(types.Tuple((COUNTS, int64)))


thread_id = types.ExternalFunction("PyThread_get_thread_ident", int64())


@outer
def tally(args, i):  # type: ignore[no-untyped-def]
    counts, work = load(args)
    for _ in range(work):
        pause()
    counts[i] += 1
    return 1 << (i % 8)


@kernel_entry(int64(COUNTS, int64, int64), cache=False)
def count_all(counts, chunks, work):  # type: ignore[no-untyped-def]
    args = pack((counts, work))
    return pool.parallel_for(address_of(tally), args, chunks)


@kernel_entry(int64(COUNTS, int64, int64), cache=False)
def count_all_without_gil(counts, chunks, work):  # type: ignore[no-untyped-def]
    args = pack((counts, work))
    token = release_gil()
    bits = pool.parallel_for(address_of(tally), args, chunks)
    acquire_gil(token)
    return bits


@kernel_entry(int64(COUNTS, int64, int64, int64), cache=False)
def count_all_of_little_work(counts, chunks, work, nanoseconds):  # type: ignore[no-untyped-def]
    args = pack((counts, work))
    return pool.parallel_for(address_of(tally), args, chunks, nanoseconds)


PATIENCE = 1 << 31  # pauses, at least some seconds: a wait that ends so long after fails its test
meeting_load = unpack(types.Tuple((COUNTS, COUNTS)))


@outer
def meet(args, i):  # type: ignore[no-untyped-def]
    """Stay in chunk i until all others of the meeting have begun: no thread runs two."""
    begun, threads = meeting_load(args)
    begun[i] = 1
    threads[i] = thread_id()
    for _ in range(PATIENCE):
        if begun.sum() == begun.shape[0]:
            return 0
        pause()
    return 1


@kernel_entry(int64(COUNTS, COUNTS), cache=False)
def meet_all(begun, threads):  # type: ignore[no-untyped-def]
    args = pack((begun, threads))
    token = release_gil()
    bits = pool.parallel_for(address_of(meet), args, begun.shape[0])
    acquire_gil(token)
    return bits


@outer
def hold_up(args, i):  # type: ignore[no-untyped-def]
    """Stay in the chunk that is `last` until all others are done, which its thread cannot do."""
    done, last = load(args)
    if i == last:
        for _ in range(PATIENCE):
            if done.sum() == done.shape[0] - 1:
                break
            pause()
        else:
            return 1
    done[i] += 1
    return 0


@kernel_entry(int64(COUNTS, int64, int64), cache=False)
def hold_one_up(done, last, work):  # type: ignore[no-untyped-def]
    args = pack((done, last))
    token = release_gil()
    bits = pool.parallel_for(address_of(hold_up), args, done.shape[0], work)
    acquire_gil(token)
    return bits


nested_load = unpack(types.Tuple((types.Array(int64, 2, "C"),)))


@outer
def nest(args, i):  # type: ignore[no-untyped-def]
    (counts,) = nested_load(args)
    inner = pack((counts[i], 0))
    return pool.parallel_for(address_of(tally), inner, counts.shape[1])


@kernel_entry(int64(types.Array(int64, 2, "C")), cache=False)
def count_nested(counts):  # type: ignore[no-untyped-def]
    return pool.parallel_for(address_of(nest), pack((counts,)), counts.shape[0])


@outer
def raise_at_3(args, i):  # type: ignore[no-untyped-def]
    if i == 3:
        raise ValueError
    return 1


@kernel_entry(int64(int64), cache=False)
def raising(chunks):  # type: ignore[no-untyped-def]
    return pool.parallel_for(address_of(raise_at_3), 0, chunks)


@pytest.fixture(params=[2, 3, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    pool.set_count(request.param)
    assert pool.ensure_started()
    yield request.param
    pool.set_count(cpus.usable_cpus())


def check(chunks: int, work: int = 0, kernel=count_all) -> None:  # type: ignore[no-untyped-def]
    counts = np.zeros(chunks + 1, np.int64)
    bits = kernel(counts, chunks, work)
    assert (counts[:chunks] == 1).all() and counts[chunks] == 0
    assert bits == (1 << min(chunks, 8)) - 1


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 7, 64, 1000])
def test_each_chunk_once(threads: int, chunks: int) -> None:
    for trial in range(2000 if chunks < 100 else 100):
        check(chunks, work=trial % 3 * 20)


def test_each_chunk_once_after_sleep(threads: int) -> None:
    for trial in range(200):
        time.sleep(0.0001 * (trial % 5))
        check(2 + trial % 5, work=200)


def test_long_chunks_make_the_caller_sleep(threads: int) -> None:
    for _ in range(5):
        check(threads, work=200_000)


def test_a_participant_has_the_same_chunk_every_time(threads: int) -> None:
    """Its core's cache then holds the chunk's memory from the call before."""
    seen = set()
    for _ in range(50):
        begun, ids = np.zeros(threads, np.int64), np.zeros(threads, np.int64)
        assert meet_all(begun, ids) == 0
        assert len(set(ids)) == threads and ids[0] == threading.get_ident()
        seen.add(tuple(ids))
    assert len(seen) == 1


def test_others_take_what_a_late_participant_leaves(threads: int) -> None:
    chunks = 8 * threads
    for trial in range(40):
        done = np.zeros(chunks, np.int64)
        assert hold_one_up(done, trial % chunks, ALWAYS) == 0
        assert (done == 1).all()


def sleepers(threads: int) -> list[int]:
    return [peek(SLEEPS + EACH * w) for w in range(threads - 1)]


def asleep(threads: int) -> None:
    limit = time.monotonic() + 30
    while not all(sleepers(threads)):
        assert time.monotonic() < limit
        time.sleep(0.001)


def check_little(nanoseconds: int) -> None:
    counts = np.zeros(8, np.int64)
    assert count_all_of_little_work(counts, 8, 0, nanoseconds) == 255
    assert (counts == 1).all()


@pytest.fixture
def clock() -> Iterator[None]:
    before = [(word, peek(word)) for word in (SPIN_TICKS, WAKE_TICKS)]
    yield
    for word, value in before:
        poke(word, value)


def test_little_work_does_not_wake_a_worker(threads: int, clock: None) -> None:
    asleep(threads)
    poke(SPIN_TICKS, -1)  # as if calls were far apart
    poke(WAKE_TICKS, 1 << 40)  # as if this machine took no time
    for _ in range(300):
        check_little(WAKE_NS // 3)
        assert all(sleepers(threads)) and peek(FOREGONE) < 1 << 40


def test_little_work_that_is_repeated_does(threads: int, clock: None) -> None:
    asleep(threads)
    poke(SPIN_TICKS, 1 << 62)  # as if calls were close together
    poke(WAKE_TICKS, 1 << 40)
    poke(FOREGONE, (1 << 40) - 1)
    check_little(WAKE_NS // 3)  # comes to the time that pays
    assert peek(FOREGONE) == 0
    check_little(WAKE_NS // 3)


def test_work_that_takes_longer_than_was_said_is_shared(threads: int, clock: None) -> None:
    for _ in range(20):
        asleep(threads)
        poke(WAKE_TICKS, 0)  # as if the first chunk took long
        counts = np.zeros(8, np.int64)
        assert count_all_of_little_work(counts, 8, 2000, 1) == 255
        assert (counts == 1).all()
        poke(WAKE_TICKS, 1 << 40)
    asleep(threads)
    done = np.zeros(8, np.int64)
    poke(WAKE_TICKS, 0)
    assert hold_one_up(done, 5, 1) == 0  # ends only if others take the rest
    assert (done == 1).all()


def test_eight_python_threads_at_once(threads: int) -> None:
    failures: list[BaseException] = []

    def hammer(kernel) -> None:  # type: ignore[no-untyped-def]
        try:
            for trial in range(400):
                check(1 + trial % 9, work=trial % 50, kernel=kernel)
        except BaseException as error:
            failures.append(error)

    kernels = [count_all, count_all_without_gil] * 4
    crowd = [threading.Thread(target=hammer, args=(kernel,)) for kernel in kernels]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join(60)
    assert not failures and not any(one.is_alive() for one in crowd)


def test_the_count_changes_while_others_compute(threads: int) -> None:
    going, failures = threading.Event(), []

    def hammer() -> None:
        try:
            while not going.is_set():
                check(5, work=100, kernel=count_all_without_gil)
        except BaseException as error:
            failures.append(error)

    crowd = [threading.Thread(target=hammer) for _ in range(2)]
    for one in crowd:
        one.start()
    for n in (1, 3, 2, 5, 1, 2) * 3:
        pool.set_count(n)
    going.set()
    for one in crowd:
        one.join(60)
    assert not failures and not any(one.is_alive() for one in crowd)


def test_nested_calls_run_serially(threads: int) -> None:
    for _ in range(200):
        counts = np.zeros((6, 9), np.int64)
        count_nested(counts)
        assert (counts == 1).all()


def test_an_exception_in_a_chunk_is_reported_and_harmless(threads: int) -> None:
    assert raising(3) == 1
    assert raising(8) == -1
    check(8)


def test_one_thread_means_no_worker() -> None:
    pool.set_count(1)
    assert not pool.ensure_started() and pool.workers() == 0 and pool.count() == 1
    check(9)
    assert pool.workers() == 0
    pool.set_count(2)
    check(9)  # starts by itself
    assert pool.workers() == 1
    pool.stop()
    assert pool.workers() == 0
    check(9)
    assert pool.workers() == 1
    with pytest.raises(ValueError, match="less than 1"):
        pool.set_count(0)


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = pool._thread.start_new_thread, []

    def start(function, args):  # type: ignore[no-untyped-def]
        calls.append(function)
        if len(calls) > 1:  # the first is the one that starts the others
            raise RuntimeError("can't start new thread")
        return real(function, args)

    pool.set_count(3)
    with monkeypatch.context() as patch:
        patch.setattr(pool._thread, "start_new_thread", start)
        check(9)
        check(9)
        assert len(calls) == 2 and pool.workers() == 0
    pool.set_count(2)
    check(9)
    assert pool.workers() == 1


def test_idle_workers_use_no_cpu(threads: int) -> None:
    check(9)
    time.sleep(0.05)
    begin = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - begin < 0.1


def test_the_default_count_is_what_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/a\n0::/b/c\n",
        "/sys/fs/cgroup/b/cpu.max": "max 100000\n",
        "/sys/fs/cgroup/b/c/cpu.max": "250000 100000\n",
    }
    monkeypatch.setattr(cpus, "_read", lambda path: files.get(path, ""))
    assert cpus._quota() == 3
    files["/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us"] = "50000\n"
    files["/sys/fs/cgroup/cpu/a/cpu.cfs_period_us"] = "100000\n"
    assert cpus._quota() == 1 and cpus.usable_cpus() == 1
    files["/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us"] = "-1\n"
    files["/sys/fs/cgroup/b/c/cpu.max"] = "max 100000\n"
    assert cpus._quota() is None
    monkeypatch.setattr(cpus, "_read", lambda path: "")
    assert cpus._quota() is None and cpus.usable_cpus() >= 1


# ------------------------------------------------------------------------------------ whole processes

KERNEL = """
import os, sys, threading, time, signal
import numpy as np
from numba import int64, types
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil, unpack
from trueno_simd.llvm.jit import outer
from trueno_simd.threads import pool
from trueno_simd.threads.words import pause
A = types.Array(int64, 1, "C")
load = unpack(types.Tuple((A, int64)))
@outer
def piece(args, i):
    counts, work = load(args)
    for _ in range(work):
        pause()
    counts[i] += 1
    return 0
@kernel_entry(int64(A, int64, int64))
def kernel(counts, chunks, work):
    args = pack((counts, work))
    token = release_gil()
    bits = pool.parallel_for(address_of(piece), args, chunks)
    acquire_gil(token)
    return bits
def check(chunks=7, work=50):
    counts = np.zeros(chunks, np.int64)
    kernel(counts, chunks, work)
    assert (counts == 1).all(), counts
pool.set_count(3)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """Run code after KERNEL, in a process whose compiled code is cached beside it."""
    folder = tmp_path_factory.mktemp("threads")
    (folder / "kernels.py").write_text(KERNEL)

    def run(code: str) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {
            "TRUENO_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
        }
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", "from kernels import *\n" + textwrap.dedent(code)],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    run.folder = folder  # type: ignore[attr-defined]
    return run


def test_a_second_process_uses_the_cached_kernels(script) -> None:  # type: ignore[no-untyped-def]
    code = "check(); assert pool.workers() == 2; check(100); print(sum(kernel.stats.cache_hits.values()))"
    first = script(code)
    assert first.returncode == 0, first.stderr
    found = {p.name: p.stat().st_mtime_ns for p in Path(script.folder).rglob("*.nbc")}
    assert found
    second = script(code)
    assert (second.returncode, second.stdout.strip()) == (0, "1"), second.stderr
    assert found == {p.name: p.stat().st_mtime_ns for p in Path(script.folder).rglob("*.nbc")}


ENDINGS = {
    "after use": "check()",
    "while workers spin": "[check() for _ in range(1000)]",
    "by sys.exit": "check(); sys.exit(0)",
    "by os._exit": "check(); os._exit(0)",
    "daemon threads inside kernels": """
        def forever():
            while True: check(5, 2000)
        for _ in range(3): threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.2)""",
    "never used": "pass",
    "use in atexit": "import atexit; check(); atexit.register(check); pool.stop()",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_process_ends_quietly(script, name: str) -> None:  # type: ignore[no-untyped-def]
    done = script(ENDINGS[name])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("start", ["pass", "check()"])
def test_a_forked_child_has_its_own_pool(script, start: str) -> None:  # type: ignore[no-untyped-def]
    done = script(f"""
        {start}
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                assert pool.workers() == 0
                [check() for _ in range(100)]
                assert pool.workers() == 2
                os._exit(0)
            [check() for _ in range(100)]
            assert os.waitpid(pid, 0)[1] == 0
    """)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_in_the_middle_of_a_region(script) -> None:  # type: ignore[no-untyped-def]
    done = script("""
        check()
        going = True
        def forever():
            while going: check(5, 3000)
        crowd = [threading.Thread(target=forever) for _ in range(2)]
        [one.start() for one in crowd]
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                [check() for _ in range(20)]
                os._exit(0 if pool.workers() == 2 else 9)
            assert os.waitpid(pid, 0)[1] == 0
        going = False
        [one.join() for one in crowd]
        check()
    """)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_ctrl_c_leaves_everything_usable(script) -> None:  # type: ignore[no-untyped-def]
    done = script("""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores it
        check()
        seen = 0
        for trial in range(30):
            left = threading.Event()
            def interrupt():  # again and again, as a person would: one signal may fall into a callback, which drops it
                while not left.wait(0.002 + trial % 5 * 0.002):
                    os.kill(os.getpid(), signal.SIGINT)
            killer = threading.Thread(target=interrupt)
            try:
                killer.start()
                if trial % 3 == 0: pool.stop()
                while True: check(6, 5000)
            except KeyboardInterrupt:
                seen += 1
            while killer.is_alive():
                try:
                    left.set()
                    killer.join()
                except KeyboardInterrupt:
                    pass
            check()
        print(seen)
    """)
    assert (done.returncode, done.stdout.strip()) == (0, "30"), done.stderr


def test_a_changed_setting_counts_from_the_next_plan_on() -> None:
    import trueno

    x = np.ones(100_000, np.float32)
    usable = cpus.usable_cpus()
    with trueno.use("simd"):
        try:
            trueno.scale(x, 2.0)
            for wanted in (1, usable + 1, None, 1, None):
                trueno.settings.override("TRUENO_THREADS", wanted)
                assert (trueno.scale(x, 2.0) == 2).all()
                assert pool.count() == (wanted or usable)
        finally:
            trueno.settings.override("TRUENO_THREADS", None)
            pool.set_count(usable)
