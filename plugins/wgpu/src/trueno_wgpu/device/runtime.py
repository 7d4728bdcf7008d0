"""The wrapper of wgpu: the only file that imports it, finds adapters and opens their devices."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

import wgpu
from trueno.errors import BackendUnavailable

from trueno_wgpu.device.adapter import SETTING, Adapter, NoAdapter, absent, choose
from trueno_wgpu.device.setting import setting

FEATURES = ("shader-f16", "subgroup", "timestamp-query")
"""Requested if the adapter has them; no kernel needs one."""
_adapters: list[tuple[Any, Adapter]] = []
"""What was found so far: wgpu's object, and its description."""


def adapter(wanted: str | None = None) -> Adapter:
    """The adapter that `open_device` uses, found without opening it; BackendUnavailable if none is suitable."""
    return _find(wanted)[1]


def open_device(wanted: str | None) -> tuple[Any, Adapter]:
    """WebGPU's device of an adapter."""
    handle, chosen = _find(wanted)
    wished = [name for name in FEATURES if name in handle.features]
    try:
        with _quiet():
            return handle.request_device_sync(required_features=wished), chosen
    except Exception as error:
        raise BackendUnavailable(f"{chosen} gives no device ({error}); update its driver") from error


def known() -> bool:
    """Whether `adapter` answers without waiting; it always may wait here."""
    return True


def may_wait() -> bool:
    """Whether a call may wait for the device."""
    return True


async def prepare(wanted: str | None = None) -> None:
    """Nothing has to be awaited before `open_device`."""


def _find(wanted: str | None) -> tuple[Any, Adapter]:
    if wanted is None:
        wanted = str(setting(SETTING, os.environ.get(SETTING, "")))
    for backends in ("Primary", "All"):  # OpenGL takes as long as all the others, and is needed almost nowhere
        _enumerate(backends)
        best = choose([a for _, a in _adapters], wanted)
        if best is not None:
            return next((handle, a) for handle, a in _adapters if a is best)
    raise NoAdapter(absent([a for _, a in _adapters], wanted, sys.platform), wanted)


_seen: set[str] = set()
_forked = False


def _enumerate(backends: str) -> None:
    """Add the adapters of an instance of these APIs; once per process."""
    if backends in _seen:
        return
    _seen.add(backends)
    with _quiet():
        with suppress(Exception):  # made by another library already, or a wgpu that has no such thing
            from wgpu.backends.wgpu_native import _helpers, extras

            if len(_seen) > 1 or _forked:  # llvmpipe's threads belong to the instance, and are the parent's
                _helpers._the_instance = None  # as that file says; the other instance lives on
            extras.set_instance_extras(backends=[backends])
        handles = wgpu.gpu.enumerate_adapters_sync()
    known = {a for _, a in _adapters}
    for handle in handles:
        info = handle.info
        described = Adapter(info["device"], info["adapter_type"], info["backend_type"], info["description"])
        if described not in known:
            _adapters.append((handle, described))


@contextmanager
def _quiet() -> Iterator[None]:
    """Drops what Vulkan's loader says of extensions that are not needed."""
    logger = logging.getLogger("wgpu")

    def errors(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(errors)
    try:
        yield
    finally:
        logger.removeFilter(errors)


class Direct(NamedTuple):
    """wgpu-native's functions of a compute pass, on handles.  errors: raises what they report inside, at its end."""

    set_pipeline: Callable[[Any, Any], None]
    set_group: Callable[[Any, int, Any, int, Any], None]
    dispatch: Callable[[Any, int, int, int], None]
    array: Callable[[str, Any], Any]
    errors: Callable[[], AbstractContextManager[None]]


@cache
def direct() -> Direct | None:
    """They take a tenth of the time of wgpu's wrappers; None where this wgpu has them elsewhere."""
    try:
        from wgpu.backends.wgpu_native import _api

        handler, of = _api.libf._error_handler, "wgpuComputePassEncoder"
        capture, release = handler.capture, handler.release
        pipeline, group, dispatch = (
            getattr(_api.lib, of + name) for name in ("SetPipeline", "SetBindGroup", "DispatchWorkgroups")
        )
    except (ImportError, AttributeError):
        return None

    @contextmanager
    def errors() -> Iterator[None]:
        capture("a compute pass")
        told = None
        try:
            yield
        finally:
            told = release("a compute pass")
        if told is not None:
            raise RuntimeError(told[1])

    return Direct(pipeline, group, dispatch, _api.ffi.new, errors)


def immortal(thing: Any) -> None:
    """Must never be released, not even when the interpreter ends."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _adapters, _seen, _forked
    immortal(_adapters)
    _adapters, _seen, _forked = [], set(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
