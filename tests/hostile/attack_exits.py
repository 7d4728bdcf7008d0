"""Exits in every manner while threads compute: the process ends soon, with its own exit code and no complaint."""

import signal

import numpy as np
from trueno import cachedir

from .attack import Tally
from .children import finish, start

BACKENDS = ("simd", "scalar", "cuda_emulated")
LIMIT = 240.0
PATIENCE = 60.0
WAYS = {
    "return": 0, "sys.exit": 7, "error": 1, "os._exit": 9, "SIGTERM": -signal.SIGTERM, "SIGINT": -signal.SIGINT,
    "atexit": 0, "atexit first": 0, "pending tasks": 0, "executor": 0, "run cancelled": 0, "pickled": 0,
}  # fmt: skip
"""How a program ends, and its exit code."""
PROGRAM = """
import asyncio, atexit, concurrent.futures, pickle, signal, threading
backend, way, wait = sys.argv[1], sys.argv[2], float(sys.argv[3])
daemons, others = int(sys.argv[4]), int(sys.argv[5])
trueno.set_default(backend)
over = False
big = LONG if backend != "cuda_emulated" else X

def compute():
    assert (trueno.add(X, X) == 2 * X).all()
    assert trueno.max(big) == big.max()
    trueno.softmax(big)

def forever():
    while True:
        compute()

def until():
    while not over:
        compute()

def last():
    compute()
    print("computed at the end", flush=True)

if way == "atexit first":
    atexit.register(last)  # before Trueno registers anything of its own
compute()
if way == "atexit":
    atexit.register(last)
for k in range(daemons):
    threading.Thread(target=forever, daemon=True).start()
others = [threading.Thread(target=until) for _ in range(others)]
for thread in others:
    thread.start()
time.sleep(wait)
over = True

async def pending():
    tasks = [asyncio.ensure_future(trueno.aio.softmax(big)) for _ in range(8)]
    await asyncio.sleep(wait / 10)

async def cancelled():
    tasks = [asyncio.ensure_future(trueno.aio.softmax(big)) for _ in range(8)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

if way == "sys.exit":
    sys.exit(7)
if way == "error":
    raise SystemError("meant")
if way == "os._exit":
    os._exit(9)
if way in ("SIGTERM", "SIGINT"):
    os.kill(os.getpid(), getattr(signal, way))
    time.sleep(20)
if way == "pending tasks":
    asyncio.run(pending())
if way == "run cancelled":
    asyncio.run(cancelled())
if way == "executor":
    pool = concurrent.futures.ThreadPoolExecutor(3)
    for _ in range(9):
        pool.submit(compute)
if way == "pickled":
    assert (pickle.loads(pickle.dumps(trueno.Vector(X))).numpy() == X).all()
"""


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    way = str(rng.choice(list(WAYS)))
    given = [str(float(rng.exponential(0.1))), str(rng.integers(0, 4)), str(rng.integers(0, 3))]
    # Kernels come from the user's cache: to compile them is not what is tried here.
    ended = finish(start(PROGRAM, cachedir.root(), backend, way, *given), PATIENCE)
    tally.states, tally.calls = 1, 3
    said = f"{way} with wait, daemons, threads = {', '.join(given)}: {ended}"
    assert ended.code == WAYS[way], said
    if way.startswith("atexit"):
        assert "computed at the end" in ended.out, said
    for word in ("Fatal Python error", "Exception ignored", "Segmentation", "never awaited", "never retrieved"):
        assert word not in ended.err, said
    if way not in ("error", "SIGINT"):
        assert "Traceback" not in ended.err, said
