"""What this machine can do at most: bytes a second for arrays of a size, and flops a second.

A probe is a loop in machine code that only loads, copies, adds two arrays, or multiplies and adds in registers.  It
runs for milliseconds in as many threads as the benchmark gives everybody, each on its own part of the arrays, so that
neither starting threads nor handing out work is in its figure.  A cell's floor is the longer of two times: its bytes at
the speed of the probe with the same traffic on arrays of the same size, and its flops, as the op's cost model counts
them, at the peak.  How near a kernel comes is its time over the floor; below 1, something disturbed the probe.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Barrier, Thread
from time import perf_counter
from typing import Final

import llvmlite.binding as llvm
import numpy as np

LANES: Final = 16
"""float32 in a vector of the probes, which LLVM splits where registers are shorter."""
STEP: Final = 4 * LANES
"""Elements that a probe handles in one step of its loop; arrays are cut to a multiple of it."""
CHAINS: Final = (12, 24)
"""Vectors that are multiplied and added at once, so that no unit waits for a result: as many as registers hold, which
differs; the faster probe counts."""
FLOPS_STEP: Final = 2 * LANES
PROBE_S: Final = 1e-3
"""Seconds that a probe runs at least; the best of `TRIES` counts."""
TRIES: Final = 20
PARALLEL: Final = 65_536
"""Elements from which a second thread can pay for being woken: below, the floor is that of one thread."""
VECTOR: Final = f"<{LANES} x float>"


@dataclass(frozen=True, slots=True)
class Floor:
    """The least seconds that a cell can take, and what limits it: `bytes` or `flops`."""

    seconds: float
    limit: str


def floor(reads: int, writes: int, flops: float, threads: int) -> Floor:
    """The floor of a call that reads and writes so many bytes and computes so many flops in float32."""
    elements = max(reads, writes) // 4
    team = threads if elements >= PARALLEL else 1
    moved = (reads + writes) / bandwidth(_traffic(reads, writes), reads + writes, team)
    computed = flops / peak(team)
    return Floor(moved, "bytes") if moved >= computed else Floor(computed, "flops")


def peak(threads: int) -> float:
    """Flops a second of float32, where a fused multiply-add is two."""
    return max(_peak(chains, threads) for chains in CHAINS)


TRAFFIC: Final = {"read": (1, 0), "copy": (1, 1), "add": (2, 1)}
"""By kind: arrays that a probe reads, and writes."""


def _traffic(reads: int, writes: int) -> str:
    if reads > 16 * writes:
        return "read"
    return "add" if reads > 1.5 * writes else "copy"


@cache
def bandwidth(traffic: str, size: int, threads: int) -> float:
    """Bytes a second of one kind of traffic (`TRAFFIC`) over arrays of `size` bytes together."""
    arrays = sum(TRAFFIC[traffic])
    n = max(STEP, size // (4 * arrays * threads) // STEP * STEP)
    rates = [_rate(name, n, arrays, threads) for name in (traffic, f"{traffic}_past_caches") if name in _functions()]
    return max(rates)


def _rate(name: str, n: int, arrays: int, threads: int) -> float:
    """The best bytes a second of `threads` probes, each on arrays of its own with `n` elements."""
    function = _functions()[name]
    parts = [[_aligned(n) for _ in range(arrays)] for _ in range(threads)]
    works = [lambda times, part=part: function(*(x.ctypes.data for x in part), n, times) for part in parts]
    return 4 * n * arrays * threads / _seconds(works)


@cache
def _peak(chains: int, threads: int) -> float:
    function = _functions()[f"flops{chains}"]
    return FLOPS_STEP * chains * threads / _seconds([lambda times: function(times)] * threads)


def _seconds(works: list[Callable[[int], object]]) -> float:
    """The least seconds a repetition takes when every work runs in a thread of its own."""
    times = 1
    while min(_race(works, times) for _ in range(3)) < PROBE_S and times < 1 << 30:  # one may be disturbed
        times *= 2
    return min(_race(works, times) for _ in range(TRIES)) / times


def _race(works: list[Callable[[int], object]], times: int) -> float:
    """Seconds until the last has ended, from when all had begun."""
    if len(works) == 1:
        start = perf_counter()
        works[0](times)
        return perf_counter() - start
    begin, spans = Barrier(len(works)), []

    def run(work: Callable[[int], object]) -> None:
        begin.wait()
        start = perf_counter()
        work(times)
        spans.append((start, perf_counter()))

    threads = [Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _aligned(n: int) -> np.ndarray:
    raw = np.ones(n + LANES, np.float32)
    return raw[-raw.ctypes.data % 64 // 4 :][:n]


# ---- the probes


def _loop(name: str, arrays: int, stores: bool, past_caches: bool = False) -> str:
    """`void name(float *…, i64 n, i64 times)`: the sum of all arrays but the last, into the last if it `stores`."""
    pointers = ", ".join(f"ptr %a{i}" for i in range(arrays))
    sources = arrays - stores
    hint = ", !nontemporal !0" if past_caches else ""
    body = []
    for k in range(STEP // LANES):
        body.append(f"  %at{k} = add i64 %i, {k * LANES}")
        for i in range(sources):
            body.append(f"  %p{i}_{k} = getelementptr float, ptr %a{i}, i64 %at{k}")
            load = "load" if stores else "load volatile"  # LLVM must not leave out a load whose value is unused
            body.append(f"  %v{i}_{k} = {load} {VECTOR}, ptr %p{i}_{k}, align 64")
        value = f"%v0_{k}"
        for i in range(1, sources):
            body.append(f"  %s{i}_{k} = fadd {VECTOR} {value}, %v{i}_{k}")
            value = f"%s{i}_{k}"
        if stores:
            body.append(f"  %q{k} = getelementptr float, ptr %a{arrays - 1}, i64 %at{k}")
            body.append(f"  store {VECTOR} {value}, ptr %q{k}, align 64{hint}")
    lines = "\n".join(body)
    fence = "  fence seq_cst\n" if past_caches else ""  # such stores are in no order otherwise
    return f"""
define void @{name}({pointers}, i64 %n, i64 %times) {{
start:
  br label %again
again:
  %t = phi i64 [ 0, %start ], [ %t1, %done ]
  br label %step
step:
  %i = phi i64 [ 0, %again ], [ %i1, %step ]
{lines}
  %i1 = add i64 %i, {STEP}
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %step, label %done
done:
{fence}  %t1 = add i64 %t, 1
  %over = icmp uge i64 %t1, %times
  br i1 %over, label %end, label %again
end:
  ret void
}}
"""


def _flops(chains: int) -> str:
    """`void flops(i64 times)`: `chains` vectors, each multiplied and added to once a time."""
    names = range(chains)
    phis = "\n".join(f"  %c{i} = phi {VECTOR} [ %z{i}, %start ], [ %d{i}, %step ]" for i in names)
    first = "\n".join(f"  %z{i} = load volatile {VECTOR}, ptr %cell" for i in names)
    steps = "\n".join(
        f"  %d{i} = call {VECTOR} @llvm.fma.v{LANES}f32({VECTOR} %c{i}, {VECTOR} %x, {VECTOR} %y)" for i in names
    )
    last = "\n".join(f"  store volatile {VECTOR} %d{i}, ptr %cell" for i in names)
    return f"""
define void @flops{chains}(i64 %times) {{
start:
  %cell = alloca {VECTOR}, align 64
  store {VECTOR} zeroinitializer, ptr %cell
  %x = load volatile {VECTOR}, ptr %cell
  %y = load volatile {VECTOR}, ptr %cell
{first}
  br label %step
step:
  %t = phi i64 [ 0, %start ], [ %t1, %step ]
{phis}
{steps}
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %times
  br i1 %more, label %step, label %end
end:
{last}
  ret void
}}
"""


@cache
def _functions() -> dict[str, Callable[..., None]]:
    """The probes by name; a call of one releases the GIL."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    texts = {
        "read": _loop("read", 1, False),
        **{k: _loop(k, sum(TRAFFIC[k]), True) for k in ("copy", "add")},
        **{f"{k}_past_caches": _loop(f"{k}_past_caches", sum(TRAFFIC[k]), True, True) for k in ("copy", "add")},
        **{f"flops{chains}": _flops(chains) for chains in CHAINS},
    }
    declared = f"declare {VECTOR} @llvm.fma.v{LANES}f32({VECTOR}, {VECTOR}, {VECTOR})\n"
    module = llvm.parse_assembly(declared + "\n".join(texts.values()) + "\n!0 = !{i32 1}\n")
    features = [f for f in llvm.get_host_cpu_features().flatten().split(",") if f != "+prefer-256-bit"]
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=",".join([*features, "-prefer-256-bit"]), opt=3, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _kept.append(engine)
    word, number = ctypes.c_void_p, ctypes.c_int64
    functions: dict[str, Callable[..., None]] = {}
    for name in texts:
        pointers = 0 if name.startswith("flops") else sum(TRAFFIC[name.split("_")[0]])
        kinds = [word] * pointers + [number] * (2 if pointers else 1)
        functions[name] = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(name))
    return functions


_kept: list[object] = []  # the machine code lives as long as its engine


def main() -> None:
    """`python -m benchmarks.floors [THREADS]`: the figures of this machine."""
    import sys

    most = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    for threads in range(1, most + 1):
        print(f"{threads} threads: {peak(threads) / 1e9:.0f} Gflop/s")
        for traffic, arrays in TRAFFIC.items():
            sizes = [4 * n * sum(arrays) for n in (1_024, 100_000, 1_000_000, 16_000_000)]
            print(f"  {traffic:<5}", *(f"{bandwidth(traffic, size, threads) / 1e9:7.1f} GB/s" for size in sizes))


if __name__ == "__main__":
    main()
