"""Verdicts of probes, kept between processes under a fingerprint of all that they depend on.

The fingerprint is made without any code of the plugin: versions, the CPU, the driver, the settings, and the
sizes and times of the files that would be imported.  It is kept as text beside the verdict and compared
whole, so that a file name's short checksum decides nothing.
"""

import os
import sys
import time
from binascii import crc32
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import Any, NamedTuple

from trueno.discovery.manifest import Manifest
from trueno.discovery.protocol import API, Device
from trueno.machine import cpu_facts
from trueno.settings import settings
from trueno.version import __version__

FAILED = 24 * 3600.0
TIMED_OUT = 3600.0
"""Seconds for which a verdict holds that says no: what failed may have been repaired, what was slow may be fast."""
KEPT = 8
"""Verdicts kept of one backend: environments and settings change to and fro."""
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""Variables of others that decide whether a device is found."""
CPU = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features")
CPU_ARM = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part")


LONGEST = 1000


def sentence(text: str) -> str:
    """A plugin's words made fit for a line on a screen: no control characters, and not too many."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    plain = " ".join(plain.split())
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"


class Verdict(NamedTuple):
    """What a probe found.  code and reason: empty where ok.  notes: about the plugin's side effects.

    seconds: how long it took.  trace: the traceback where it raised.  time: when, in seconds since the epoch.
    limit: the seconds that it had.
    """

    ok: bool
    code: str = ""
    reason: str = ""
    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    trace: str = ""
    time: float = 0.0
    limit: float = 0.0

    def plain(self) -> dict[str, Any]:
        """As data that JSON can hold."""
        return {
            "ok": self.ok,
            "code": self.code,
            "reason": self.reason,
            "devices": [[d.name, d.isa, d.software] for d in self.devices],
            "notes": list(self.notes),
            "seconds": self.seconds,
            "trace": self.trace,
            "time": self.time,
            "limit": self.limit,
        }


def parse(data: Any) -> Verdict:
    """The verdict that `plain` wrote; ValueError for anything else."""
    try:
        verdict = Verdict(
            data["ok"],
            data["code"],
            data["reason"],
            tuple(Device(*device) for device in data["devices"]),
            tuple(data["notes"]),
            float(data["seconds"]),
            data["trace"],
            float(data["time"]),
            float(data["limit"]),
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"no verdict: {error!r}") from None
    texts = [verdict.code, verdict.reason, verdict.trace, *verdict.notes]
    for device in verdict.devices:
        texts += [device.name, device.isa]
    flags = [verdict.ok, *(device.software for device in verdict.devices)]
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(f, bool) for f in flags):
        raise ValueError("no verdict: a field has the wrong type")
    if verdict.ok == bool(verdict.reason):
        raise ValueError("no verdict: a refusal needs a reason, and nothing else has one")
    return verdict


# ---- the fingerprint -------------------------------------------------------------------------------


def fingerprint(manifest: Manifest) -> str:
    """All that the verdict on a backend depends on, as lines of text."""
    lines = [_machine(), f"backend {manifest.name} {manifest.distribution} {manifest.version}"]
    lines.append(f"manifest {_stamp(manifest.path)}")
    lines.append(f"factory {manifest.factory} {_stamp(origin(manifest.factory.partition(':')[0]))}")
    modules = [module.partition(".")[0] for module in manifest.require.get("modules", ())]
    lines += [f"requires {module} {_stamp(origin(module))}" for module in modules]
    lines += [f"{name}={os.environ.get(name, '')}" for name in ENVIRONMENT]
    lines += [f"{name}={settings.get(name)}" for name in ("TRUENO_MAX_ISA", *manifest.settings)]
    return "\n".join(lines)


def origin(module: str) -> str:
    """The file of a module, found without importing it or a package above it; empty when there is none."""
    name, folders, file = "", None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = find_spec(name) if folders is None else PathFinder.find_spec(name, folders)
        except Exception:  # a finder is anybody's code, and a module made by hand has no spec
            return ""
        if spec is None:
            return ""
        folders, file = list(spec.submodule_search_locations or ()), spec.origin or ""
    return file


def _stamp(path: str) -> str:
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return f"{path} -"
    return f"{path} {facts.st_mtime_ns} {facts.st_size}"


@cache
def _machine() -> str:
    """What no plugin changes, and no setting."""
    lines = [
        f"trueno {__version__} api {API}",
        f"python {sys.implementation.name} {sys.version}",
        f"platform {sys.platform} {_cpu()}",
        f"prefix {sys.prefix}",
        f"numpy {_stamp(os.path.join(os.path.dirname(origin('numpy')), 'version.py'))}",
    ]
    with suppress(OSError), open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
        lines.append(f"nvidia {file.read(4096)}")
    return "\n".join(lines)


def _cpu() -> str:
    facts = cpu_facts()
    if not facts:
        import platform

        return f"{platform.machine()} {platform.processor()}"
    return " ".join(value for key, value in facts.items() if key in CPU or key in CPU_ARM)


# ---- the cache -------------------------------------------------------------------------------------


def recall(manifest: Manifest) -> Verdict | None:
    """The verdict that is kept for this backend as it is now; None if there is none that still holds."""
    text = fingerprint(manifest)
    path = _file(manifest.name, text)
    if path is None:
        return None
    from trueno import cachedir  # start-up
    from trueno.sealed import unseal  # start-up

    try:
        data = unseal(cachedir.read(path))
        if data.get("fingerprint") != text:
            return None
        verdict = parse(data)
    except ValueError:  # damaged: it will be written again
        return None
    if verdict.code == "probe_timeout" and settings.get("TRUENO_PROBE_TIMEOUT") > verdict.limit:
        return None  # it has more time now
    holds = FAILED if verdict.code != "probe_timeout" else TIMED_OUT
    if not verdict.ok and not 0 <= time.time() - verdict.time < holds:
        return None
    return verdict


def keep(manifest: Manifest, verdict: Verdict, text: str) -> None:
    """Keep a verdict for the fingerprint that the backend had when it was tried."""
    path = _file(manifest.name, text)
    if path is None:
        return
    from trueno import cachedir  # start-up
    from trueno.sealed import seal  # start-up

    if cachedir.write(path, seal({"fingerprint": text, **verdict.plain()})):
        with suppress(OSError):
            others = [p for p in path.parent.glob(f"{manifest.name}-????????.json") if p != path]
            others.sort(key=lambda p: p.stat().st_mtime_ns, reverse=True)
            for old in others[KEPT - 1 :]:
                old.unlink()


def drop(manifest: Manifest) -> None:
    """Forget what was kept for this backend as it is now: it turned out to be wrong."""
    path = _file(manifest.name, fingerprint(manifest))
    if path is not None:
        with suppress(OSError):
            path.unlink()


def _file(name: str, text: str) -> Any:
    from trueno import cachedir  # start-up

    folder = cachedir.folder("probes")
    return None if folder is None else folder / f"{name}-{crc32(text.encode('utf-8', 'surrogateescape')):08x}.json"
