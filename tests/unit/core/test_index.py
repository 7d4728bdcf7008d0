"""The index of entry points: what a scan finds, when what it found still holds, and that nothing can break it."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib  # at the top: not while sys.path is another
import warnings
from importlib import metadata
from pathlib import Path
from threading import Thread

import pytest
import trueno
from trueno import cachedir
from trueno.discovery import index
from trueno.discovery.index import BACKENDS, GROUPS, HOOKS, Point
from trueno.errors import TruenoWarning
from trueno.sealed import seal
from trueno.settings import settings

ROOT = Path(__file__).parents[3]
MANIFEST = 'name = "{name}"\napi = [1, 1]\nkind = "cpu"\ntier = {tier}\nfactory = "{package}.backend:Backend"\n'


class Site:
    """A folder like site-packages, in which distributions are put and whose times lie long ago."""

    clock = time.time() - 100_000

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True)

    def install(self, distribution, points, version="1.0", group=BACKENDS, name=None):
        """A distribution with entry points {name: value}; the packages in their values get a manifest."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name or distribution}\nVersion: {version}\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text(
            "\n".join([f"[{group}]", *lines, "[console_scripts]", "acme = acme:main"])
        )
        for name, value in points.items():
            package = self.path / value.partition(":")[0]
            package.mkdir(exist_ok=True)
            (package / "__init__.py").write_text("raise SystemExit('imported')")
            (package / "backend.toml").write_text(MANIFEST.format(name=name, tier=10, package=package.name))
        self.age()
        return info

    def age(self):
        """Give everything a time of its own, long ago; what is changed later has another one."""
        Site.clock += 10
        for folder, _, files in os.walk(self.path, topdown=False):
            for path in (folder, *(os.path.join(folder, file) for file in files)):
                if os.stat(path).st_mtime > time.time() - 10_000:
                    os.utime(path, (Site.clock, Site.clock))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cachedir, "_said", set())
    settings.reload()
    yield tmp_path / "cache" / "index"
    settings.reload()


@pytest.fixture
def sites(tmp_path, cache, monkeypatch):
    """Two sites, the first of them before the second, and nothing else but the standard library on `sys.path`."""
    found = [Site(tmp_path / "a"), Site(tmp_path / "b")]
    library = [e for e in sys.path if e and "-packages" not in e and not e.startswith(str(ROOT))]
    monkeypatch.setattr(sys, "path", [*(str(site.path) for site in found), *library])
    for site in found:
        site.age()
    return found


@pytest.fixture
def site(sites):
    return sites[0]


@pytest.fixture
def scans(monkeypatch):
    """A list with an item for each scan."""
    done = []
    real = index._scan
    monkeypatch.setattr(index, "_scan", lambda entries: done.append(entries) or real(entries))
    return done


def names(found):
    return [(point.name, point.distribution, point.version) for point in found]


def test_a_scan_finds_the_manifest_and_imports_nothing(site):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"}, "2.3")
    (point,) = index.points()
    path = site.path / "index_test_acme" / "backend.toml"
    assert (point.group, point.name, point.value) == (BACKENDS, "acme", "index_test_acme:backend.toml")
    assert (point.distribution, point.version, point.path, point.problem) == ("trueno-acme", "2.3", str(path), "")
    assert point.manifest["tier"] == 10
    found = point.parsed()
    assert (found.name, found.distribution, found.version, found.path) == ("acme", "trueno-acme", "2.3", str(path))
    assert "index_test_acme" not in sys.modules


def test_hooks_have_no_manifest(site):
    site.install("acme-site", {"acme": "index_test_acme.hooks"}, group=HOOKS)
    assert index.points() == index.points() == [Point(HOOKS, "acme", "index_test_acme.hooks", "acme-site", "1.0")]
    with pytest.raises(ValueError, match="the entry point acme has no manifest"):
        index.points()[0].parsed()


def test_the_second_time_it_is_the_index_that_answers(site, scans, cache):
    site.install("trueno-acme", {"b": "index_test_b:backend.toml", "a": "index_test_a:backend.toml"})
    first = index.points()
    assert [point.name for point in first] == ["a", "b"]
    assert index.points() == first == index.points()
    assert len(scans) == 1
    assert len(list(cache.iterdir())) == 1
    assert index.points(refresh=True) == first and len(scans) == 2


def test_nothing_installed_is_kept_too(site, scans):
    assert index.points() == index.points() == []
    assert len(scans) == 1


def test_what_is_installed_and_removed_is_seen(sites, scans):
    first, second = sites
    first.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    assert names(index.points()) == [("acme", "trueno-acme", "1.0")]
    info = second.install("trueno-more", {"more": "index_test_more:backend.toml"})
    assert names(index.points()) == [("acme", "trueno-acme", "1.0"), ("more", "trueno-more", "1.0")]
    shutil.rmtree(info)
    second.age()
    assert names(index.points()) == [("acme", "trueno-acme", "1.0")]
    assert len(scans) == 3


def test_an_upgrade_is_seen(site):
    info = site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    assert names(index.points()) == [("acme", "trueno-acme", "1.0")]
    shutil.rmtree(info)
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"}, "1.1")
    assert names(index.points()) == [("acme", "trueno-acme", "1.1")]


def test_a_changed_manifest_is_read_again_without_a_scan(site, scans):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    path = site.path / "index_test_acme" / "backend.toml"
    assert index.points()[0].manifest["tier"] == 10
    path.write_text(path.read_text().replace("10", "20"))
    assert index.points()[0].manifest["tier"] == 20
    site.age()
    assert index.points()[0].manifest["tier"] == index.points()[0].manifest["tier"] == 20
    path.write_text("tier = ")
    assert "cannot be read: Invalid value" in index.points()[0].problem
    assert index.points()[0].path == str(path)
    path.unlink()
    assert (
        index.points()[0].problem
        == "the package index_test_acme has no file backend.toml; it must be named as package data"
    )
    path.write_text(MANIFEST.format(name="acme", tier=30, package="index_test_acme"))
    assert index.points()[0].manifest["tier"] == 30 and not index.points()[0].problem
    assert len(scans) == 1


def test_a_package_that_comes_later_is_found(site, scans):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    shutil.move(site.path / "index_test_acme", site.path.parent)
    site.age()
    assert index.points()[0].problem == "the package index_test_acme is not found"
    assert index.points()[0].problem == "the package index_test_acme is not found"
    assert len(scans) == 1
    shutil.move(site.path.parent / "index_test_acme", site.path)
    assert index.points()[0].manifest["name"] == "acme"


def test_a_folder_that_just_changed_is_not_trusted_to_show_its_next_change(site, scans, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    os.utime(site.path)
    assert index.points() == index.points()
    assert len(scans) == 2 and not list(cache.iterdir())
    then = time.time() + 1000  # nor one from the future
    os.utime(site.path, (then, then))
    index.points()
    assert len(scans) == 3 and not list(cache.iterdir())
    then = time.time() - 3
    os.utime(site.path, (then, then))
    assert index.points() == index.points()
    assert len(scans) == 4


def test_a_manifest_that_just_changed_is_not_kept(site, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    os.utime(site.path / "index_test_acme" / "backend.toml")
    assert index.points() and not list(cache.iterdir())


def test_another_order_of_the_path_is_another_index(sites, cache, monkeypatch):
    for site in sites:
        site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    assert index.points()[0].path.startswith(str(sites[0].path))
    monkeypatch.setattr(sys, "path", [*sys.path[1::-1], *sys.path[2:]])
    assert index.points()[0].path.startswith(str(sites[1].path))
    assert len(list(cache.iterdir())) == 2


def test_the_version_of_python_and_of_trueno_are_in_the_index(site, scans, monkeypatch):
    index.points()
    monkeypatch.setattr(index, "__version__", "99.0")
    index.points()
    monkeypatch.setattr(sys, "version", "3.99.0")
    index.points()
    assert len(scans) == 3
    monkeypatch.undo()


DAMAGE = {
    "empty": lambda text: "",
    "half": lambda text: text[: len(text) // 2],
    "no json": lambda text: "\0\0\0",
    "no table": lambda text: "[]",
    "a number": lambda text: "3",
    "deep": lambda text: "[" * 100_000,
    "another key": lambda text: text.replace('"head"', '"haed"'),
    "another version": lambda text: text.replace(f'"trueno": "{trueno.__version__}"', '"trueno": "0.0.0"'),
    "no points": lambda text: json.dumps(json.loads(text) | {"points": None}),
    "points of another form": lambda text: json.dumps(json.loads(text) | {"points": [1]}),
    "strange points": lambda text: json.dumps(json.loads(text) | {"points": [[{"group": "g"}, None]]}),
    "a field too many": lambda text: text.replace('"problem"', '"more": "", "problem"'),
    "a field too few": lambda text: text.replace('"problem": ""', '"version": ""'),
    "a field of another type": lambda text: text.replace('"version": "1.0"', '"version": 1.0'),
    "a manifest of another type": lambda text: text.replace('"manifest": {', '"manifest": [], "_": {'),
    "another group": lambda text: text.replace(f'"group": "{BACKENDS}"', '"group": "pytest11"'),
}


def resealed(text):
    """Damaged text with the checksum that belongs to it, so that it is what the text says that is judged."""
    try:
        data = json.loads(text)
        data.pop("checksum")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return text
    return seal(data)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_a_scan(site, scans, cache, damage):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    expected = index.points()
    (file,) = cache.iterdir()
    good = file.read_text()
    file.write_text(resealed(DAMAGE[damage](good)))
    assert file.read_text() != good
    assert index.points() == expected and len(scans) == 2
    assert file.read_text() == good, "it is mended"
    assert index.points() == expected and len(scans) == 2


def test_a_cut_index_is_a_scan_wherever_it_is_cut(site, scans, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    expected = index.points()
    (file,) = cache.iterdir()
    good = file.read_bytes()
    for end in range(0, len(good), 37):
        file.write_bytes(good[:end])
        assert index.points() == expected
    file.write_bytes(b"\xff" + good)
    assert index.points() == expected


def test_a_changed_letter_in_an_index_is_a_scan(site, scans, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    expected = index.points()
    (file,) = cache.iterdir()
    good = file.read_text()
    file.write_text(good.replace("index_test_acme.backend:Backend", "index_test_acme.backend:Backemd"))
    assert index.points() == expected and len(scans) == 2 and file.read_text() == good


@pytest.mark.parametrize("value", ["a" + ".a" * 4000 + " = 1\n", "a = " + "[" * 3000 + "]" * 3000 + "\n"])
def test_a_manifest_nested_without_end_is_a_problem(site, scans, value):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    (site.path / "index_test_acme" / "backend.toml").write_text(value)
    site.age()
    for _ in range(2):
        (point,) = index.points()
        assert "nested" in point.problem and point.manifest is None
        with pytest.raises(ValueError, match="nested"):
            point.parsed()


def test_a_manifest_that_is_too_large_is_looked_at_once(site, scans, monkeypatch):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    text = "a." * 31_000 + "a = 1\n"  # whose parsing took many seconds, in each process
    (site.path / "index_test_acme" / "backend.toml").write_text(text)
    site.age()
    loaded, real = [], index.load
    monkeypatch.setattr(index, "load", lambda path: loaded.append(path) or real(path))
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("it was parsed"))
    monkeypatch.setattr(tomllib, "load", lambda _: pytest.fail("it was parsed"))
    for _ in range(2):
        (point,) = index.points()
        assert point.manifest is None and point.path.endswith("backend.toml")
        assert point.problem.endswith(
            f"backend.toml cannot be read: it has {len(text)} bytes; a manifest has at most 8192"
        )
    assert len(loaded) == len(scans) == 1


def test_a_cache_of_imports_that_another_thread_cleared_is_no_error(site, scans, monkeypatch):
    import importlib

    def clash():
        raise KeyError("/gone")

    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    monkeypatch.setattr(importlib, "invalidate_caches", clash)
    assert names(index.points(refresh=True)) == [("acme", "trueno-acme", "1.0")]


def test_scans_of_many_threads(site, monkeypatch):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    expected, wrong, within = index.points(), [], []
    collect = index._collect

    def watched(entries):
        within.append(1)
        wrong.extend(["two scans at once"] * (len(within) > 1))
        try:
            return collect(entries)
        finally:
            within.pop()

    def scan():
        for _ in range(5):
            try:
                if index.points(refresh=True) != expected:
                    wrong.append("another answer")
            except Exception as error:
                wrong.append(repr(error))

    monkeypatch.setattr(index, "_collect", watched)
    threads = [Thread(target=scan) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes are POSIX's")
def test_an_index_that_others_can_write_is_not_read(site, scans, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    expected = index.points()
    (file,) = cache.iterdir()
    file.write_text(resealed(file.read_text().replace("index_test_acme.backend:Backend", "os:abort")))
    assert index.points()[0].manifest["factory"] == "os:abort"  # this is why
    cache.chmod(0o777)
    with pytest.warns(TruenoWarning, match="can be written by other users") as caught:
        assert index.points() == expected
    assert len(caught) == 1
    assert index.points() == expected
    assert len(scans) == 3


def test_a_full_disk_is_one_warning(site, scans, cache, monkeypatch):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cachedir.os, "replace", full)
    with pytest.warns(TruenoWarning, match="No space left on device") as caught:
        assert names(index.points()) == [("acme", "trueno-acme", "1.0")]
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names(index.points()) == [("acme", "trueno-acme", "1.0")]
    assert not list(cache.iterdir())


def test_two_distributions_that_claim_one_name_are_both_there(site):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    site.install("acme-trueno", {"acme": "index_test_rival:backend.toml"}, "3.0")
    expected = [("acme", "trueno-acme", "1.0"), ("acme", "acme-trueno", "3.0")]
    assert sorted(names(index.points())) == sorted(names(index.points())) == sorted(expected)


def test_one_file_claimed_by_two_distributions(site):
    for name in ("trueno-acme", "trueno-acme-fork"):
        site.install(name, {"acme": "index_test_acme:backend.toml"})
    assert [point.distribution for point in index.points()] == ["trueno-acme", "trueno-acme-fork"]


def test_what_one_distribution_says_twice_is_one(site):
    info = site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    text = (info / "entry_points.txt").read_text().splitlines()
    (info / "entry_points.txt").write_text("\n".join([*text[:2], *text[1:]]))
    site.install("Trueno_Acme", {"acme": "index_test_acme:backend.toml"}, "0.9", name="trueno-acme")
    assert names(index.points()) == [("acme", "trueno-acme", "1.0")]


@pytest.mark.parametrize("versions", [("1.9", "1.10"), ("1.10", "1.9")])
def test_what_an_interrupted_upgrade_left_behind_does_not_count(site, versions):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml", "gone": "index_test_gone:backend.toml"}, "1.9")
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"}, "1.10")
    assert names(index.points()) == [("acme", "trueno-acme", "1.10")]


def test_the_distribution_that_comes_first_on_the_path_counts(sites):
    first, second = sites
    first.install("trueno-acme", {"acme": "index_test_acme:backend.toml"}, "1.0")
    second.install("Trueno.acme", {"acme": "index_test_acme:backend.toml", "old": "index_test_old:backend.toml"}, "2.0")
    assert names(index.points()) == [("acme", "trueno-acme", "1.0")]


def test_one_that_no_longer_brings_a_backend_hides_the_older_one(sites):
    first, second = sites
    first.install("trueno-acme", {}, "2.0", group="console_scripts")
    second.install("trueno-acme", {"acme": "index_test_acme:backend.toml"}, "1.0")
    assert index.points() == []


def test_broken_distributions_do_not_hide_the_others(site):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    (site.path / "empty-1.0.dist-info").mkdir()
    odd = site.install("odd", {"odd": "index_test_odd:backend.toml"})
    (odd / "entry_points.txt").write_text(f"[{BACKENDS}]\nthis is not an entry point\n")
    nameless = site.install("nameless", {"nameless": "index_test_nameless:backend.toml"})
    (nameless / "METADATA").unlink()
    binary = site.install("binary", {"binary": "index_test_binary:backend.toml"})
    (binary / "entry_points.txt").write_bytes(b"\xff[trueno.backends]\n")
    site.age()
    found = {point.name: point for point in index.points()}
    assert found["acme"].manifest and found["nameless"].manifest
    assert "its entry_points.txt cannot be read: " in found["odd"].problem
    assert set(found) == {"acme", "nameless", "odd"}
    assert {point.name: point for point in index.points()} == found


@pytest.mark.parametrize(
    "text, said",
    [
        ("when = 2020-01-01", "it holds a date or a time, which no key takes"),
        ("name = ", "backend.toml cannot be read: Invalid value"),
        ("x = 0x" + "f" * 5000, "Exceeds the limit"),  # more digits than Python writes
        ("x = [nan, inf]", None),
    ],
)
def test_strange_manifests(site, scans, text, said):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    (site.path / "index_test_acme" / "backend.toml").write_text(text)
    site.age()
    first = index.points()
    assert repr(index.points()) == repr(first)
    assert (said or "") in first[0].problem
    with pytest.raises(ValueError, match=said or r"index_test_acme/backend\.toml: unknown key 'x'"):
        first[0].parsed()
    assert len(scans) == 1


def test_a_value_that_names_no_file(site):
    site.install("trueno-acme", {"acme": "index_test_acme"})
    assert "it must be like 'my_package:backend.toml'" in index.points()[0].problem


def test_odd_entries_of_the_path(site, scans, monkeypatch, tmp_path):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    odd = ["__editable__.x.finder.__path_hook__", "a\0b", "/no/such\udcff", 3, None, str(site.path)]
    monkeypatch.setattr(sys, "path", [*sys.path, *odd])
    assert names(index.points()) == names(index.points()) == [("acme", "trueno-acme", "1.0")]
    assert len(scans) == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert index.points() and len(scans) == 1, "a hook's name is not a folder of the working directory"


def test_the_working_directory_is_an_entry(site, monkeypatch):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    monkeypatch.setattr(sys, "path", ["", *sys.path[1:]])
    monkeypatch.chdir(site.path.parent)
    assert index.points() == []
    monkeypatch.chdir(site.path)
    assert names(index.points()) == [("acme", "trueno-acme", "1.0")]
    assert index.points()[0].path == str(site.path / "index_test_acme" / "backend.toml")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a folder that is in use")
def test_a_working_directory_that_is_gone(site, monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "gone").rmdir()
    assert index.points() == []


def test_only_so_many_indexes_are_kept(site, cache, monkeypatch):
    monkeypatch.setattr(index, "KEPT", 5)
    for i in range(9):
        monkeypatch.setattr(sys, "path", [*sys.path, f"/no/such/{i}"])
        index.points()
        newest = max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert len(list(cache.iterdir())) == 5 and newest.exists()


def run(code, *arguments, **environment):
    given = os.environ | {"TRUENO_CACHE_DIR": os.environ["TRUENO_CACHE_DIR"]} | environment
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=True, timeout=120).stdout.split()


HIT = """
import sys
sys.path[:] = [*sys.argv[1:], *(entry for entry in sys.path if entry)]
import trueno
assert "trueno.discovery.index" not in sys.modules, "importing trueno scans"
before = set(sys.modules)
from trueno.discovery import index
found = [point for point in index.points() if point.distribution == "trueno-acme"]
assert found[0].parsed().name == "acme" and not found[0].parsed().unmet()
print(len(found), *sorted({"importlib.metadata", "tomllib", "email", "zipfile"} & (set(sys.modules) - before)))
"""


def test_another_process_hits_the_index_and_imports_no_metadata(site, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    assert {"1", "importlib.metadata", "tomllib"} <= set(run(HIT, str(site.path)))
    if not list(cache.iterdir()):
        pytest.skip("an entry of sys.path changes just now, so that nothing may be kept")
    assert run(HIT, str(site.path)) == ["1"]
    site.install("trueno-more", {"more": "index_test_more:backend.toml"})
    assert "importlib.metadata" in run(HIT, str(site.path))


MANY = """
import sys
sys.path[:] = [*sys.argv[1:], *(entry for entry in sys.path if entry)]
from trueno.discovery import index
for i in range(20):
    found = [point for point in index.points(refresh=i % 2 == 0) if point.distribution == "trueno-acme"]
    assert len(found) == 1 and found[0].parsed().name == "acme"
"""


def test_processes_that_scan_at_once(site, cache):
    site.install("trueno-acme", {"acme": "index_test_acme:backend.toml"})
    command = [sys.executable, "-W", "error", "-c", MANY, str(site.path)]
    running = [subprocess.Popen(command, env=os.environ) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]


def test_a_scan_agrees_with_the_standard_library():
    expected = {(p.group, p.name, p.value) for group in GROUPS for p in metadata.entry_points(group=group)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruenoWarning)
        assert {(p.group, p.name, p.value) for p in index.points(refresh=True)} == expected
