"""Adapters of a browser, and opening them: what `trueno_wgpu.device.runtime` is for wgpu."""

import os
from typing import Any

from trueno.errors import BackendUnavailable

from trueno_wgpu.device.adapter import SETTING, Adapter, NoAdapter, choose
from trueno_wgpu.device.browser import values
from trueno_wgpu.device.browser.objects import LIMITS, Device
from trueno_wgpu.device.browser.values import JsException, may_wait, record, told, wait
from trueno_wgpu.device.setting import setting

OPEN = 'write: await trueno.aio.device("wgpu")'
FEATURES = ("shader-f16", "timestamp-query")
"""Requested if the adapter has them; no kernel needs one."""
ABSENT = "this browser has no WebGPU, or the page comes neither from https nor from localhost"
NONE = "this browser finds no GPU for WebGPU; update the GPU's driver, or look at chrome://gpu or about:support"

_known: list[Adapter] | None = None
"""What was found."""
_ready: dict[str, tuple[Device, Adapter]] = {}
"""Devices that were opened asynchronously, by the word that was wanted, until `open_device` takes them."""


def adapter(wanted: str | None = None) -> Adapter:
    """The adapter that `open_device` uses, found without opening it; BackendUnavailable if none is suitable."""
    if _known is None:
        _gpu()
        wait(_find(), OPEN)
    return _chosen(_known or [], _word(wanted))


def known() -> bool:
    """Whether `adapter` answers without waiting."""
    return _known is not None


def open_device(wanted: str | None) -> tuple[Device, Adapter]:
    """WebGPU's device of an adapter; BackendUnavailable if there is none, or where the page cannot wait for it."""
    word = _word(wanted)
    if word not in _ready:
        _gpu()
        if not may_wait():
            raise BackendUnavailable(f"the GPU is not open yet, and {values.WAITING}; {OPEN}")
        wait(prepare(wanted), OPEN)
    return _ready.pop(word)


async def prepare(wanted: str | None = None) -> None:
    """Find adapters, and request the device that `open_device` will give."""
    found, word = await _find(), _word(wanted)
    chosen = _chosen([one for _, one in found], word)
    handle = next(handle for handle, one in found if one is chosen)
    features = tuple(name for name in FEATURES if handle.features.has(name))
    limits = {name: getattr(handle.limits, name) for name in LIMITS.values()}
    try:
        device = await handle.requestDevice(record(requiredFeatures=list(features), requiredLimits=limits))
    except JsException as error:
        raise BackendUnavailable(f"{chosen} gives no device ({told(error)}); update its driver") from error
    _ready[word] = Device(device, features), chosen


async def _find() -> list[tuple[Any, Adapter]]:
    """The adapters, each with the browser's object, which gives one device."""
    global _known
    gpu = _gpu()
    found: list[tuple[Any, Adapter]] = []
    for options in ({"powerPreference": "high-performance"}, {"forceFallbackAdapter": True}):
        try:
            handle = await gpu.requestAdapter(record(**options))
        except JsException:
            continue
        if handle:  # else it is null, which some versions of Pyodide do not make None
            described = _described(handle)
            if described not in [one for _, one in found]:
                found.append((handle, described))
    _known = [one for _, one in found]
    return found


def _gpu() -> Any:
    """The browser's WebGPU; NoAdapter if it has none."""
    gpu = values.gpu()
    if gpu is None:
        raise NoAdapter(ABSENT)
    return gpu


def _described(handle: Any) -> Adapter:
    info = handle.info
    words = [str(getattr(info, name, "") or "") for name in ("description", "device", "architecture", "vendor")]
    fallback = bool(getattr(info, "isFallbackAdapter", False) or getattr(handle, "isFallbackAdapter", False))
    software = fallback or "swiftshader" in words
    name = words[0] or " ".join(word for word in (words[3], words[2], words[1]) if word)
    return Adapter(name, "CPU" if software else "Unknown", "browser", words[1])


def _word(wanted: str | None) -> str:
    return str(setting(SETTING, os.environ.get(SETTING, ""))) if wanted is None else wanted


def _chosen(adapters: list[Adapter], word: str) -> Adapter:
    best = choose(adapters, word)
    if best is None:
        raise NoAdapter(_absent(adapters, word), word)
    return best


def _absent(adapters: list[Adapter], word: str) -> str:
    there = ", ".join(map(str, adapters))
    if not adapters:
        return NONE
    if word:
        return f"{SETTING} is {word!r}, which is in the name of no adapter; there is {there}"
    return (
        f"there is no GPU, only software that emulates one: {there}; "
        f'for trying things out set os.environ["{SETTING}"] = "software" before the first use of trueno'
    )


def direct() -> None:
    """There is no faster way to a pass than its methods."""


def immortal(thing: Any) -> None:
    """A page never forks."""
