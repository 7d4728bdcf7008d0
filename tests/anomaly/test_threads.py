"""Eight threads under changing contexts: each gets its own backend and the right numbers."""

import asyncio
import threading
import warnings

import numpy as np
import trueno

THREADS = 8


def together(work):
    """`work(i)` in eight threads that start at once; the first error is raised."""
    barrier = threading.Barrier(THREADS)
    errors = []

    def run(i):
        try:
            barrier.wait()
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_small_ops_under_changing_contexts(fake):
    names = ("scalar", "reference", "fake", "")

    def work(i):
        x = np.full((3, 5), i + 1, np.float32)
        for k in range(120):
            name = names[(i + k) % len(names)]
            with trueno.use(*[name] if name else []):
                asked = name or trueno.explain("add", x, x).chosen
                assert trueno.explain("add", x, x).chosen == asked
                assert (trueno.add(x, x) == 2 * (i + 1)).all()
                assert trueno.sum(x).tolist() == [5.0 * (i + 1)] * 3
                assert (trueno.matmul(x, x.T.copy()) == 5.0 * (i + 1) ** 2).all()

    together(work)
    import gc

    gc.collect()
    assert fake.LEDGER.live == 0
    assert fake.LEDGER.uploads > 0


def test_the_first_calls_of_all_threads(plugins):
    """Scan, probe and load happen once, whichever thread comes first."""
    plugins(fake=None, chaos=["prints", "says_no"])

    def work(i):
        x = np.full(10, i, np.float32)
        for name in ("fake", "scalar"):
            with trueno.use(name):
                assert (trueno.add(x, x) == 2 * i).all()
        assert trueno.backends()["fake"] is trueno.backends()["fake"]

    together(work)


def test_one_thread_fails_and_the_others_do_not_notice(plugins):
    plugins(chaos=["raises_mid_run"], TRUENO_PROBE="off", TRUENO_FALLBACK="warn")
    x = np.ones(9, np.float32)
    assert trueno.explain("add", x, x).chosen == "raises_mid_run"
    import trueno_chaos.running

    trueno_chaos.running.control.arm(100)

    def work(i):
        for _ in range(60):
            assert (trueno.add(x, x) == 2).all()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        together(work)
    assert len([w for w in caught if issubclass(w.category, trueno.TruenoWarning)]) == 1


def test_reloading_while_others_compute(fake):
    """settings.reload, reset_quarantine and set_default in one thread, calls in the others."""
    done = threading.Event()

    def work(i):
        if i == 0:
            for k in range(40):
                trueno.settings.reload()
                trueno.reset_quarantine()
                trueno.set_default(*["scalar"] * (k % 2))
            trueno.set_default()
            done.set()
            return
        x = np.full(7, i, np.float32)
        while not done.is_set():
            assert (trueno.add(x, x) == 2 * i).all()

    try:
        together(work)
    finally:
        trueno.set_default()


def test_tasks_have_contexts_of_their_own(fake):
    async def task(i):
        name = ("scalar", "fake", "reference")[i % 3]
        x = np.full(5, i, np.float32)
        with trueno.use(name):
            for _ in range(5):
                await asyncio.sleep(0)
                assert trueno.explain("add", x, x).chosen == name
                assert (trueno.add(x, x) == 2 * i).all()

    async def all_of_them():
        await asyncio.gather(*(task(i) for i in range(30)))

    asyncio.run(all_of_them())
