"""Launches of a recording are issued in each way, in their order; on a GPU all ways compute the same."""

import json
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.discovery import registry
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.caches import attend
from unit.benchmarks.folding import FOLDS, Noting, built, chain

from benchmarks.ways import __main__ as command
from benchmarks.ways import collect, fold


@pytest.fixture
def rng():
    print(f"seed {(seed := fresh_seed())}")
    return np.random.default_rng(seed)


class Listing:
    """A device that lists what is issued to it."""

    sms, shared = 4, 227 << 10

    def __init__(self):
        self.log = []

    def prepare(self, kernel, grid, numbers=(), block=None, shared=-1):
        def launch(pointers, floats=()):
            self.log.append((kernel.name, kernel.early, tuple(pointers)))

        launch.bound = lambda pointers: lambda: launch(pointers)
        return launch

    def copy(self, x, out):
        self.log.append(("copy", x, out))

    def to_device(self, x):
        return SimpleNamespace(data=SimpleNamespace(ptr=x.nbytes))

    @contextmanager
    def recording(self):
        yield "recording"
        self.log.append("end")


def issued(way):
    """What a device is given by a recording of bring, join, bring, gelu, bring, a copy and bring; and the collector."""
    device = Listing()
    with collect.collecting(device) as collector:
        collector.way = way
        bring, join, gelu = (device.prepare(built(n), (1, 1, 1), (0,) * 8) for n in ("bring", "attention_join", "gelu"))
        bring((0,) * 9, (1.0,))
        assert device.log.pop() == (built("bring").name, True, (0,) * 9)  # at once, outside of a recording
        with device.recording() as recording:
            assert recording == "recording"
            bring((1,) * 9, (1.0,))
            join.bound((2,) * 3)()
            bring((3,) * 9, (1.0,))
            gelu((4, 4))
            bring((5,) * 9, (1.0,))
            assert device.log == []
            device.copy(6, 7)
            bring((8,) * 9, (1.0,))
    assert "prepare" not in vars(device) and "copy" not in vars(device) and "recording" not in vars(device)
    return device.log, collector


@pytest.mark.parametrize("way", [collect.PLAIN, collect.EARLY])
def test_launches_and_copies_keep_their_order(way):
    log, collector = issued(way)
    bring, join, gelu, early = built("bring").name, built("attention_join").name, built("gelu").name, way == "early"
    assert log == [
        (bring, early, (1,) * 9), (join, early, (2,) * 3), (bring, early, (3,) * 9), (gelu, early, (4, 4)),
        (bring, early, (5,) * 9), ("copy", 6, 7), (bring, early, (8,) * 9), "end",
    ]  # fmt: skip
    assert collector.issued.launches == collector.issued.graph == 6 and collector.issued.folded == 0


def test_runs_of_launches_become_one(monkeypatch):
    monkeypatch.setattr(collect, "table", lambda kernels, steps: (b"\0" * 16 * len(steps), 16))
    log, collector = issued(collect.PERSISTENT)
    bring, gelu = built("bring").name, built("gelu").name
    assert log == [
        ("persistent_2", True, (48, 4)), (gelu, True, (4, 4)), (bring, True, (5,) * 9), ("copy", 6, 7),
        (bring, True, (8,) * 9), "end",
    ]  # fmt: skip
    assert (collector.issued.launches, collector.issued.graph, collector.issued.folded) == (6, 4, 3)
    assert collector.issued.segments == [(3, 2)] and len(collector.kernels) == 1
    assert sorted(collector.issued.stayed.values()) == [1, 2]


def test_an_error_of_a_recording_is_kept():
    device = Listing()
    with collect.collecting(device) as collector:
        with pytest.raises(KeyError), device.recording():
            raise KeyError("x")
        assert isinstance(collector.error, KeyError)
        with device.recording():
            pass
        assert collector.error is None


def test_attention_is_planned_without_clusters_inside():
    device = SimpleNamespace(sms=132, arch="sm_90a")
    sizes = attend.Sizes(1, 1, 28, 4, 3, 256, 3, attend.Rows("f16", 128), attend.Rows("f16", 128), 0, False)
    assert attend.meeting(device, sizes, attend.PLANNED).blocks == 16
    with collect.without_clusters():
        assert attend.meeting(device, sizes, attend.PLANNED) is None
    assert attend.PLANNED == (0, 0)


def replayed(device, way, rng):
    """The chain twice, with a copy between, recorded in one way and replayed; the result, what is right, and counts."""
    with collect.collecting(device) as collector:
        collector.way = way
        launch, one, x, wanted = chain(device, 7, rng)
        copied = device.to_device(np.zeros_like(x))
        with device.recording() as recording:
            launch()
            device.copy(one, copied)
            launch()
        recording.replay()
        device.wait()
        halfway, end = wanted(x), wanted(wanted(x))
        assert device.to_host(copied).tobytes() == halfway.tobytes()
        assert device.to_host(one).tobytes() == end.tobytes()
        device.write(x, one)
        recording.replay()  # the counter is 0 again
        device.wait()
        assert device.to_host(one).tobytes() == end.tobytes()
    return collector.issued


@pytest.mark.parametrize("way", [collect.PLAIN, collect.EARLY])
def test_a_recording_computes_the_same_in_every_way(rng, way):
    done = replayed(Emulator("sm_90"), way, rng)
    assert (done.launches, done.graph, done.segments) == (8, 8, [])


# ------------------------------------------------------------------------------------------ the command


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(trueno, "backends", lambda: {"cuda": SimpleNamespace(available=False, reason="no driver")})
    with pytest.raises(SystemExit, match=r"none here \(no driver\)"):
        command.main([])


def test_the_table_and_the_file(monkeypatch, capsys, tmp_path):
    there = SimpleNamespace(available=True, devices=[SimpleNamespace(name="A GPU")])
    monkeypatch.setattr(trueno, "backends", lambda: {"cuda": there})
    logits = np.arange(4, dtype=np.float32)

    def contestant(way, graph, seconds, more=0.0):
        done = collect.Issued(9, graph, [(3, 3), (4, 3)] if way == "persistent" else [], Counter({"threads": 2}))
        return command.Contestant(way, None, None, logits + np.float32(more), done, seconds)

    def measured(shape, context):
        assert (shape, context) == ("1.5b", 64)
        ways = [contestant("plain", 9, 2e-3), contestant("early", 9, 1e-3), contestant("persistent", 4, 1.5e-3, off)]
        return [*ways, contestant(command.SHIPPED, 8, 1e-3, 0.5)], {"registers": 168, "local": 48}

    monkeypatch.setattr(command, "measured", measured)
    off, arguments = 0.0, ["--shape", "1.5b", "--context", "64", "--json", str(tmp_path / "x.json")]
    assert command.main(arguments) == 0
    out = capsys.readouterr().out
    assert "1.5b, one sequence after 64 tokens on A GPU" in out
    assert "7 of 9 launches are part of 2 persistent ones" in out and "registers 168, local 48" in out
    (row,) = (line for line in out.splitlines() if line.startswith("persistent "))
    assert row.split() == ["persistent", "4", "1500.0", "666.7", "the", "same", "bits"]
    assert "off by 0.5 at most" in out and "   2 stay: threads" in out
    kept = json.loads((tmp_path / "x.json").read_text("utf-8"))
    assert [way["seconds"] for way in kept["ways"]] == [2e-3, 1e-3, 1.5e-3, 1e-3] and kept["gpu"] == "A GPU"
    off = 0.25
    assert command.main(arguments[:4]) == 1


# ------------------------------------------------------------------------------------------ on a GPU


@pytest.fixture
def device():
    found = registry.load("cuda").device
    if found.capability < (9, 0):
        pytest.skip("this GPU launches nothing early")
    return found


ON_A_GPU = pytest.mark.skipif(not trueno.backends()["cuda"].available, reason="this machine has no GPU for CUDA")


@pytest.mark.gpu
@ON_A_GPU
@FOLDS
def test_a_gpu_computes_what_it_computes_alone(device, threads, names):
    noted = Noting(device)
    for name in names:
        noted.run(*name)
    alone, kernels = noted.held(), fold.kinds(noted.steps)
    for array, first in noted.arrays:
        device.write(first, array)
    rows, stride = fold.table(kernels, noted.steps)
    there, count = device.to_device(np.frombuffer(rows, np.uint8)), device.to_device(np.zeros(1, np.uint32))
    launch = device.prepare(fold.folded(kernels, threads, 2), (2 * device.sms, 1, 1), (len(noted.steps), stride))
    for _ in range(2):  # the samples overwrite the same bytes again
        launch((there.data.ptr, count.data.ptr))
        device.wait()
        assert noted.held() == alone and not device.to_host(count).any()


@pytest.mark.gpu
@ON_A_GPU
@pytest.mark.parametrize("way", [collect.PLAIN, collect.EARLY, collect.PERSISTENT])
def test_a_gpu_replays_every_way(device, rng, way):
    done = replayed(device, way, rng)
    folded = way == collect.PERSISTENT
    assert (done.launches, done.graph, done.segments) == (8, 2 if folded else 8, [(4, 3)] * 2 if folded else [])
