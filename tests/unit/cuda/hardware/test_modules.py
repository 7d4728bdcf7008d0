"""Loaded kernels, and the machine code that is kept between processes."""

import os
import stat

import pytest
from trueno.errors import KernelError
from trueno.settings import settings
from trueno_cuda.device.hardware import modules
from trueno_cuda.device.hardware.modules import Modules
from unit.cuda.hardware import kernels

ADD = kernels.add.build(arch="sm_90a")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An own cache folder, and a JIT that is never quick."""
    monkeypatch.setattr(modules, "QUICK", -1.0)
    settings.override("TRUENO_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "cuda" / "sm_90-13000"
    settings.override("TRUENO_CACHE_DIR", None)


@pytest.fixture
def fresh(driver, context, stub):
    """The modules of a new process, on the same machine."""

    def make():
        context.__enter__()
        return Modules(driver, "sm_90a", (9, 0), 232448)

    return make


def test_a_kernel_is_loaded_once(cache, fresh, stub):
    loaded = fresh()
    assert loaded.function(ADD, 0) == loaded.function(kernels.add.build(arch="sm_90a"), 0)
    assert (loaded.compiled, loaded.reused) == (1, 0)
    assert loaded.function(kernels.mapped.build(arch="sm_90a"), 0) != loaded.function(ADD, 0)
    assert loaded.figures(ADD)["registers"] == 32


def test_machine_code_is_kept_for_the_next_process(cache, fresh):
    first = fresh()
    first.function(ADD, 0)
    (kept,) = cache.iterdir()
    assert kept.name == f"{ADD.key}.cubin"
    assert stat.S_IMODE(os.stat(cache).st_mode) == 0o700
    second = fresh()
    second.function(ADD, 0)
    assert (second.compiled, second.reused) == (0, 1)


def test_another_driver_has_a_folder_of_its_own(cache, fresh, driver):
    fresh().function(ADD, 0)
    driver.version = 13010
    again = fresh()
    again.function(ADD, 0)
    assert again.compiled == 1
    assert (cache.parent / "sm_90-13010" / f"{ADD.key}.cubin").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-9],
        lambda text: text.replace(b"1 ", b"2 ", 1),
        lambda text: b"",
        lambda text: b"\xff\xfe" + text,
        lambda text: text[:-5] + (b"A" if text[-5:-4] != b"A" else b"B") + text[-4:],
    ],
)
def test_a_damaged_file_is_written_anew(cache, fresh, damage):
    fresh().function(ADD, 0)
    (path,) = cache.iterdir()
    good = path.read_bytes()
    path.write_bytes(damage(good))
    again = fresh()
    again.function(ADD, 0)
    assert (again.compiled, again.reused) == (1, 0)
    assert path.read_bytes() == good


def test_code_that_the_driver_refuses_is_compiled_again(cache, fresh, monkeypatch):
    import hashlib
    from base64 import b64encode

    fresh().function(ADD, 0)
    (path,) = cache.iterdir()
    foreign = b"\x7fELF\x02of another GPU"
    path.write_text(f"trueno cubin 1 {hashlib.sha256(foreign).hexdigest()}\n{b64encode(foreign).decode()}\n")
    again = fresh()
    again.function(ADD, 0)
    assert (again.compiled, again.reused) == (1, 0)
    assert foreign not in path.read_bytes()
    third = fresh()
    third.function(ADD, 0)
    assert third.reused == 1


def test_code_of_the_linker_that_takes_more_registers_is_not_kept(cache, fresh, stub):
    stub.set(linked_registers=80)
    fresh().function(ADD, 0)
    assert not list(cache.iterdir())


def test_what_the_driver_had_cached_itself_is_not_kept_again(cache, fresh, monkeypatch, stub):
    monkeypatch.setattr(modules, "QUICK", 60.0)
    fresh().function(ADD, 0)
    assert not list(cache.iterdir()) and stub.linked == 0


def test_a_driver_without_a_linker_is_no_error(cache, fresh, stub):
    stub.fail("cuLinkAddData_v2", 300)
    fresh().function(ADD, 0)
    assert not list(cache.iterdir())


def test_a_folder_of_others_is_not_used(cache, fresh):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.warns(UserWarning, match="can be written by other users"):
        fresh().function(ADD, 0)
    assert not list(cache.iterdir())


def test_shared_memory_above_48_kib_is_asked_for(cache, fresh, stub):
    large = kernels.large.build(arch="sm_90a")
    loaded = fresh()
    loaded.function(large, large.dynamic_shared)
    assert stub.granted == large.dynamic_shared == 65536
    loaded.function(large, 100_000)
    assert stub.granted == 100_000
    loaded.function(large, 50_000)
    assert stub.granted == 100_000
    with pytest.raises(KernelError, match="needs 232449 bytes of shared memory, and may have 232448 here"):
        loaded.function(large, 232449)


def test_refused_text_is_an_error_each_time(cache, fresh):
    broken = type(ADD)(**{**{f: getattr(ADD, f) for f in ADD.__dataclass_fields__}, "text": ADD.text + "BROKEN"})
    loaded = fresh()
    for _ in range(2):
        with pytest.raises(KernelError, match="add cannot be loaded"):
            loaded.function(broken, 0)


def test_wide_clusters_are_asked_for(cache, fresh, driver, monkeypatch):
    asked = []
    call = driver.call
    monkeypatch.setattr(driver, "call", lambda name, *a, **k: (asked.append((name, a[1:])), call(name, *a, **k)))
    fresh().function(kernels.wide.build(arch="sm_90a"), 0)
    assert ("cuFuncSetAttribute", (14, 1)) in asked


def test_closing_unloads(cache, fresh, stub):
    loaded = fresh()
    loaded.function(ADD, 0)
    before = stub.unloaded
    loaded.close()
    loaded.close()
    assert stub.unloaded == before + 1
