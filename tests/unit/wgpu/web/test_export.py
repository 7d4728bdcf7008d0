"""The files that `trueno.web.export` writes, and what it refuses; `test_page` runs them."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from trueno.errors import BatchError, DeviceError, FileError, ParameterError

pytestmark = pytest.mark.usefixtures("chosen")


@pytest.fixture
def recorded(rng):
    """A batch, its upload x, a constant, and its result."""
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 20), (20, 5)))
    with trueno.Batch("wgpu") as batch:
        given, constant = batch.upload(x), batch.upload(w)
        yield batch, given, constant, batch.tanh(batch.matmul(given, constant)), w


def plan_of(folder: Path) -> dict:
    return json.loads((folder / "plan.json").read_text("utf-8"))


def test_the_files_hold_all_that_runs(recorded, tmp_path):
    batch, x, _, y, w = recorded
    folder = trueno.web.export(batch, tmp_path / "new" / "m", inputs={"x": x}, outputs={"y": y})
    plan = plan_of(folder)
    assert plan["inputs"]["x"] | {"buffer": 0} == {"buffer": 0, "dtype": "float32", "shape": [3, 20]}
    assert plan["outputs"]["y"]["shape"] == [3, 5]
    texts = [(folder / "kernels" / f"{kernel['name']}.wgsl").read_text("utf-8") for kernel in plan["kernels"]]
    for kernel, text in zip(plan["kernels"], texts, strict=True):
        bindings = re.findall(r"var<storage, (read|read_write)>", text)
        assert [way == "read_write" for way in bindings] == kernel["writes"]
    pieces = [piece for one in plan["buffers"] for piece in one.get("data", ())]
    assert b"".join((folder / "data" / f"{one['file']}.bin").read_bytes() for one in pieces) == w.tobytes()
    assert sum("run" in step for step in plan["steps"]) == len(plan["steps"]) >= 1
    for step in plan["steps"]:
        for number, offset, size in step["bind"]:
            assert 0 <= offset < offset + size <= plan["buffers"][number]["bytes"]
    assert {p.name for p in folder.iterdir()} == {"data", "kernels", "plan.json", "module.js", "module.d.ts"}
    assert [p.name for p in folder.parent.iterdir()] == ["m"], "nothing else is left beside it"


def test_large_data_come_in_pieces(tmp_path, rng, monkeypatch):
    from trueno_wgpu.web import folder as files

    monkeypatch.setattr(files, "PIECE", 256)
    w = rng.standard_normal((20, 11)).astype(np.float32)
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.zeros((2, 20), np.float32))
        y = batch.matmul(x, batch.upload(w))
        folder = trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": y})
    (pieces,) = [one["data"] for one in plan_of(folder)["buffers"] if "data" in one]
    assert [one["bytes"] for one in pieces] == [256, 256, 256, 112]
    assert b"".join((folder / "data" / f"{one['file']}.bin").read_bytes() for one in pieces) == w.tobytes()


def test_zeros_are_no_data(tmp_path):
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(np.ones(8, np.float32))
        y = batch.add(x, batch.upload(np.zeros(8, np.float32)))
        folder = trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": y})
    assert not any("data" in one for one in plan_of(folder)["buffers"])


def test_a_batch_is_as_it_was(tmp_path):
    """A sum that a step adds to is fed back; exporting adds nothing to it."""
    with trueno.Batch("wgpu") as batch:
        total = batch.upload(np.full(4, 2.0, np.float32))
        more = batch.add(total, batch.upload(np.ones(4, np.float32)))
        batch.feed(total, more)
        folder = trueno.web.export(batch, tmp_path / "m", inputs={}, outputs={"total": more})
        batch.execute()
        assert batch.read(more).tolist() == [3.0] * 4
    plan = plan_of(folder)
    assert ["copy" in step for step in plan["steps"]].count(True) == 1
    starts = [(folder / "data" / f"{p['file']}.bin").read_bytes() for b in plan["buffers"] for p in b.get("data", ())]
    assert np.full(4, 2.0, np.float32).tobytes() in starts


@pytest.mark.parametrize(
    ("inputs", "outputs", "problem"),
    [({"x y": "x"}, {"y": "y"}, "the name 'x y'; use letters"), ({}, {}, "outputs is {}"),
     ([], {"y": "y"}, r"inputs is \[\]"), ({"y": "y"}, {"y": "y"}, "the input y is the result of an op"),
     ({3: "x"}, {"y": "y"}, "the name 3")],
)  # fmt: skip
def test_wrong_names(recorded, tmp_path, inputs, outputs, problem):
    batch, x, _, y, _ = recorded
    handles = {"x": x, "y": y}
    named = [{n: handles[h] for n, h in one.items()} if isinstance(one, dict) else one for one in (inputs, outputs)]
    with pytest.raises(ParameterError, match=problem):
        trueno.web.export(batch, tmp_path / "m", inputs=named[0], outputs=named[1])
    assert not any(tmp_path.iterdir())


def test_handles_of_another_batch_and_arrays(recorded, tmp_path):
    batch, x, _, _, _ = recorded
    with trueno.Batch("wgpu") as other, pytest.raises(BatchError, match="another batch"):
        trueno.web.export(batch, tmp_path / "m", inputs={}, outputs={"y": other.upload(np.ones(3, np.float32))})
    with pytest.raises(trueno.DtypeError, match="y is an array of shape"):
        trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": np.ones(3)})
    with pytest.raises(ParameterError, match="batch is int"):
        trueno.web.export(3, tmp_path / "m", inputs={}, outputs={})
    assert not any(tmp_path.iterdir())


def test_other_backends(tmp_path):
    with trueno.Batch("reference") as batch:
        x = batch.upload(np.ones(3, np.float32))
        y = batch.exp(x)
        with pytest.raises(DeviceError, match=r'trueno\.Batch\("wgpu"\)'):
            trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": y})


def test_folders(recorded, tmp_path, monkeypatch):
    batch, x, _, y, _ = recorded
    ports = {"inputs": {"x": x}, "outputs": {"y": y}}
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for name, problem in (("file", "is a file"), ("full", "is not empty, and no export wrote it")):
        with pytest.raises(FileError, match=problem):
            trueno.web.export(batch, tmp_path / name, **ports, force=True)
    (tmp_path / "empty").mkdir()
    folder = trueno.web.export(batch, tmp_path / "empty", **ports)
    with pytest.raises(FileError, match="force=True"):
        trueno.web.export(batch, folder, **ports)
    (folder / "plan.json").write_text("{}")
    trueno.web.export(batch, folder, **ports, force=True)
    assert plan_of(folder)["format"] == "trueno-web"

    from trueno_wgpu.web import folder as files

    before = sorted(p.name for p in tmp_path.iterdir()), (folder / "plan.json").read_bytes()
    monkeypatch.setattr(files.json, "dumps", lambda *_, **__: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(FileError, match="cannot be written"):
        trueno.web.export(batch, folder, **ports, force=True)
    assert before == (sorted(p.name for p in tmp_path.iterdir()), (folder / "plan.json").read_bytes())


@pytest.mark.parametrize(
    ("name", "kind", "problem"),
    [
        ("file/m", FileError, "is in .*file, which is a file; give a folder"),
        ("file/deep/m", FileError, "is in .*file, which is a file; give a folder"),
        ("n" * 300, FileError, "too long.*; give another folder"),
        (f"new/{'n' * 300}/m", FileError, "too long.*; give another folder"),
        ("circle", FileError, "cannot be written .*; give another folder"),
        ("to-file", FileError, "file is a file; give a folder"),
        ("\ud800", FileError, "cannot be written .*; give another folder"),
        ("a\0b", ParameterError, "NUL; give another name"),
        (3, ParameterError, "folder is 3; give a str or a pathlib.Path"),
        (None, ParameterError, "folder is None; give a str"),
        (b"m", ParameterError, "folder is b'm'; give a str"),
    ],
)
def test_a_folder_that_cannot_be_is_refused_before_the_batch_runs(recorded, tmp_path, monkeypatch, name, kind, problem):
    batch, x, _, y, _ = recorded
    (tmp_path / "file").write_text("mine")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "to-file").symlink_to("file")
    monkeypatch.setattr(trueno.Batch, "execute", lambda self: pytest.fail("the batch ran"))
    folder = f"{tmp_path}/{name}" if isinstance(name, str) else name
    with pytest.raises(kind, match=f"web.export: .*{problem}"):
        trueno.web.export(batch, folder, inputs={"x": x}, outputs={"y": y})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["circle", "file", "to-file"]


def test_a_folder_without_permission_is_refused_before_the_batch_runs(recorded, tmp_path, monkeypatch):
    batch, x, _, y, _ = recorded
    monkeypatch.setattr(trueno.Batch, "execute", lambda self: pytest.fail("the batch ran"))
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path)  # root may write everywhere
    with pytest.raises(FileError, match=r"does not let you write .*m; give another folder"):
        trueno.web.export(batch, tmp_path / "m", inputs={"x": x}, outputs={"y": y})


def test_links_to_folders(recorded, tmp_path):
    """An export takes the place of what a link leads to, and the link stays."""
    batch, x, _, y, _ = recorded
    ports = {"inputs": {"x": x}, "outputs": {"y": y}}
    (tmp_path / "there").mkdir()
    for name, target in (("link", "there"), ("dangling", "new")):
        link = tmp_path / name
        link.symlink_to(target)
        for force in (False, True):
            assert trueno.web.export(batch, link, **ports, force=force) == (tmp_path / target).resolve()
            assert link.is_symlink() and plan_of(link)["format"] == "trueno-web"
        with pytest.raises(FileError, match="force=True"):
            trueno.web.export(batch, link, **ports)


def test_a_name_as_long_as_names_can_be(recorded, tmp_path):
    batch, x, _, y, _ = recorded
    name = "n" * 250
    assert plan_of(trueno.web.export(batch, tmp_path / name, inputs={"x": x}, outputs={"y": y}))
    assert [p.name for p in tmp_path.iterdir()] == [name]
