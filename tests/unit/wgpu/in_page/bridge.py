"""`js` and `pyodide.ffi` for a Python that is not in a page: every access is carried out by a page of Chromium.

So the browser's device layer meets the real WebGPU, from a Python that has NumPy.  As in Pyodide, JavaScript's objects
are proxies here, what is undefined is no attribute, and a dictionary or a list that `to_js` has not seen is refused.
"""

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from browser import Page

SERVANT = """window.bridge = (() => {
  const table = new Map([[0, globalThis]]), calls = [];
  let next = 1;
  const keep = value => (table.set(next, value), next++);
  const pack = value => value === undefined ? {kind: "undefined"} : value === null ? {kind: "null"}
    : typeof value === "object" || typeof value === "function" ? {kind: "object", id: keep(value)}
    : {kind: "value", value: typeof value === "bigint" ? Number(value) : value};
  const build = x => Array.isArray(x) ? x.map(build) : !(x instanceof Object) ? x
    : "$id" in x ? table.get(x.$id)
    : "$bytes" in x ? Uint8Array.from(atob(x.$bytes), c => c.charCodeAt(0))
    : "$call" in x ? (...args) => {
        args[0]?.preventDefault?.(); // which is too late when Python hears of it
        calls.push([x.$call, args.map(pack)]);
      }
    : Object.fromEntries(Object.entries(x).map(([name, value]) => [name, build(value)]));
  const ways = {
    get: (self, name) => typeof self[name] === "function" ? self[name].bind(self) : self[name],
    call: (self, name, args) => name ? self[name](...args.map(build)) : self(...args.map(build)),
    build: (self, name, [template]) => build(template),
    truth: self => Boolean(self),
    bytes: self => {
      const all = new Uint8Array(self);
      let text = "";
      for (let at = 0; at < all.length; at += 32768) text += String.fromCharCode(...all.subarray(at, at + 32768));
      return btoa(text);
    },
  };
  return async ([dropped, way, id, name, args]) => {
    dropped.forEach(one => table.delete(one));
    try {
      const self = table.get(id), result = way === "await" ? await self : ways[way](self, name, args);
      return {result: pack(result), calls: calls.splice(0)};
    } catch (error) {
      return {error: String(error?.message ?? error), calls: calls.splice(0)};
    }
  };
})()"""
CALLED = ("begin", "clear", "copy", "create", "dispatch", "end", "finish", "getMapped", "has", "map", "on", "pop",
          "prevent", "push", "request", "set", "submit", "then", "unmap", "write", "addEvent")  # fmt: skip
"""How the names of methods begin: they need not be fetched before they are called."""


class JsException(Exception):
    """What JavaScript threw."""

    @property
    def message(self) -> str:
        return str(self)


class Bridge:
    """Carries accesses to a page.  waits: whether Python may wait inside of a call, which a test decides."""

    def __init__(self, page: Page) -> None:
        self._page, self.waits, self.dropped = page, True, []
        self._callbacks: list[Callable[..., Any]] = []
        page.evaluate(f"{SERVANT}, 0")

    def ask(self, way: str, target: int = 0, name: str = "", args: list[Any] | None = None) -> Any:
        dropped, self.dropped = self.dropped, []
        answer = self._page.evaluate(f"bridge({json.dumps([dropped, way, target, name, args or []])})")
        for number, given in answer["calls"]:
            self._callbacks[number](*map(self._unpacked, given))
        if "error" in answer:
            raise JsException(answer["error"])
        return self._unpacked(answer["result"])

    def _unpacked(self, packed: dict[str, Any]) -> Any:
        return Proxy(self, packed["id"]) if packed["kind"] == "object" else packed.get("value")

    def template(self, value: Any, deep: bool = False) -> Any:
        """A Python value for the page; deep: `to_js` was called, and containers may be turned into JavaScript's."""
        if isinstance(value, Proxy):
            return {"$id": value._id}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if deep and isinstance(value, (bytes, bytearray, memoryview)):
            return {"$bytes": base64.b64encode(value).decode()}
        if deep and isinstance(value, dict):
            return {name: self.template(one, True) for name, one in value.items()}
        if deep and isinstance(value, (list, tuple)):
            return [self.template(one, True) for one in value]
        raise TypeError(f"a {type(value).__name__} would arrive in JavaScript as a proxy: {value!r:.200}")

    def to_js(self, value: Any, *, dict_converter: Any = None) -> Any:
        template = self.template(value, True)
        assert dict_converter is not None or "{" not in json.dumps(template).replace('{"$', ""), "a dictionary"
        return Proxy(self, template=template)

    def create_proxy(self, function: Callable[..., Any]) -> Any:
        self._callbacks.append(function)
        return self.ask("build", args=[{"$call": len(self._callbacks) - 1}])

    def run_sync(self, awaitable: Any) -> Any:
        if not self.waits:
            raise RuntimeError("cannot stack switch")
        if isinstance(awaitable, Proxy):
            return self.ask("await", awaitable._id)
        try:
            while True:
                awaitable.send(None)
        except StopIteration as end:
            return end.value

    def install(self) -> None:
        """Make `import js` and `import pyodide.ffi` find this, on what calls itself Emscripten from now on."""
        asyncio.get_event_loop_policy()  # loaded for the platform that this really is
        js, pyodide, ffi = ModuleType("js"), ModuleType("pyodide"), ModuleType("pyodide.ffi")
        js.navigator = self.ask("get", name="navigator")
        js.Object = SimpleNamespace(fromEntries=object())
        ffi.JsException, ffi.to_js, ffi.create_proxy, ffi.run_sync = (
            JsException,
            self.to_js,
            self.create_proxy,
            self.run_sync,
        )
        ffi.can_run_sync = lambda: self.waits
        pyodide.ffi = ffi
        sys.modules |= {"js": js, "pyodide": pyodide, "pyodide.ffi": ffi}
        sys.platform = "emscripten"


class Proxy:
    """One of the page's objects.  template: one that is only an argument so far."""

    def __init__(self, bridge: Bridge, number: int = 0, template: Any = None) -> None:
        self.__dict__ |= {"_bridge": bridge, "_number": number, "_template": template}

    @property
    def _id(self) -> int:
        if not self._number:
            self.__dict__["_number"] = self._bridge.ask("build", args=[self._template])._disowned()
        return self._number

    def _disowned(self) -> int:
        number, self.__dict__["_number"] = self._number, 0
        return number

    def __del__(self) -> None:
        if self._number:
            self._bridge.dropped.append(self._number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.startswith(CALLED):
            return lambda *args: self._bridge.ask("call", self._id, name, [*map(self._argument, args)])
        found = self._bridge.ask("get", self._id, name)
        if found is None:
            raise AttributeError(name)
        return found

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Proxy) and not value._number and value._template is not None:
            return value._template  # built where it is used: one message less
        if callable(value) and not isinstance(value, Proxy):  # as `then` takes one
            return {"$id": self._bridge.create_proxy(value)._disowned()}
        return self._bridge.template(value)

    def __bool__(self) -> bool:
        return self._bridge.ask("truth", self._id)

    def __await__(self) -> Any:
        return self._bridge.ask("await", self._id)
        yield

    def to_memoryview(self) -> memoryview:
        """A copy of an ArrayBuffer."""
        return memoryview(base64.b64decode(self._bridge.ask("bytes", self._id)))
