"""The folder of a batch, for web pages."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trueno.batch.handle import Handle
from trueno.batch.record import Batch
from trueno.dispatch import transfer
from trueno.errors import DeviceError, FileError, ParameterError
from trueno.web.wasm import module

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
PLAN = "plan.json"


def export(batch: Batch, folder: str | Path, *, inputs: Mapping[str, Handle], outputs: Mapping[str, Handle],
           wasm: bool = False, force: bool = False) -> Path:  # fmt: skip
    """Write a batch as a folder that a web page loads and runs by WebGPU, or without a GPU.

        import { load } from "./folder/module.js";
        const module = await load("./folder/");
        const { y } = await module.run({ x: new Float32Array(1024) });

    batch: recorded on "wgpu".  inputs: uploads that the page sets, by the names that it uses; all other uploads keep
    what they hold now.  outputs: handles that the page reads.  wasm: also compile simd's kernels as WebAssembly, for
    browsers without WebGPU; this takes seconds.  force: replace a folder that an earlier export wrote.
    The batch is executed once, and its uploads are as they were after that.  The result is the folder's path; of a link
    to a folder, that folder's.  ParameterError, DeviceError for a batch on another backend, FileError for a folder that
    is not empty or cannot be written, KernelError for an op that the device cannot record, or that has no kernel of
    WebAssembly.  Nothing is left in the folder if an error is raised.
    """
    backend: Any = batch._uploads.backend() if isinstance(batch, Batch) else None
    if not isinstance(batch, Batch):
        raise ParameterError(f"web.export: batch is {type(batch).__name__}; give a trueno.Batch")
    if not hasattr(backend, "scripting"):
        where = getattr(backend, "name", "the host")
        raise DeviceError(f'web.export: the batch runs on {where}, and pages need WGSL; write trueno.Batch("wgpu")')
    given, taken = (_values(batch, what, handles) for what, handles in (("inputs", inputs), ("outputs", outputs)))
    for name, v in given.items():
        if batch._graph.values[v].maker >= 0:
            raise ParameterError(f"web.export: the input {name} is the result of an op; name an upload")
    target = _target(folder, force)
    for name in taken:
        batch.keep(outputs[name])
    changed = _changed(batch)
    before = {v: transfer.numpy(batch._uploads.arrays[v]).copy() for v in changed}
    batch.execute()
    for v, x in before.items():
        transfer.write(backend, x, batch._uploads.arrays[v], "web.export")
    batch._done = False  # what it computed belongs to contents that are gone
    replay = batch._replay
    assert replay is not None
    with backend.scripting() as script:
        replay.repeat()
    beyond = module(batch, given, taken) if wasm else None
    arrays = [{name: replay.array(v) for name, v in values.items()} for values in (given, taken)]
    beside: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".web-", dir=target.parent))  # a longer name might be too long
        backend.write_page(script, beside, *arrays, list(batch._uploads.arrays.values()), beyond)
        beside.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        beside.rename(target)
    except BaseException as error:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise FileError(f"web.export: {target} cannot be written ({error})") from error
        raise
    return target


def _values(batch: Batch, what: str, handles: Any) -> dict[str, int]:
    """The values of named handles; ParameterError for names that JavaScript cannot write, and for no outputs."""
    if not isinstance(handles, Mapping) or (what == "outputs" and not handles):
        raise ParameterError(f'web.export: {what} is {handles!r}; give a dictionary, as {{"x": handle}}')
    values: dict[str, int] = {}
    for name, handle in handles.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ParameterError(f"web.export: {what} has the name {name!r}; use letters, digits and _")
        v = batch._value("web.export", name, handle)
        if not all(batch._graph.values[v].shape):
            raise ParameterError(f"web.export: {name} is empty: {batch._graph.values[v].shape}")
        values[name] = v
    return values


def _changed(batch: Batch) -> list[int]:
    """The uploads that an execution changes: those that results are fed to, and those that ops update in place."""
    graph = batch._graph
    updated = {value.upload for value in graph.values if value.upload >= 0}
    return sorted(set(batch._feeds) | updated)


def _target(folder: Any, force: bool) -> Path:
    """The folder to write, checked before the batch runs: ParameterError for what names no folder, FileError for one
    that cannot be made, or that holds something that is not ours to replace."""
    text = os.fspath(folder) if isinstance(folder, os.PathLike) else folder
    if not isinstance(text, str):
        raise ParameterError(f"web.export: folder is {folder!r}; give a str or a pathlib.Path")
    if "\0" in text:
        raise ParameterError(f"web.export: folder is {text!r}, and no file's name has a NUL; give another name")
    try:
        target = Path(text).absolute()
        if target.is_symlink():
            target = target.resolve()  # what it leads to is replaced, and the link stays
        if target == _nearest(target):
            held = any(target.iterdir())
            if held and not (target / PLAN).is_file():
                raise FileError(f"web.export: {target} is not empty, and no export wrote it; give another folder")
            if held and not force:
                raise FileError(f"web.export: {target} has an export; pass force=True (--force) to replace it")
    except (OSError, RuntimeError, UnicodeError) as error:  # RuntimeError: links that lead to each other
        problem = getattr(error, "strerror", None) or error
        raise FileError(f"web.export: {text!r} cannot be written ({problem}); give another folder") from error
    return target


def _nearest(target: Path) -> Path:
    """The folder, or the nearest one above it that exists; FileError for one in which the others cannot be made."""
    missing: list[str] = []
    for place in (target, *target.parents):
        try:
            place.stat()
        except (FileNotFoundError, NotADirectoryError):
            missing.append(place.name)
            continue
        if not place.is_dir():
            where = "a file" if place == target else f"in {place}, which is a file"
            raise FileError(f"web.export: {target} is {where}; give a folder")
        for name in missing:  # an OSError for a name that is too long
            (place / name).exists()
        parent = place if missing else place.parent  # a new folder takes the place of the old one
        if not os.access(parent, os.W_OK | os.X_OK):
            raise FileError(f"web.export: {parent} does not let you write {target}; give another folder")
        return place
    return target


__all__ = ["export"]
