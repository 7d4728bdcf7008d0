"""The folder of a batch, for web pages."""

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
    The batch is executed once, and its uploads are as they were after that.  The result is the folder's path.
    ParameterError, DeviceError for a batch on another backend, FileError for a folder that is not empty, KernelError
    for an op that the device cannot record, or that has no kernel of WebAssembly.  Nothing is left in the folder if an
    error is raised.
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
    target = _target(Path(folder), force)
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
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        backend.write_page(script, beside, *arrays, list(batch._uploads.arrays.values()), beyond)
        beside.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        beside.rename(target)
    except BaseException as error:
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


def _target(folder: Path, force: bool) -> Path:
    """The folder to write; FileError if it holds something that is not ours to replace."""
    folder = folder.absolute()
    if folder.is_dir():
        held = any(folder.iterdir())
        if held and not (folder / PLAN).is_file():
            raise FileError(f"web.export: {folder} is not empty, and no export wrote it; give another folder")
        if held and not force:
            raise FileError(f"web.export: {folder} has an export; pass force=True to replace it")
    elif folder.exists():
        raise FileError(f"web.export: {folder} is a file; give a folder")
    return folder


__all__ = ["export"]
