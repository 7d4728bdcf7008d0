"""What Numba compiles for in this process: the CPU, its features, and the options that change code.

Numba makes its target once a process, with its first dispatcher, and never says afterwards for which CPU.  Its
configuration does not say it either: every compilation reads the environment again, if any of `NUMBA_*` has changed,
and sets back what was put there.  So the target is made here, before a dispatcher of ours, and what it was made of is
remembered.  Importing this imports no Numba.
"""

import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from trueno_simd.llvm import elsewhere

HARMLESS = re.compile(
    r"_|.*CUDA|.*THREAD|.*CACHE|DUMP_|DEBUG(_PRINT_.*|_TYPEINFER|_FRONTEND)?$|TRACE$|CHROME_TRACE$|HTML$|ANNOTATE$"
    r"|HIGHLIGHT_DUMPS$|DIFF_IR$|COLOR_SCHEME$|SHOW_HELP$|FULL_TRACEBACKS$|DEVELOPER_MODE$|ALWAYS_WARN_"
    r"|DISABLE_PERFORMANCE_WARNINGS$|PARALLEL_DIAGNOSTICS$|GDB_BINARY$|LLVM_PASS_TIMINGS$|CPU_(NAME|FEATURES)$|ENABLE_AVX$"
)
"""Of Numba's configuration, what changes no code, or is said by the target.  What a later Numba adds counts."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target that was made.  cpu: None for the host's, "" if it cannot be known; features: LLVM's words."""

    cpu: str | None
    features: str
    options: str


_made: Target | None = None


def made() -> Target | None:
    """The target that Numba has made, or None if it can still be told."""
    global _made
    if _made is None:
        registry: Any = sys.modules.get("numba.core.registry")
        # A lazily made attribute: looking it up through the class would make it.
        target: Any = getattr(registry, "cpu_target", None)
        context = None if target is None else vars(target).get("_toplevel_target_context")
        if context is None:
            return None
        codegen, config = context.codegen(), elsewhere.module("numba.core.config")
        # Another library's function may have been compiled long ago, and the configuration been read again.
        unchanged = codegen._get_host_cpu_features() == codegen._tm_features
        _made = Target(config.CPU_NAME if unchanged else "", codegen._tm_features, options())
    return _made


def tell(cpu: str, features: str) -> Target:
    """Make Numba compile for `cpu`.  Its target is created at once, so that it cannot change any more."""
    # Set on the module, not in the environment, which is the user's and reaches child processes.  Both words are
    # needed: without the second, the host's features are added to the named CPU.
    config: Any = elsewhere.module("numba.core.config")
    config.CPU_NAME, config.CPU_FEATURES = cpu, features
    return make()


def make() -> Target:
    """The target, which is made if it is not."""
    if (target := made()) is None:
        context: Any = elsewhere.module("numba.core.registry").cpu_target.target_context
        assert context is not None
        target = made()
        assert target is not None
    return target


def setting() -> tuple[str | None, str | None, bool]:
    """Numba's CPU name, features and AVX switch: from its configuration if imported, else as it will read them."""
    config: Any = sys.modules.get("numba.core.config")
    if config is not None and hasattr(config, "CPU_NAME"):
        return config.CPU_NAME, config.CPU_FEATURES, bool(config.ENABLE_AVX)
    name, words = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if words is None and name is not None and name.lower() == "generic":
        words = ""  # Numba's own rule
    return name, words, os.environ.get("NUMBA_ENABLE_AVX", "1").strip() != "0"


def disabled() -> bool:
    """Whether Numba is told to compile nothing."""
    config: Any = sys.modules.get("numba.core.config")
    if config is not None and hasattr(config, "DISABLE_JIT"):
        return bool(config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0").strip() not in ("", "0")


def options() -> str:
    """Numba's options that change code, as they are now."""
    config = vars(elsewhere.module("numba.core.config"))
    return " ".join(
        f"{name}={config[name]!r}" for name in sorted(config) if name.isupper() and not HARMLESS.match(name)
    )
