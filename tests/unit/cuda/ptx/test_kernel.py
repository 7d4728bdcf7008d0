"""The signature is the interface; building needs nothing but the standard library."""

import ast
import re
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import trueno_cuda.ptx
from trueno_cuda.ptx import BuildError, Type, bf16, body, f32, f64, kernel, ptr, tensor_map, u8, u16, u32
from unit.cuda.ptx.assembler import assembled


def test_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import trueno_cuda.ptx as p\n"
        "@p.kernel(threads=32)\n"
        "def one(k, x: p.ptr(p.f32)): x.store(k.tid, 1.0)\n"
        "one.build('sm_90')\n"
        "foreign = {m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(foreign))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['trueno_cuda']"


def test_the_package_s_own_example_runs() -> None:
    code = textwrap.dedent(trueno_cuda.ptx.__doc__.split("\n\n", 1)[1].split("\n\nPython runs")[0])
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=True)
    assert "ld.global.f32" in done.stdout


def test_parameters_are_packed_as_c_packs_them() -> None:
    @kernel(threads=32)
    def mixed(k, a: u16, b: f64, c: u32, d: ptr(f32), e: tensor_map, f: f32):
        d.store(0, f)

    built = mixed.build("sm_90")
    assembled(built)
    assert [(p.name, p.offset, p.bytes) for p in built.params] == [
        ("a", 0, 2),
        ("b", 8, 8),
        ("c", 16, 4),
        ("d", 24, 8),
        ("e", 64, 128),
        ("f", 192, 4),
    ]
    assert built.param_bytes == 196


def test_names_tell_the_constants() -> None:
    @kernel(threads=32)
    def named(k, *, N: int, fast: bool = False, eps: float = 0.0, kind: Type = f32, note: str = ""):
        pass

    assert named.build(N=3).name != named.build(N=4).name
    names = {
        named.build(N=3, fast=fast, eps=eps, kind=kind, note=note).name
        for fast in (False, True)
        for eps in (0.0, 1e-5)
        for kind in (f32, bf16)
        for note in ("", "é", "a b", "a_b")
    }
    assert len(names) == 32
    assert all(re.fullmatch(r"named_N3_[A-Za-z0-9_]+", n) for n in names)
    assert named.build(N=3, note="é").text.isascii()

    @kernel(threads=32)
    def plain(k, *, N: int, fast: bool = False):
        pass

    assert plain.build(N=3, fast=True).name == "plain_N3_fast1"


def test_constants_steer_python() -> None:
    @kernel(threads="T")
    def chosen(k, x: ptr(f32), *, T: int, twice: bool):
        y = x.load(k.tid)
        x.store(k.tid, y + y if twice else y)

    assert ".reqntid 64, 1, 1" in chosen.build(T=64, twice=True).text
    assert "add.rn.f32" in chosen.build(T=64, twice=True).text
    assert "add.rn.f32" not in chosen.build(T=64, twice=False).text
    assert chosen.build(T=64, twice=True).threads == (64, 1, 1)


def test_limits_and_clusters() -> None:
    @kernel(threads=(32, 4), blocks_per_sm=2, cluster=2, registers=64)
    def limited(k):
        k.sync_cluster()

    built = limited.build("sm_90")
    assembled(built)
    for line in (".reqntid 32, 4, 1", ".minnctapersm 2", ".maxnreg 64", ".reqnctapercluster 2, 1, 1"):
        assert f"\n{line}\n" in built.text
    assert built.cluster == (2, 1, 1)
    with pytest.raises(BuildError, match=r"barrier\.cluster\.arrive needs sm_90"):
        limited.build("sm_80")


def test_python_lines_for_profilers() -> None:
    @kernel(threads=32)
    def located(k, x: ptr(f32)):
        y = x.load(k.tid)
        x.store(k.tid, y + 1.0)

    built = located.build(loc=True)
    assembled(built)
    first = located.function.__code__.co_firstlineno
    assert re.findall(r"\.loc 1 (\d+) 0", built.text) == [str(first + 2), str(first + 3)]
    assert ".loc" not in located.build().text


def refused(message: str, function, **options) -> None:
    with pytest.raises(BuildError, match=message):
        kernel(**(options or {"threads": 32}))(function).build()


def test_bad_signatures() -> None:
    def unannotated(k, x): ...
    def python_type(k, n: int): ...
    def defaulted(k, n: u32 = 3): ...
    def collecting(k, *xs: u32): ...
    def byte(k, n: u8): ...
    def reserved(k, *, arch: str): ...
    def fine(k): ...

    refused("unannotated: annotate x with a type such as f32, u32 or ptr", unannotated)
    refused("python_type: annotate n with a type", python_type)
    refused("a launch passes all parameters; constants stand behind the", defaulted)
    refused("a launch passes all parameters", collecting)
    refused("parameter n: a launch passes numbers of 16 bits or more and pointers, not u8", byte)
    refused("reserved: arch is an argument of build", reserved)
    refused("give either threads=256, or max_threads=", fine, threads=32, max_threads=64)
    refused("one to three positive ints", fine, threads=(0,))
    refused("are more than 1024 threads a block", fine, threads=(64, 32))
    refused("it has no such constant", fine, threads="T")


def test_bad_constants() -> None:
    @kernel(threads=32)
    def scaled(k, *, N: int, scale: float = 1.0):
        pass

    with pytest.raises(BuildError, match=r"scaled: the constant N is missing: build\(N=...\)"):
        scaled.build()
    with pytest.raises(BuildError, match="scaled has no constant 'scal'; did you mean \"scale\""):
        scaled.build(N=1, scal=2.0)
    with pytest.raises(BuildError, match=r"the constant N is 4\.0, and must be of type int"):
        scaled.build(N=4.0)
    with pytest.raises(BuildError, match="the constant N is True, and must be of type int"):
        scaled.build(N=True)
    assert scaled.build(N=1, scale=2).constants == {"N": 1, "scale": 2}
    with pytest.raises(BuildError, match="scaled is a kernel"):
        scaled()


def test_a_block_whose_size_the_launch_decides() -> None:
    @kernel(max_threads=512)
    def open_sized(k, x: ptr(f32)):
        x.store(k.ctaid * k.ntid + k.tid, 1.0)

    built = open_sized.build()
    assembled(built)
    assert (built.threads, built.max_threads) == (None, 512)
    assert ".maxntid 512, 1, 1" in built.text

    @kernel(max_threads=512)
    def asking(k):
        k.threads  # noqa: B018

    with pytest.raises(BuildError, match="the launch decides how many"):
        asking.build()


def test_an_error_points_at_the_kernel_s_line() -> None:
    @kernel(threads=32)
    def wrong(k, n: u32):
        n + 1.5

    with pytest.raises(BuildError) as caught:
        wrong.build()
    assert any(e.name == "wrong" for e in caught.traceback)


def test_one_thread_at_a_time_makes_a_syntax_tree(monkeypatch):
    """Two at once are a SystemError of Python 3.11, at times, where kernels of several GPUs are built in threads."""
    running, most = [], []

    def parse(text):
        running.append(text)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()
        return ast.parse(text)

    monkeypatch.setattr(body, "ast", SimpleNamespace(**vars(ast) | {"parse": parse}))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: body.fault.__wrapped__(_plain, frozenset()), range(4))) == [""] * 4
    assert most == [1] * 4


def _plain(k):
    """Nothing wrong."""
