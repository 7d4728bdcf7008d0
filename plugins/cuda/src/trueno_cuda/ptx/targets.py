"""Architectures, and the lowest `.version` that each instruction needs there.

A driver refuses text of a newer version than its own, so a kernel asks for no more than it uses.
All figures were found by bisection with ptxas 13.0; `tests/unit/cuda/ptx/test_targets.py` repeats that.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from trueno_cuda.ptx.errors import BuildError

Version = tuple[int, int]
KIB: Final = 1024
STATIC_SHARED: Final = 48 * KIB
"""Bytes that a block may declare statically; the rest must be dynamic, and the launcher has to request it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One architecture.  shared: bytes that a block may have.  special: `a` where it runs on this one only."""

    name: str
    version: Version
    shared: int

    @property
    def number(self) -> int:
        return int(self.name.removeprefix("sm_").rstrip("a"))

    @property
    def clusters(self) -> bool:
        """Whether blocks may run together, and read each other's shared memory."""
        return self.number >= 90

    @property
    def special(self) -> bool:
        return self.name.endswith("a")


TARGETS: Final = {
    t.name: t
    for t in (
        Target("sm_75", (6, 3), 64 * KIB),
        Target("sm_80", (7, 0), 163 * KIB),
        Target("sm_86", (7, 1), 99 * KIB),
        Target("sm_89", (7, 8), 99 * KIB),
        Target("sm_90", (7, 8), 227 * KIB),
        Target("sm_90a", (8, 0), 227 * KIB),
        Target("sm_100", (8, 6), 227 * KIB),
        Target("sm_120", (8, 7), 99 * KIB),
    )
}

# Every row whose pattern is found in an instruction counts: the least architecture, and the version from there on
# (`=`: on that architecture only, newer ones have no version old enough to lack it).
_NEEDS = """
sm_75   6.5  ^ldmatrix|^mma\\.|^abs\\.f16|^cvt\\.pack
sm_75   7.0  ^tanh\\.|^ex2\\.approx\\.(ftz\\.)?b?f16
sm_75   7.4  L1::|L2::
sm_75   7.7  ^cvta\\.param
sm_80   7.0  ^cp\\.async|^redux|^mbarrier|^mma\\..*(bf16|tf32|f64|m16n8k16|m16n8k32)
sm_80   7.0  ^(add|sub|mul|fma|min|max|neg|abs)\\..*bf16
sm_80   7.0  ^cvt\\..*(bf16|tf32|f16x2)|^(min|max)\\..*(NaN|f16)|^fma\\.rn\\.(ftz\\.)?relu
sm_80   7.1  ^mbarrier\\.test_wait\\.parity|^cvt\\.f32\\.bf16
sm_80   7.4  ^createpolicy|L2::cache_hint|^discard|^applypriority
sm_89   =8.1 ^cvt\\..*(e4m3|e5m2)
sm_89   8.4  ^mma\\..*(e4m3|e5m2)
sm_90   7.8  ^(add|sub|mul|tanh|ex2|setp|atom|red)\\..*bf16|^cvt\\.rn\\.(bf16\\.[us]|tf32)|^cvt\\.rz\\.tf32
sm_90   7.8  ^stmatrix|^griddepcontrol|^mbarrier\\.try_wait|^barrier\\.cluster|^mapa
sm_90   7.8  ::cluster|\\.cluster\\b|%cluster|^\\.reqnctapercluster
sm_90   8.0  ^cp\\.(reduce\\.)?async\\.bulk|expect_tx|^elect|^fence\\.(proxy|mbarrier_init)|^prefetch\\.tensormap
sm_90   8.0  ^mbarrier\\.arrive\\.release\\.cluster|^barrier\\.cluster\\.\\w+\\.(acquire|release|relaxed)
sm_90   8.1  ^st\\.async|^red\\..*\\.v[248]\\.
sm_90a  8.0  ^wgmma|^setmaxnreg
sm_100  8.8  ^(ld|st)\\..*\\.v8\\.|^(min|max)3\\.
"""


@dataclass(frozen=True, slots=True)
class Need:
    """The requirements of an instruction that matches."""

    target: Target
    version: Version
    exact: bool
    pattern: re.Pattern[str]


def _parse(row: str) -> Need:
    arch, version, pattern = row.split()
    major, minor = version.lstrip("=").split(".")
    return Need(TARGETS[arch], (int(major), int(minor)), version.startswith("="), re.compile(pattern))


NEEDS: Final = tuple(_parse(row) for row in _NEEDS.strip().splitlines())


def target(arch: str) -> Target:
    if arch not in TARGETS:
        raise BuildError(f"arch {arch!r} is not known; known: {', '.join(TARGETS)}")
    return TARGETS[arch]


@cache
def required_version(instruction: str, where: Target) -> Version:
    """The lowest version that supports `instruction` on `where`; BuildError if it does not exist."""
    version = where.version
    for need in NEEDS:
        if not need.pattern.search(instruction):
            continue
        least = need.target
        if least.special and where is not least:
            raise BuildError(
                f"{instruction} exists on {least.name} alone; this kernel is built for {where.name}: say "
                f'build(arch="{least.name}")'
            )
        if where.number < least.number:
            raise BuildError(
                f"{instruction} needs {least.name} or newer; this kernel is built for {where.name}: say "
                f'build(arch="{least.name}")'
            )
        if where is least or not need.exact:
            version = max(version, need.version)
    return version
