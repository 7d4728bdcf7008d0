"""Matrix products of a warp (mma.sync, with ldmatrix and stmatrix) and of four warps (wgmma, on sm_90a alone).

A fragment is a list of values, one per register, in the order of the PTX ISA.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from trueno_cuda.ptx.collectives import Collectives
from trueno_cuda.ptx.errors import BuildError
from trueno_cuda.ptx.hazards import Region, Uniformity
from trueno_cuda.ptx.pointers import Index, Pointer
from trueno_cuda.ptx.types import (
    PACKS,
    Type,
    bf16x2,
    descriptor,
    e4m3x4,
    e5m2x4,
    f16x2,
    f32,
    f64,
    pred,
    s8x4,
    s32,
    tf32,
    u8x4,
    u32,
    u64,
)
from trueno_cuda.ptx.values import Value, Var, is_predicate, multiple

MMA: Final[dict[str, tuple[tuple[Type, ...], tuple[Type, ...], tuple[int, int, int]]]] = {
    # shape and kind: types that a and b may have, types that the accumulator may have, registers of a, b and it
    "m16n8k16 half": ((f16x2, bf16x2), (f32,), (4, 2, 4)),
    "m16n8k8 half": ((f16x2, bf16x2), (f32,), (2, 1, 4)),
    "m16n8k16 packed": ((f16x2,), (f16x2,), (4, 2, 2)),
    "m16n8k8 packed": ((f16x2,), (f16x2,), (2, 1, 2)),
    "m16n8k8 tf32": ((tf32,), (f32,), (4, 2, 4)),
    "m16n8k4 tf32": ((tf32,), (f32,), (2, 1, 4)),
    "m16n8k32 int8": ((s8x4, u8x4), (s32,), (4, 2, 4)),
    "m16n8k16 int8": ((s8x4, u8x4), (s32,), (2, 1, 4)),
    "m8n8k16 int8": ((s8x4, u8x4), (s32,), (1, 1, 2)),
    "m16n8k32 fp8": ((e4m3x4, e5m2x4), (f32,), (4, 2, 4)),
    "m8n8k4 f64": ((f64,), (f64,), (1, 1, 2)),
}
_OF_ELEMENT = {"f32": tf32, **PACKS}
"""The registers of a matrix of these elements."""

WGMMA_K: Final = {"f16": 16, "bf16": 16, "f32": 8, "s8": 32, "u8": 32, "e4m3": 32, "e5m2": 32}
"""Depth of one wgmma for each element: 32 bytes."""
SWIZZLES: Final = {0: 0, 128: 1, 64: 2, 32: 3}
"""Bytes of the swizzle, and its code in a matrix descriptor's bits 62 and 63."""


class TensorCores(Collectives):
    """Adds matrix products."""

    def mma(self, shape: str, acc: Sequence[Var], a: Sequence[Value], b: Sequence[Value]) -> None:
        """acc += a · b over a warp, a by rows and b by columns: `k.mma("m16n8k16", acc, a, b)`.

        acc: Vars of k.vars; a, b: packs such as f16x2, tf32 or f64, as many as in the table of shapes.
        BuildError: for another number or type of registers, and if not all lanes get here.
        """
        kinds = [sorted({v.type.name for v in part}) for part in (acc, a, b)]
        if not all(isinstance(v, Var) for v in acc):
            raise BuildError("k.mma: the accumulator must be Vars: acc = k.vars(f32, 4)")
        for name, (of_ab, of_acc, counts) in MMA.items():
            same = {v.type for v in a} <= set(of_ab) and {v.type for v in b} <= set(of_ab)
            if name.split()[0] != shape or not same or {v.type for v in acc} - set(of_acc):
                continue
            if counts != (len(a), len(b), len(acc)):
                raise BuildError(
                    f"k.mma {shape}: a, b and the accumulator have {', '.join(map(str, counts))} registers, "
                    f"not {len(a)}, {len(b)}, {len(acc)}"
                )
            mixed = len({v.type for v in (*a, *b)}) > 1
            if len(kinds[1]) > 1 or len(kinds[2]) > 1 or (mixed and a[0].type not in (s8x4, u8x4, e4m3x4, e5m2x4)):
                break
            return self._mma(shape, acc, a, b)
        shapes = ", ".join(dict.fromkeys(n.split()[0] for n, row in MMA.items() if {v.type for v in a} <= set(row[0])))
        raise BuildError(
            f"k.mma: no {shape} of a {'/'.join(kinds[1])}, b {'/'.join(kinds[2])}, accumulator {'/'.join(kinds[0])}; "
            f"for this a there is {shapes or 'none at all: use packs such as bf16x2'}"
        )

    def _mma(self, shape: str, acc: Sequence[Var], a: Sequence[Value], b: Sequence[Value]) -> None:
        self.path.require(Uniformity.WARP, "k.mma")
        out, left, right = _lane(acc[0].type), _lane(a[0].type), _lane(b[0].type)
        results = [self._written(v, v.type, *a, *b).text for v in acc]
        d = _set(results)
        operands = [d, _set([self.read(v) for v in a]), _set([self.read(v) for v in b]), d]
        self.emit(f"mma.sync.aligned.{shape}.row.col.{out}.{left}.{right}.{out}", *operands)

    # ---- matrices in shared memory --------------------------------------------------------------------

    def ldmatrix(self, tile: Pointer, index: Index, count: int = 4, *, transposed: bool = False) -> list[Value]:
        """1, 2 or 4 matrices of 8 rows of 16 bytes; each lane names the first element of a row.

        Lanes 0 to 7 name the rows of the first matrix, 8 to 15 those of the second.  transposed: 16-bit elements.
        BuildError: an index that is not known to be a multiple of 16 bytes.
        """
        place, kind = self._rows(tile, index, count, "read", "k.ldmatrix")
        values = [self.new(kind) for _ in range(count)]
        trans = ".trans" if transposed else ""
        self.emit(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", _set([v.text for v in values]), place)
        return values

    def stmatrix(self, tile: Pointer, index: Index, values: Sequence[Value], *, transposed: bool = False) -> None:
        """The inverse of `ldmatrix` (sm_90)."""
        place, kind = self._rows(tile, index, len(values), "write", "k.stmatrix")
        texts = [self.operand(v, kind) for v in values]
        trans = ".trans" if transposed else ""
        self.emit(f"stmatrix.sync.aligned.m8n8.x{len(values)}{trans}.shared.b16", place, _set(texts))

    def _rows(self, tile: Pointer, index: Index, count: int, how: str, what: str) -> tuple[str, Type]:
        if tile.root.space != "shared" or tile.element.name not in _OF_ELEMENT:
            raise BuildError(f"{what}: {tile} is not shared memory of f16, bf16, f32 or 8-bit elements")
        if count not in (1, 2, 4):
            raise BuildError(f"{what}: {count} matrices; 1, 2 or 4 are wanted")
        self.path.require(Uniformity.WARP, what)
        row = 16 // tile.element.bytes
        at = self.flat(tile, index)
        divisor = min(tile.multiple, multiple(at))
        if divisor % row:
            raise BuildError(
                f"{what}: a row starts at a multiple of {row} {tile.element} (16 bytes), and the index is only known "
                f"to be one of {divisor}; multiply by a constant, or promise it with k.multiple_of(i, {row})"
            )
        self.in_bounds(tile, at, row)
        if tile.region is not None:
            self.path.touch(how, tile.region)
        return self.place_of(tile, at), _OF_ELEMENT[tile.element.name]

    # ---- wgmma ----------------------------------------------------------------------------------------

    def matrix(self, tile: Pointer, index: Index = 0, *, leading: int = 1, stride: int, swizzle: int = 128) -> Value:
        """Describe a matrix in shared memory to wgmma.

        leading, stride: elements from one core matrix to the next along the depth and across it (PTX ISA, "matrix
        descriptor"); with a swizzle, rows of `swizzle` bytes lie one below the other and `leading` is not used.
        """
        if swizzle not in SWIZZLES:
            raise BuildError(f"k.matrix: swizzle={swizzle} is not one of {', '.join(map(str, SWIZZLES))} bytes")
        size = tile.element.bytes
        if tile.root.space != "shared" or stride * size % 16 or (not swizzle and leading * size % 16):
            raise BuildError(f"k.matrix: {tile}, leading {leading}, stride {stride}: shared memory, by 16 bytes")
        tile.root.align = max(tile.root.align, 8 * swizzle, 128)
        address = self.address(tile, self.flat(tile, index))
        offset, wide, word = (
            self.new(u32, address.uniformity),
            self.new(u64, address.uniformity),
            self.new(descriptor, address.uniformity),
        )
        self.emit("bfe.u32", offset.text, address.text, "4", "14")  # addresses are given in units of 16 bytes
        self.emit("cvt.u64.u32", wide.text, offset.text)
        lead = max(leading * size // 16, 1) & 0x3FFF
        fixed = SWIZZLES[swizzle] << 62 | (stride * size // 16 & 0x3FFF) << 32 | lead << 16
        self.emit("or.b64", word.text, wide.text, f"0x{fixed:016X}")
        self._matrices[word.text] = tile.region
        return word

    def deeper(self, matrix: Value, elements: int, kind: Type) -> Value:
        """The same matrix, `elements` further on along its depth."""
        if matrix.type is not descriptor or elements * kind.bytes % 16:
            raise BuildError(f"k.deeper: {matrix} by {elements} {kind}: a k.matrix, by whole 16 bytes")
        result = self.new(descriptor, matrix.uniformity)
        self.emit("add.u64", result.text, self.read(matrix), str(elements * kind.bytes // 16))
        self._matrices[result.text] = self._matrices.get(matrix.text)
        return result

    @cached_property
    def _matrices(self) -> dict[str, Region | None]:
        """Which shared memory each matrix descriptor names."""
        return {}

    def wgmma_fence(self) -> None:
        """Needed before the first wgmma, and whenever its registers have changed since."""
        self.path.require(Uniformity.WARP, "k.wgmma_fence")
        self.emit("wgmma.fence.sync.aligned")
        self._wgmma["fenced"] = True

    def wgmma(
        self, shape: str, acc: Sequence[Var], a: Value | Sequence[Value], b: Value, of: Type,
        *, accumulate: Value | bool = True, transposed: tuple[bool, bool] = (False, False),
    ) -> None:  # fmt: skip
        """acc = a · b, plus acc where `accumulate`: over four warps, asynchronously.

        shape: m64nNkK, N a multiple of 8 up to 256; acc: N / 2 Vars; a, b: `k.matrix`, or a fragment of 4 registers
        for a; of: the element's type.  transposed: a or b is stored transposed in shared memory (16-bit elements only).
        The Vars may be used again after k.wgmma_commit() and k.wgmma_wait(n) that waits for it.
        """
        n, depth = _shape(shape)
        whole = WGMMA_K.get(of.name)
        if n % 8 or not 8 <= n <= 256 or depth != whole:
            raise BuildError(f"k.wgmma {shape}: m64nNk{whole} is wanted for {of}, N a multiple of 8 up to 256")
        kind = s32 if of.name in ("s8", "u8") else f32
        if len(acc) != n // 2 or any(type(v) is not Var or v.type is not kind for v in acc):
            raise BuildError(f"k.wgmma {shape}: the accumulator is k.vars({kind}, {n // 2})")
        if not self._wgmma.get("fenced"):
            raise BuildError("k.wgmma: k.wgmma_fence() must come first, after the last change of its registers")
        if self.shape is not None and self.threads % 128:
            raise BuildError(f"k.wgmma takes four whole warps; the block has {self.threads} threads")
        self.path.require(Uniformity.WARP, "k.wgmma")
        flag = accumulate if isinstance(accumulate, Value) else self._flag(accumulate)
        if not is_predicate(flag):
            raise BuildError(f"k.wgmma: accumulate={flag!r} is not a predicate")
        for var in acc:
            if not var.busy:
                self._written(var, kind)
        left = self.operand(a, descriptor) if isinstance(a, Value) else self._fragment(a, of)
        for matrix in (a, b):
            region = self._matrices.get(matrix.text) if isinstance(matrix, Value) else None
            if region is not None:
                self.path.touch("fetch", region)
        element = "tf32" if of is f32 else of.name
        operands = [_set([v.text for v in acc]), left, self.operand(b, descriptor), self.read(flag)]
        if kind is f32:
            operands += ["1", "1"]
        if of.bits == 16:
            operands += [str(int(t)) for t in (transposed[1:] if not isinstance(a, Value) else transposed)]
        elif any(transposed):
            raise BuildError(f"k.wgmma: {of} cannot be transposed, only 16-bit elements can")
        self.emit(f"wgmma.mma_async.sync.aligned.{shape}.{kind}.{element}.{element}", *operands)
        for var in acc:
            var.busy = True
        self._products[-1].extend(acc)

    def _fragment(self, a: Sequence[Value], of: Type) -> str:
        if len(a) != 4:
            raise BuildError(f"k.wgmma: a in registers is 4 of them, not {len(a)}")
        return _set([self.operand(v, _OF_ELEMENT[of.name]) for v in a])

    @cached_property
    def _flags(self) -> dict[bool, Value]:
        return {}

    def _flag(self, accumulate: bool) -> Value:
        """A predicate that is the same in the whole kernel."""
        flags = self._flags
        if accumulate not in flags:
            flags[accumulate] = self.new(pred, Uniformity.BLOCK, top=True)
            self.prologue.append(f"setp.ne.u32 {flags[accumulate].text}, {int(accumulate)}, 0;")
        return flags[accumulate]

    def wgmma_commit(self) -> None:
        """Close a group of wgmma, for k.wgmma_wait to count."""
        self.emit("wgmma.commit_group.sync.aligned")
        self._wgmma["committed"] = True
        self._products.append([])

    def wgmma_wait(self, newest: int = 0) -> None:
        """Wait for all but the `newest` committed groups; the accumulators that no newer one has can be used again."""
        if not self._wgmma.get("committed"):
            raise BuildError("k.wgmma_wait: nothing was committed; k.wgmma_commit() ends a group")
        self.emit("wgmma.wait_group.sync.aligned", str(newest))
        *groups, opened = self._products
        done = groups[: max(len(groups) - newest, 0)]
        kept = {id(var) for group in (*groups[len(done) :], opened) for var in group}
        for var in (var for group in done for var in group if id(var) not in kept):
            var.busy = False
        self._products[:] = [*groups[len(done) :], opened]
        if newest == 0:
            self._wgmma["fenced"] = False

    @cached_property
    def _products(self) -> list[list[Var]]:
        """The accumulators of each committed group that may be in flight, and of the one that is not committed yet."""
        return [[]]

    @cached_property
    def _wgmma(self) -> dict[str, object]:
        return {}

    def set_max_registers(self, how: str, count: int) -> None:
        """`inc` or `dec` the registers of this warpgroup's threads, when warps have different roles (sm_90a)."""
        if how not in ("inc", "dec") or count % 8 or not 24 <= count <= 256:
            raise BuildError(f"k.set_max_registers({how!r}, {count}): inc or dec, a multiple of 8 from 24 to 256")
        self.emit(f"setmaxnreg.{how}.sync.aligned.u32", str(count))


def _shape(shape: str) -> tuple[int, int]:
    """N and K of m64nNkK."""
    try:
        n, k = shape.removeprefix("m64n").split("k")
        return int(n), int(k)
    except ValueError:
        raise BuildError(f"k.wgmma: {shape!r} is not a shape m64nNkK") from None


def _lane(kind: Type) -> str:
    return kind.name if kind.lane is None else kind.lane.name


def _set(texts: Sequence[str]) -> str:
    return f"{{{', '.join(texts)}}}"
