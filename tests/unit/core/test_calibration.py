"""The store of measured speeds: kept, merged, distrusted, and done without."""

import json
import math
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from trueno import cachedir
from trueno.calibrate import measure, store
from trueno.calibrate.honesty import misdeclared
from trueno.discovery import registry
from trueno.discovery.protocol import Call, Rates
from trueno.errors import ParameterError, TruenoWarning
from trueno.ops import TABLE
from trueno.select import calibration, cost
from trueno.select.calibration import Row
from trueno.settings import settings

F4 = np.dtype(np.float32)
ADD = Call(TABLE["add"], F4, "ee", 1, (20,))


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("TRUENO_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cachedir, "_said", set())
    monkeypatch.setattr(calibration, "_warned", set())
    settings.reload()
    calibration.forget()
    yield
    monkeypatch.undo()
    settings.reload()
    calibration.forget()


def row(backend="scalar", kind="elementwise plain", dtype="float32", band="large", launch=1e-6, speed=1e9,
        measured="2026-01-01T00:00:00Z", **link):  # fmt: skip
    return Row(backend, kind, dtype, band, Rates(launch, speed, 4 * speed, **link), 10, 0.01, measured)


def again():
    """What another process would read."""
    calibration.forget()
    return calibration.load()


def test_rows_come_back_as_they_were():
    rows = [row(), row("simd"), row(band="small"), row(dtype="float64", link_s=1e-5, link_bytes=1e9)]
    assert store.save(rows)
    assert again() == {r.key: r for r in rows}
    assert again()[rows[0].key].rates.link_bytes == math.inf


def test_the_file_is_lines_of_json_under_a_header():
    store.save([row()])
    path = calibration.file()
    assert path.name == f"{calibration.fingerprint()}.jsonl"
    assert path.parent.name == "calibration"
    header, line = map(json.loads, path.read_text("utf-8").splitlines())
    assert header == calibration.facts()
    assert header["versions"]["numpy"] == np.__version__
    assert header["cores"] >= 1
    assert line["class"] == "elementwise plain" and line["measured"] == "2026-01-01T00:00:00Z"


def test_rates_are_found_by_class_dtype_and_band():
    store.save([row(speed=1.0), row(band="small", speed=2.0), row(kind="matmul", speed=3.0)])
    assert calibration.rates("scalar", ADD).flops == 1.0
    assert calibration.rates("scalar", replace(ADD, op=TABLE["mul"])).flops == 1.0
    assert calibration.rates("scalar", replace(ADD, sizes=(5,))).flops == 2.0
    assert calibration.rates("simd", ADD) is None
    assert calibration.rates("scalar", replace(ADD, dtype=np.dtype(np.float64))) is None
    assert calibration.rates("scalar", replace(ADD, op=TABLE["exp"], layout="e")) is None


def test_a_band_that_was_not_measured_is_answered_by_the_next_smaller():
    calibration.hold([row(band="large", speed=1.0), row(band="medium", speed=2.0)])
    assert calibration.rates("scalar", replace(ADD, sizes=(30,))).flops == 1.0
    assert calibration.rates("scalar", replace(ADD, sizes=(15,))).flops == 2.0
    assert calibration.rates("scalar", replace(ADD, sizes=(5,))) is None


def test_nothing_is_measured_at_first():
    assert calibration.load() == {}
    assert calibration.rates("scalar", ADD) is None
    assert store.describe().startswith("none:")
    assert misdeclared("scalar") == []


def test_merging_keeps_what_others_stored():
    store.save([row(), row("simd")])
    calibration.forget()
    store.save([row("reference"), row("simd", speed=9e9)])
    stored = again()
    assert {k[0] for k in stored} == {"scalar", "simd", "reference"}
    assert stored[row("simd").key].rates.flops == 9e9


def test_a_small_change_changes_nothing():
    old = row()
    store.save([old])
    store.save([row(speed=1.05e9, launch=1.05e-6, measured="2027-01-01")])
    assert again()[old.key] == old
    store.save([row(speed=1.05e9, launch=2e-6, measured="2027-01-01")])
    assert again()[old.key] == old  # at these sizes launching is nothing
    new = row(speed=1.3e9, measured="2027-01-01")
    store.save([new])
    assert again()[old.key] == new


def test_launching_counts_in_the_small_band():
    old, new = row(band="small"), row(band="small", launch=2e-6, measured="2027-01-01")
    assert store.settled(old, new) == new


def test_a_changed_link_is_a_change():
    old, new = row(link_s=1e-5, link_bytes=1e9), row(link_s=1e-5, link_bytes=2e9)
    assert store.settled(old, new) == new
    assert store.settled(old, row(link_s=1.01e-5, link_bytes=1.01e9)) == old
    assert store.settled(row(), new) == new


def test_off_ignores_what_is_kept(monkeypatch):
    store.save([row()])
    monkeypatch.setenv("TRUENO_CALIBRATION", "off")
    settings.reload()
    assert calibration.rates("scalar", ADD) is None
    assert misdeclared("scalar") == []
    assert "off" in store.describe() and "environment" in store.describe()
    monkeypatch.setenv("TRUENO_CALIBRATION", "on")
    settings.reload()
    assert calibration.rates("scalar", ADD) is not None


def test_another_setting_is_another_file(monkeypatch):
    store.save([row()])
    before = calibration.fingerprint()
    monkeypatch.setenv("TRUENO_THREADS", "1")
    settings.reload()
    assert calibration.fingerprint() != before
    assert calibration.rates("scalar", ADD) is None  # without `forget`: the setting alone says it


BAD = [
    "{",
    "[]",
    "null",
    "{}",
    *(json.dumps(json.loads(row(band="small").line()) | change) for change in (
        {"flops": 0}, {"flops": "fast"}, {"flops": None}, {"bytes": -1}, {"launch_s": True}, {"band": "middling"},
        {"flops": 10**400}, {"link_s": 10**400}, {"dtype": "float33"}, {"dtype": "\ud800"}, {"class": "a\nb"},
        {"class": "\udcff"}, {"backend": ""}, {"measured": "\x1b[2J"}, {"backend": 3},
        {"samples": "many"}, {"spread": None}, {"link_bytes": 0}, {"measured": None},
    )),
    "[" * 100_000,
    '{"backend": ' + "[" * 100_000,
    row(band="small").line().replace("1000000000.0", "NaN"),
    row(band="small").line().replace("1000000000.0", "Infinity"),
]  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_dropped_with_one_warning(line):
    store.save([row()])
    path = calibration.file()
    path.write_text(path.read_text("utf-8") + f"{line}\n{line}\n", "utf-8")
    with pytest.warns(TruenoWarning, match="line 3, is dropped") as caught:
        assert list(again()) == [row().key]
    assert len(caught) == 1


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_dropped_where_warnings_are_errors(line):
    store.save([row()])
    path = calibration.file()
    path.write_text(f"{path.read_text('utf-8').splitlines()[0]}\n{line}\n{row().line()}\n", "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(again()) == [row().key]
        assert calibration.rates("scalar", ADD) == row().rates


@pytest.mark.parametrize("damage", [
    lambda text: "[" * 100_000,
    lambda text: "",
    lambda text: "garbage\n" + text.partition("\n")[2],
    lambda text: text.replace('"cores": ', '"cores": 9'),
    lambda text: text.partition("\n")[2],
    lambda text: "[1]\n" + text.partition("\n")[2],
])  # fmt: skip
def test_a_bad_header_ignores_the_file(damage):
    store.save([row()])
    path = calibration.file()
    path.write_text(damage(path.read_text("utf-8")), "utf-8")
    with pytest.warns(TruenoWarning, match="is ignored") as caught:
        assert again() == {}
    assert len(caught) == 1
    assert store.save([row("simd")])  # and is written again
    assert {k[0] for k in again()} == {"simd"}


def test_no_text_at_all_is_no_calibration():
    store.save([row()])
    calibration.file().write_bytes(b"\xff\xfe\x00")
    assert again() == {}


def test_a_folder_of_others_is_done_without(tmp_path, monkeypatch):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("TRUENO_CACHE_DIR", str(open_to_all))
    settings.reload()
    if cachedir.inspect("calibration")[1] == "":
        pytest.skip("this platform has no modes")
    with pytest.warns(TruenoWarning) as caught:  # noqa: PT031 - one warning of both
        assert not store.save([row()])
        assert calibration.rates("scalar", ADD) is not None  # in this process
    assert len(caught) == 1
    assert not list(open_to_all.rglob("*.jsonl"))


def test_a_disk_that_takes_nothing_is_done_without(monkeypatch):
    monkeypatch.setattr(cachedir, "write", lambda path, text: False)
    assert not store.save([row()])
    assert calibration.rates("scalar", ADD) is not None
    assert again() == {}


def test_a_file_that_is_cut_off_keeps_its_whole_lines():
    store.save([row(), row("simd")])
    path = calibration.file()
    path.write_text(path.read_text("utf-8")[:-40], "utf-8")
    with pytest.warns(TruenoWarning, match="is dropped"):
        assert len(again()) == 1


def test_merge_takes_a_file_of_this_machine(tmp_path):
    store.save([row(measured="2026-03-01"), row("simd", measured="2026-03-01")])
    other = tmp_path / "other.jsonl"
    newer, older = row(speed=1.01e9, measured="2026-04-01"), row("simd", speed=5e9, measured="2026-02-01")
    lines = [json.dumps(calibration.facts()), newer.line(), older.line(), row("reference").line()]
    other.write_text("\n".join(lines) + "\n", "utf-8")
    assert store.merge(other) == 3
    stored = again()
    assert stored[newer.key] == newer  # the newest wins, however near
    assert stored[older.key].measured == "2026-03-01"
    assert row("reference").key in stored


def test_merge_refuses_what_is_not_of_this_machine(tmp_path):
    other = tmp_path / "other.jsonl"
    with pytest.raises(ParameterError, match="cannot be read"):
        store.merge(other)
    other.write_text(json.dumps(calibration.facts() | {"cores": 4096}) + "\n" + row().line() + "\n", "utf-8")
    with pytest.raises(ParameterError, match="cores is 4096"):
        store.merge(other)
    other.write_text("nonsense", "utf-8")
    with pytest.raises(ParameterError, match="was not measured on this machine"):
        store.merge(other)
    assert again() == {}


def test_processes_that_save_at_once_lose_nothing():
    code = """
import sys
from trueno.discovery.protocol import Rates
from trueno.calibrate.store import save
from trueno.select import cost
from trueno.select.calibration import Row
save([Row(sys.argv[1], "matmul", "float32", band, Rates(0, 1, 1), 1, 0.0, "x") for band in cost.BANDS])
"""
    children = [subprocess.Popen([sys.executable, "-c", code, f"b{i}"]) for i in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert len(again()) == 4 * len(cost.BANDS)


def test_describe_says_what_is_in_force():
    store.save([row(), row("simd", measured="2026-02-01T00:00:00Z")])
    description = store.describe()
    assert description.startswith("2 speeds of scalar, simd, measured 2026-01-01 to 2026-02-01, in ")


def test_held_rows_are_this_process_alone():
    calibration.hold([row()])
    assert calibration.rates("scalar", ADD) is not None
    assert again() == {}


def test_a_backend_that_lies_is_reported():
    """Measured as it declares, then ten times slower and ten times faster."""
    scalar = registry.load("scalar")
    op = measure.typical("scalar")["elementwise plain"]
    *_, call = measure.calls(op, F4, "large")
    true = scalar.rates(call)
    honest = Row("scalar", "elementwise plain", "float32", "large", true, 1, 0.0, "2026-01-01")

    def scaled(by):
        return replace(true, launch_s=true.launch_s * by, flops=true.flops / by, bytes=true.bytes / by)

    calibration.hold([honest])
    assert misdeclared("scalar") == []
    calibration.hold([replace(honest, rates=scaled(10))])
    (finding,) = misdeclared("scalar")
    assert finding.startswith("scalar: elementwise plain, float32: declares itself 10.0× faster than measured")
    calibration.hold([replace(honest, rates=scaled(0.1))])
    assert "10.0× slower than measured" in misdeclared("scalar")[0]


def test_reading_warns_of_nothing_when_all_is_well():
    store.save([row()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again()
        assert calibration.rates("scalar", ADD)
