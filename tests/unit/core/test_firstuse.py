"""Imports at first use and forks: a child never waits for an import that a thread of its parent was in."""

import os

import pytest
from fake_plugin import run, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

FORK = """
import importlib.abc, importlib.machinery, os, signal, sys, threading, time, warnings
import trueno
from trueno import firstuse

warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
inside = threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    '''An import of NAME takes long, the first time; what happens meanwhile is up to `meanwhile`.'''
    def find_spec(self, name, path=None, target=None):
        if name != NAME or inside.is_set():
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def slowly(module):  # not in the finder, whose lock a fork takes
            if not inside.is_set():
                inside.set()
                meanwhile()
            execute(module)
        spec.loader.exec_module = slowly
        return spec

def meanwhile():
    time.sleep(0.5)

firstuse.LONGEST = 60  # on a machine with much else to do

def child(work):
    '''How a child ended that did this; a signal where it waited for ever.'''
    pid = os.fork()
    if not pid:
        signal.alarm(40)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]

sys.modules.pop(NAME, None)  # some start-ups load importlib.util
sys.meta_path.insert(0, Slow())
"""
TOUCH = """
thread = threading.Thread(target=touch)
thread.start()
assert inside.wait(60)
assert child(touch) == 0
thread.join(60)
assert not thread.is_alive() and firstuse._threads == []
touch()
"""


def works(folder, name, code, **environ):
    done = run(folder, f"NAME = {name!r}\n{FORK}\n{code}", **environ)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize(
    "name, touch",
    [
        ("trueno.batch", "trueno.Batch"),
        ("trueno.batch.run", "trueno.Batch"),
        ("trueno.dispatch.function", "trueno.softmax"),
        ("importlib.util", "trueno.softmax"),  # which finds out that this is no module of ours
        ("trueno.aio.calls", "trueno.aio.add"),
        ("trueno.formats.encoders", "__import__('trueno.formats').formats.encode"),
        ("pluggy", "trueno.hooks.hookimpl"),
    ],
)
def test_a_fork_in_another_threads_import_of_ours(tmp_path, name, touch):
    works(tmp_path, name, f"touch = lambda: {touch}\n{TOUCH}")


def test_a_fork_in_another_threads_import_of_a_plugin(tmp_path):
    write(tmp_path, "works")
    touch = 'from trueno.discovery.registry import load\ntouch = lambda: load("works")\n'
    works(tmp_path, "fake_works_package.impl", touch + TOUCH, TRUENO_PROBE="off")


def test_a_fork_in_the_import_of_its_own_thread_waits_for_nothing(tmp_path):
    code = """
    import trueno.hooks
    ended = []
    firstuse.LONGEST = 1e9  # it would be noticed
    def meanwhile():
        ended.append(child(lambda: trueno.add))
    trueno.Batch
    assert ended == [0] and firstuse._threads == []
    assert child(lambda: trueno.aio) == 0
    """
    works(tmp_path, "trueno.batch", "\n".join(line[4:] for line in code.split("\n")))


def test_an_import_that_waits_for_the_forking_thread_stops_nobody_for_ever(tmp_path):
    code = """
    firstuse.LONGEST = 0.05
    forked = threading.Event()
    def meanwhile():
        assert forked.wait(60)
    thread = threading.Thread(target=lambda: trueno.Batch)
    thread.start()
    assert inside.wait(60)
    assert child(lambda: trueno.sync_available) == 0
    forked.set()
    thread.join(60)
    assert firstuse._threads == []
    """
    works(tmp_path, "trueno.batch", "\n".join(line[4:] for line in code.split("\n")))


def test_an_import_that_asks_for_a_logger_while_a_fork_waits_for_it_ends_before_that(tmp_path):
    code = """
    registered, forking = threading.Event(), threading.Event()
    def meanwhile():
        import logging
        firstuse._register_at_fork(before=forking.set)  # the latest hook runs first
        registered.set()
        assert forking.wait(60)
        logging.getLogger("late")
    touch = lambda: trueno.Batch
    """
    code = "\n".join(line[4:] for line in code.split("\n")) + TOUCH.replace("inside.wait", "registered.wait")
    works(tmp_path, "trueno.batch", code)


def test_an_import_that_fails_is_not_under_way(tmp_path):
    code = """
    def meanwhile():
        raise OSError("no")
    try:
        trueno.Batch
    except OSError:
        pass
    try:
        trueno.no_such_op
    except AttributeError:
        pass
    assert firstuse._threads == [] and child(lambda: trueno.Batch) == 0
    """
    works(tmp_path, "trueno.batch", "\n".join(line[4:] for line in code.split("\n")))


def test_many_forks_beside_threads_that_touch_everything_first(tmp_path):
    code = """
    inside.set()
    names = ["Batch", "aio", "Vector", "quantize", "explain", "trace", "device", "gguf", "register", "softmax"]
    def touch(order):
        for name in order:
            getattr(trueno, name)
    threads = [threading.Thread(target=touch, args=(names[i:] + names[:i],)) for i in range(4)]
    for thread in threads:
        thread.start()
    assert [child(lambda: touch(names)) for _ in range(5)] == [0] * 5
    for thread in threads:
        thread.join(60)
    """
    works(tmp_path, "", "\n".join(line[4:] for line in code.split("\n")))


def test_forks_at_once_where_a_hook_stands_between_two_of_ours(tmp_path):
    code = """
    inside.set()
    between = threading.Semaphore(0)
    def hook():
        between.release()
        time.sleep(0.2)  # the other fork begins
    def imports():
        with firstuse.importing:  # a hook that an import registers puts ours before it once more
            os.register_at_fork(before=hook)
    imports()
    ended = []
    threads = [threading.Thread(target=lambda: ended.append(child(lambda: trueno.Batch))) for _ in range(2)]
    threads[0].start()
    assert between.acquire(timeout=60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert ended == [0, 0]
    """
    works(tmp_path, "", "\n".join(line[4:] for line in code.split("\n")))


def test_work_that_forks_wait_for_may_take_long_and_may_import(tmp_path):
    code = """
    firstuse.LONGEST, firstuse.PATIENCE = 0.05, 60
    forking = threading.Event()
    def meanwhile():
        pass
    def works():
        with firstuse.forks_wait:
            inside.set()
            assert forking.wait(60)
            time.sleep(0.5)
            trueno.Batch
            done.append(time.monotonic())
    done = []
    firstuse._register_at_fork(before=forking.set)  # the latest hook runs first
    thread = threading.Thread(target=works)
    thread.start()
    assert inside.wait(60)
    assert child(lambda: None) == 0
    assert done and firstuse._threads == []
    """
    works(tmp_path, "", "\n".join(line[4:] for line in code.split("\n")))
