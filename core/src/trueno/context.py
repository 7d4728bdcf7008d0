"""`trueno.device(NAME)`: one backend as a context manager, with buffers and ops on them.

    with trueno.device("simd") as d:
        x = d.upload([1.0, 2.0, 3.0])
        y = d.read(d.scale(d.relu(x), 2.0))

Buffers are the backend's own arrays: you can pass the results of `upload` and of ops to any function of Trueno.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any, NoReturn, overload

import numpy as np

from trueno.border import refused
from trueno.discovery import registry
from trueno.discovery.protocol import Backend
from trueno.dispatch.asking import use
from trueno.dispatch.fallback import wrapping_errors
from trueno.dispatch.function import function
from trueno.dispatch.incoming import plain
from trueno.dispatch.operands import is_number
from trueno.dispatch.parameters import parameters
from trueno.dispatch.transfer import Q, device_of, download, host, unwrap
from trueno.dispatch.transfer import upload as send
from trueno.errors import DeviceError, OutError, ParameterError
from trueno.hints import lacking
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op

_ORDINARY = (float, int, np.floating, np.integer)


class DeviceContext:
    """A backend for computing on its own buffers; every op of the table is a method with the op's signature.

    Operands are buffers of this backend, or numbers; results stay there.  Every use after `close`, which `with`
    calls, is a DeviceError.  It holds no lock: threads may share it.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ParameterError(f'device: {name!r} is not the name of a backend; write trueno.device("simd")')
        self._name = registry.named(name)
        registry.load(self._name)
        self._foreign = registry.entries()[self._name].foreign
        self._closed = False

    @property
    def name(self) -> str:
        """The backend's name."""
        return self._name

    @property
    def adapter_name(self) -> str:
        """The hardware's name for people; the backend's name where its probe names no device."""
        devices = registry.entries()[self._name].devices
        return devices[0].name if devices else self._name

    @property
    def _backend(self) -> Backend:
        """Looked up at each use, so that a device that was lost, or is in a forked child, is an error that says so."""
        return registry.load(self._name)

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that the device reports; {} for a backend without limits."""
        self._open("limits")
        with wrapping_errors("limits", self.name):
            limits: Any = getattr(self._backend, "limits", None)
            return dict((limits() if callable(limits) else limits) or {})

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def upload(self, x: Any) -> Any:
        """A new buffer with a copy of `x`: a list, a number, or an array of floats or integers of any library.

        Integers become int64, the dtype of indices.  A QuantizedMatrix becomes one whose `bytes` are the buffer.
        """
        self._open("upload")
        if _in_blocks(x):
            return x._of_bytes(self._sent(np.ascontiguousarray(host("upload", x.bytes))))
        return self._sent(plain("upload", host("upload", x) if device_of(x) is not None else x, half=True))

    def _sent(self, x: np.ndarray[Any, Any]) -> Any:
        if not self._foreign:
            return np.array(x)
        with wrapping_errors("upload", self.name):
            return send(self._backend, x, "upload")

    @overload
    def read(self, x: Q) -> Q: ...
    @overload
    def read(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]: ...
    def read(self, x: Any, out: np.ndarray[Any, Any] | None = None) -> Any:
        """A buffer as a new NumPy array, or in `out`, a contiguous array of the buffer's shape and dtype.

        A QuantizedMatrix, which allows no `out`, becomes one whose `bytes` are NumPy's.
        """
        self._open("read")
        if _in_blocks(x):
            if out is not None:
                raise OutError("read: a QuantizedMatrix is read without out; or read its bytes: .read(x.bytes, out)")
            return x._of_bytes(self.read(x.bytes))
        x = unwrap(x)
        self._ours("read", "x", x)
        if out is not None:
            self._fits(out, x)
        if self._foreign and not isinstance(x, _ORDINARY):
            with wrapping_errors("read", self.name):
                return download(self._backend, x, out, "read")
        if out is None:
            return np.array(x)
        np.copyto(out, x)
        return out

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""
        self._open("synchronize")
        with wrapping_errors("synchronize", self.name):
            self._backend.synchronize()

    def close(self) -> None:
        """Wait for the device and end this context; closing twice is allowed.

        Buffers live on as long as they are referenced.
        """
        if self._closed:
            return
        self._closed = True
        if not sync_available():  # a page may not wait; its arrays stay valid
            return
        if not registry.entries()[self._name].reason:  # a lost device has nothing to wait for
            with wrapping_errors("close", self.name):
                self._backend.synchronize()

    def __enter__(self) -> "DeviceContext":
        self._open("with")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except Exception:  # the error inside matters more than the failure to close
            self._closed = True

    def __repr__(self) -> str:
        return f"<device {self.name}{': closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"device: the context of {self.name} cannot be pickled or copied; create one where you use it")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """An op that is called for the first time: generate its method and keep it in the class."""
        if name.startswith("_") or (name not in TABLE and name not in ALIASES):
            raise AttributeError(lacking("device has no op", name, [*TABLE, *ALIASES], arrays=False))
        setattr(DeviceContext, name, method(TABLE[ALIASES.get(name, name)]))
        return getattr(self, name)  # type: ignore[no-any-return]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLE, *ALIASES})

    def _open(self, what: str) -> None:
        if self._closed:
            raise DeviceError(
                f"{what}: the context of {self.name} is closed; create another: trueno.device({self.name!r})"
            )

    def _ours(self, op: str, operand: str, x: Any) -> None:
        """Raise DeviceError for anything but this device's buffers and numbers."""
        x = x.bytes if _in_blocks(x) else x
        if is_number(x):
            return
        there = device_of(x)
        if self._foreign and there is not None and there.name == self._name:
            return
        if not self._foreign and isinstance(unwrap(x), np.ndarray):
            return
        if there is not None:
            where = f"on {there.name}"
        elif isinstance(unwrap(x), np.ndarray):
            where = "on the host"
        else:
            where = f"a {type(x).__name__}"
        raise DeviceError(
            f"{op}: {operand} is {where}, not a buffer of {self.name}; upload it first: .upload({operand})"
        )

    def _fits(self, out: Any, x: Any) -> None:
        shape, dtype = tuple(np.shape(x) if isinstance(x, _ORDINARY) else x.shape), np.dtype(getattr(x, "dtype", float))
        if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
            raise OutError(f"read: out is {type(out).__name__}; it must be a NumPy array")
        if out.shape != shape or out.dtype != dtype:
            raise OutError(f"read: out is {out.dtype} of shape {out.shape}, but the buffer is {dtype} of shape {shape}")
        if not out.flags.writeable or not out.flags.c_contiguous:
            raise OutError("read: out must be writable and contiguous")

    def _run(self, op: Op, operands: tuple[Any, ...], given: dict[str, Any]) -> Any:
        self._open(op.name)
        for operand, x in zip(op.operands, operands, strict=True):
            self._ours(op.name, operand, x)
        with use(self.name):
            return function(op.name)(*operands, **given)


def _in_blocks(x: Any) -> bool:
    """Whether it is a QuantizedMatrix, which is on the device of its bytes."""
    return hasattr(type(x), "_of_bytes")


def method(op: Op) -> Callable[..., Any]:
    """An op as a method of a context, with the op's signature."""
    listed = parameters(op)
    positional = [p for p in listed if p.kind is not p.KEYWORD_ONLY]
    keyword = [p for p in listed if p.kind is p.KEYWORD_ONLY]

    def declared(p: inspect.Parameter) -> str:
        return p.name if p.default is p.empty else f"{p.name}={p.default!r}"

    shown = ", ".join(["self", *map(declared, positional), "*_more", *map(declared, keyword), "**_other"])
    scalars = ", ".join(f"{p.name!r}: {p.name}" for p in listed if p.name not in op.operands)
    operands = ", ".join(op.operands)
    source = f"def {op.name}({shown}):\n    if _more or _other:\n        _refused(_op, _more, _other)\n"
    source += f"    return self._run(_op, ({operands},), {{{scalars}}})\n"
    namespace: dict[str, Any] = {"_op": op, "_refused": refused}
    exec(compile(source, f"<trueno.device.{op.name}>", "exec"), namespace)
    run: Any = namespace[op.name]
    run.__doc__ = function(op.name).__doc__
    run.__module__ = "trueno"
    run.__qualname__ = f"DeviceContext.{op.name}"
    run.__annotations__ = {p.name: p.annotation for p in listed}
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([own, *listed])
    return run  # type: ignore[no-any-return]


def device(name: str) -> DeviceContext:
    """A context of backend `name`: `with trueno.device("simd") as d`.

    UnknownBackend for a name that is not installed, BackendUnavailable with the reason for one that cannot run.
    """
    return DeviceContext(name)


def sync_available() -> bool:
    """Whether a call may block here until a device is done.

    False in a page (Pyodide), whose one thread must not stop, unless the browser has JavaScript Promise Integration and
    the code was started asynchronously, as by `runPythonAsync`: where it is False, await `trueno.aio`.  True elsewhere,
    also inside an event loop: a call then works, and blocks the loop as long as it runs.
    """
    platform: str = sys.platform
    if platform != "emscripten":
        return True
    try:
        from pyodide.ffi import can_run_sync  # type: ignore[import-not-found]  # with JSPI even a browser can block
    except ImportError:
        return False
    return bool(can_run_sync())
