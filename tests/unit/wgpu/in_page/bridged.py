"""A process that calls itself Emscripten, whose WebGPU is a page of Chromium: `python bridged.py TASK SEED FOLDER`.

It prints what the task gives, as JSON.  Tests run it in a child process, because it changes what platform this is.
"""

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[4]), str(Path(__file__).parents[3])]
from browser import Browser, chromium  # noqa: E402
from unit.wgpu.in_page.bridge import Bridge  # noqa: E402
from unit.wgpu.in_page.whole import cases, error_of, softmax  # noqa: E402
from unit.wgpu.web.server import serving  # noqa: E402

WEBGPU = "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"


def conformance(bridge: Bridge, seed: int) -> dict[str, Any]:
    """Some of the kit's cases, judged as for any backend."""
    return {"cases": cases("wgpu", seed, ("gelu", "softmax", "argmax", "matmul", "topk", "quant_matvec"))}


def sync(bridge: Bridge, seed: int) -> dict[str, Any]:
    """Where a page may wait: calls, devices and batches as everywhere."""
    import trueno
    from trueno.errors import KernelError

    x = np.random.default_rng(seed).standard_normal((5, 33)).astype(np.float32)
    with trueno.use("wgpu"):
        y = trueno.softmax(x)
    with trueno.device("wgpu") as d:
        name, z = d.adapter_name, d.read(d.relu(d.upload(x)))
    with trueno.Batch("wgpu") as b:
        h = b.exp(b.upload(x))
        for _ in range(3):
            b.execute()
        e = b.read(h)
    from trueno_wgpu.device import opened
    from trueno_wgpu.device.shader import Shader

    try:
        opened.gpu().run(Shader("wrong", "this is not WGSL", (True,)), (opened.gpu().alloc(4),), b"", (1, 1, 1))
        wrong = ""
    except KernelError as error:
        wrong = str(error)
    again = trueno.numpy(trueno.to(x, "wgpu"))
    return {
        "sync": trueno.sync_available(), "adapter": name, "softmax": error_of(y, softmax(x)),
        "relu": error_of(z, np.maximum(x, 0)),
        "exp": error_of(e, np.exp(x.astype(float))), "wrong": wrong, "again": error_of(again, x),
        "unnamed": trueno.explain("softmax", (4096, 4096)).chosen,
    }  # fmt: skip


def asynchronous(bridge: Bridge, seed: int) -> dict[str, Any]:
    """Where it may not: the asynchronous API, and sentences from the other one."""
    import trueno
    from trueno.errors import TruenoError

    bridge.waits = False
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((5, 33)).astype(np.float32), rng.standard_normal((33, 7)).astype(np.float32)
    said = []

    def refused(call: Any) -> None:
        try:
            call()
            said.append("no error")
        except TruenoError as error:
            said.append(f"{type(error).__name__}: {error}")

    async def main() -> dict[str, Any]:
        refused(lambda: trueno.to(x, "wgpu"))
        async_context = await trueno.aio.device("wgpu")
        with async_context as d:
            name = d.adapter_name
            there = d.relu(d.upload(x))
            refused(lambda: d.read(there))
            relu = await trueno.aio.numpy(there)
        product = trueno.matmul(await trueno.aio.to(x, "wgpu"), await trueno.aio.to(w, "wgpu"))
        refused(lambda: trueno.numpy(product))
        with trueno.use("wgpu"):
            y = await trueno.aio.softmax(x)
            out = np.empty_like(x)
            same = await trueno.aio.exp(x, out=out)
            values, places = await trueno.aio.topk(x, k=3)
            total = await trueno.aio.sum(x, axis=None)
            refused(lambda: trueno.softmax(x))
        with trueno.Batch("wgpu") as b:
            h = b.softmax(b.upload(x))
            await b.execute_async()
            await b.execute_async()
            refused(lambda: b.read(h))
            batched = await b.read_async(h)
        order = np.argsort(-x, axis=1, kind="stable")[:, :3]
        wrong = ""
        from trueno_wgpu.device import opened
        from trueno_wgpu.device.shader import Shader

        gpu, buffer = opened.gpu(), opened.gpu().alloc(4)
        gpu.run(Shader("wrong", "this is not WGSL", (True,)), (buffer,), b"", (1, 1, 1))
        try:
            await gpu.read_async(buffer, 4)
        except TruenoError as error:
            wrong = str(error)
        return {
            "sync": trueno.sync_available(), "adapter": name, "relu": error_of(relu, np.maximum(x, 0)),
            "matmul": error_of(await trueno.aio.numpy(product), x.astype(float) @ w), "same": same is out,
            "softmax": error_of(y, softmax(x)), "exp": error_of(out, np.exp(x.astype(float))),
            "sum": error_of(total, x.sum(dtype=float)),
            "topk": error_of(values, np.take_along_axis(x, order, 1)), "places": bool((places == order).all()),
            "batch": error_of(batched, softmax(x)), "host": error_of(trueno.softmax(x), softmax(x)), "wrong": wrong,
            "unnamed": trueno.explain("softmax", (4096, 4096)).chosen, "said": said,
        }  # fmt: skip

    return asyncio.run(main())


def lost(bridge: Bridge, seed: int) -> dict[str, Any]:
    """A device that the browser takes away."""
    import trueno
    from trueno.errors import TruenoError
    from trueno_wgpu.device import opened

    x = trueno.to(np.ones(5, np.float32), "wgpu")
    device = opened.gpu().device
    bridge.ask("call", device._handle._id, "destroy")
    bridge.run_sync(device._handle.lost)
    try:
        trueno.numpy(x)
    except TruenoError as error:
        return {"error": type(error).__name__, "said": str(error)}
    return {}


def absent(bridge: Bridge, seed: int) -> dict[str, Any]:
    """A browser that gives no adapter, and one without WebGPU."""
    import trueno
    from trueno.errors import BackendUnavailable

    found = {"available": trueno.backends()["wgpu"].available, "reason": trueno.backends()["wgpu"].reason}
    try:
        trueno.device("wgpu")
    except BackendUnavailable as error:
        found["error"] = str(error)
    found["host"] = error_of(trueno.relu(np.ones(3, np.float32)), np.ones(3))
    bridge.waits = False
    from trueno_wgpu.device import door

    try:
        asyncio.run(door.prepare())
    except BackendUnavailable as error:
        found["prepare"] = str(error)
    sys.modules["js"].navigator = object()
    try:
        asyncio.run(door.prepare())
    except BackendUnavailable as error:
        found["old"] = str(error)
    return found


def main(task: str, seed: str, folder: str) -> None:
    warnings.simplefilter("error")
    options = () if task == "absent" else WEBGPU
    (Path(folder) / "index.html").write_text("<!doctype html><title>a page</title><link rel=icon href='data:,'>")
    with serving(Path(folder)) as (address, _), Browser(chromium(), Path(folder), *options) as browser:
        page = browser.open(f"{address}index.html")
        os.environ |= {"TRUENO_WGPU_ADAPTER": "software", "TRUENO_CACHE_DIR": str(Path(folder) / "cache")}
        bridge = Bridge(page)
        import trueno  # noqa: F401 - before the platform changes, which NumPy must not see

        bridge.install()
        tasks = {"conformance": conformance, "sync": sync, "asynchronous": asynchronous, "lost": lost, "absent": absent}
        result = tasks[task](bridge, int(seed))
        result["console"] = page.errors
        print(json.dumps(result), flush=True)
        sys.platform = "linux"


if __name__ == "__main__":
    main(*sys.argv[1:])
