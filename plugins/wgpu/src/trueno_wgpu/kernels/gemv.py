"""Matrix-vector products: bound by how fast the matrix is read, so every invocation keeps several vec4s in flight.

    row_dispatches      y[i] = Σ_k a[i,k] x[k]: lanes of a workgroup share rows, and add up through workgroup memory
    column_dispatches   y[j] = Σ_k x[k] a[k,j]: an invocation owns four columns, and several take turns along k

Both take up to three vectors at once, so that a matrix is read once for all.  Where there are too few rows or columns
to fill a GPU, k is split over workgroups, and a second pass adds up.
"""

import struct
from dataclasses import dataclass
from functools import cache

from trueno.backend import Call, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import INVOCATIONS, Dispatch, Shape, added, product_kernel
from trueno_wgpu.kernels.memory import Band, bands
from trueno_wgpu.kernels.store import PARTIAL, PLAIN, Store
from trueno_wgpu.kernels.table import KERNELS, RATES

MOST_VECTORS = 3
FILLING = 1024
"""Workgroups that keep a large GPU's memory busy."""
LEAST = 8192
"""Elements that a workgroup reads at least, where k is split."""
MOST_SPLITS = 128


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a workgroup divides its work."""

    across: int
    """Invocations side by side: along a row, or over columns."""
    rows: int
    """Rows that an invocation sums, of a product along rows."""
    ahead: int
    """Reads of each row, or of a column, before the first is used."""


ROWS = Lanes(across=64, rows=1, ahead=4)
WIDE_ROWS, WIDE = Lanes(across=256, rows=1, ahead=2), 2048
"""Lanes of rows from so many elements on, a workgroup a row: 2.0 TB/s on an H200 at 4096², where 64 lanes gave 1.75."""
COLUMNS = Lanes(across=32, rows=1, ahead=8)

HEAD = """\
struct Sizes {
    alpha: f32,
    m: u32, k: u32, begin: u32, end: u32, share: u32, splits: u32, add: u32,
    groups: u32, skip: u32, first: u32, pitch: u32,
GIVEN}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<KIND>;
@group(0) @binding(2) var<storage, read> x: array<KIND_X>;
@group(0) @binding(3) var<storage, read_write> out: array<KIND_OUT>;
"""
START = """\
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= sizes.groups) { return; }
    let split = group % sizes.splits;
    let begin = sizes.begin + split * sizes.share;
    let end = min(begin + sizes.share, sizes.end);
"""


@cache
def rows_text(lanes: Lanes, width: int, vectors: int, upright: bool, store: Store) -> str:
    """y[v,i] = Σ_k a[i,k] x[v,k]; widths of 4 read vec4s, and then begin and end are multiples of 4."""
    kind = "f32" if width == 1 else "vec4<f32>"
    across, rows = lanes.across, lanes.rows
    teams = INVOCATIONS // across
    sums = [(r, v) for r in range(rows) for v in range(vectors)]
    head = store.sizes(HEAD).replace("KIND_X", kind).replace("KIND_OUT", "f32").replace("KIND", kind)
    lines = [head, store.declarations(4), f"var<workgroup> sums: array<array<f32, {INVOCATIONS}>, {len(sums)}>;\n"]
    lines += [store.function(1, adds=True), START]
    lines += [f"    let lane = me % {across}u;", f"    let team = group / sizes.splits * {teams}u + me / {across}u;"]
    w = f"{width}u"
    for r in range(rows):
        lines.append(f"    let row{r} = team * {rows}u + {r}u;")  # past the last row: the last again, not stored
        lines.append(f"    let a{r} = min(row{r}, sizes.m - 1u) * sizes.k / {w};")
    lines += [f"    var s{r}_{v} = {kind}();" for r, v in sums]
    lines += [f"    var p = begin / {w} + lane;", f"    let stop = end / {w};"]

    def turn(ahead: int) -> list[str]:
        lines = []
        for j in range(ahead):
            at = f"p + {j * across}u" if j else "p"
            lines += [f"        let x{v}_{j} = x[{v}u * (sizes.k / {w}) + {at}];" for v in range(vectors)]
            lines += [f"        let b{r}_{j} = a[a{r} + {at}];" for r in range(rows)]
        for j in range(ahead):
            lines += [f"        s{r}_{v} = fma(b{r}_{j}, x{v}_{j}, s{r}_{v});" for r, v in sums]
        return lines

    if lanes.ahead > 1:
        reach = (lanes.ahead - 1) * across
        lines += [f"    for (; p + {reach}u < stop; p += {lanes.ahead * across}u) {{", *turn(lanes.ahead), "    }"]
    lines += [f"    for (; p < stop; p += {across}u) {{", *turn(1), "    }"]
    for i, (r, v) in enumerate(sums):
        s = f"s{r}_{v}"
        lines.append(f"    sums[{i}][me] = {s if width == 1 else f'({s}.x + {s}.y) + ({s}.z + {s}.w)'};")
    half = across // 2
    while half:
        lines += ["    workgroupBarrier();", f"    if (lane < {half}u) {{"]
        lines += [f"        sums[{i}][me] += sums[{i}][me + {half}u];" for i in range(len(sums))]
        lines.append("    }")
        half //= 2
    lines.append("    if (lane == 0u) {")
    base = "split * sizes.m * VECTORSu + ".replace("VECTORS", str(vectors)) if store.partial else "sizes.first + "
    for i, (r, v) in enumerate(sums):
        at = f"{base}{v}u * {'sizes.m' if store.partial else 'sizes.pitch'} + row{r}"
        place = f"{v}u, row{r}" if vectors > 1 else f"{at}, 0u" if upright else f"0u, {at}"
        lines.append(f"        if (row{r} < sizes.m) {{ store({at}, {place}, sums[{i}][me]); }}")
    lines.append("    }")
    return "\n".join(line for line in lines if line) + "\n" + store.end + "}\n"


@cache
def columns_text(lanes: Lanes, width: int, vectors: int, store: Store) -> str:
    """y[v,j] = Σ_k x[v,k] a[k,j], of m columns; rows before `skip` are not bound."""
    kind = "f32" if width == 1 else "vec4<f32>"
    across, ahead = lanes.across, lanes.ahead
    down = INVOCATIONS // across
    head = store.sizes(HEAD).replace("KIND_X", "f32").replace("KIND_OUT", kind).replace("KIND", kind)
    lines = [head, store.declarations(4), f"var<workgroup> sums: array<array<{kind}, {INVOCATIONS}>, {vectors}>;\n"]
    lines += [store.function(width, adds=True), START]
    lines += [f"    let lane = me / {across}u;", f"    let mine = group / sizes.splits * {across}u + me % {across}u;"]
    lines += [f"    let columns = sizes.m / {width}u;", "    let column = min(mine, columns - 1u);"]
    lines += [f"    var s{v} = {kind}();" for v in range(vectors)]
    lines += ["    var p = begin + lane;"]

    def turn(count: int) -> list[str]:
        lines = []
        for j in range(count):
            at = f"p + {j * down}u" if j else "p"
            lines.append(f"        let a{j} = a[({at} - sizes.skip) * columns + column];")
            lines += [f"        let x{v}_{j} = {kind}(x[{v}u * sizes.k + {at}]);" for v in range(vectors)]
        for j in range(count):
            lines += [f"        s{v} = fma(a{j}, x{v}_{j}, s{v});" for v in range(vectors)]
        return lines

    if ahead > 1:
        lines += [f"    for (; p + {(ahead - 1) * down}u < end; p += {ahead * down}u) {{", *turn(ahead), "    }"]
    lines += [f"    for (; p < end; p += {down}u) {{", *turn(1), "    }"]
    lines += [f"    sums[{v}][me] = s{v};" for v in range(vectors)]
    half = down // 2
    while half:
        lines += ["    workgroupBarrier();", f"    if (lane < {half}u) {{"]
        lines += [f"        sums[{v}][me] += sums[{v}][me + {half * across}u];" for v in range(vectors)]
        lines.append("    }")
        half //= 2
    lines.append("    if (lane == 0u && mine < columns) {")
    for v in range(vectors):
        base = f"split * sizes.m * {vectors}u + {v}u * sizes.m" if store.partial else f"{v}u * sizes.m"
        place = f"{v}u, mine * {width}u"
        lines.append(f"        store({base} + mine * {width}u, {place}, sums[{v}][me]);")
    lines.append("    }")
    return "\n".join(line for line in lines if line) + "\n" + store.end + "}\n"


def _splits(groups: int, k: int, elements: int, limits: Limits) -> int:
    """Parts of k: enough to fill a GPU, each worth its workgroup.  elements: read by a workgroup in all."""
    if limits.trips:
        return 1
    return max(min(FILLING // groups, elements // LEAST, MOST_SPLITS, k), 1)


def _trips(limits: Limits, ahead: int, elements: int, k: int) -> int:
    """Steps of k that a dispatch may make; elements: steps of k of one trip of all lanes."""
    return max((int(limits.trips * 0.9) - 2 * ahead - 16) * elements, elements) if limits.trips else k


def row_dispatches(
    op: str, m: int, k: int, limits: Limits, store: Store = PLAIN, *, vectors: int = 1, a: int = 0, x: int = 1,
    first: int = 0, pitch: int = 0, upright: bool = False, lanes: Lanes | None = None, splits: int = 0,
) -> list[Dispatch]:  # fmt: skip
    """Steps of y[v,i] = Σ_k a[i,k] x[v,k]; a, x: which operands they are.  first, pitch: where y lies in the result.

    upright: to an epilogue the one y is a column of a matrix, not a vector.
    """
    lanes = lanes or (WIDE_ROWS if vectors == 1 and k >= WIDE else ROWS)
    width = 4 if k % 4 == 0 else 1
    if k // width < lanes.across:  # a short row has no work for so many
        lanes = Lanes(max(1 << max((k // width).bit_length() - 1, 0), 4), lanes.rows, 1)
    last = first + (vectors - 1) * (pitch or m) + m
    near = last <= limits.binding // 4  # y is bound as one
    if not near and (vectors > 1 or first):
        raise KernelError(
            f"{op}: the result has {last * 4} bytes, and this adapter binds {limits.binding}; compute parts of it"
        )
    planned = []
    for top, height in bands(op, "a", m, (k * 4,) if near else (k * 4, 4), limits):
        band = None if height == m else Band(top, height, k * 4)
        out = None if height == m or near else Band(top, height, 4)
        begins = first + top if near else first
        rows = INVOCATIONS // lanes.across * lanes.rows
        groups = -(-height // rows)
        parts = splits or _splits(groups, k // (width * lanes.across), k * rows, limits)
        budget = _trips(limits, lanes.ahead, lanes.across * width * lanes.ahead, k)
        for begin in range(0, k, budget):
            end = min(begin + budget, k)
            share = -(-(end - begin) // (parts * width)) * width
            count = -(-(end - begin) // share)
            final = end == k
            after = store if final else PLAIN
            mine = after if count == 1 else PARTIAL
            add = begin > 0
            words = (height, k, begin, end, share, count, add and count == 1, groups * count, 0, begins, pitch or m)
            then = None
            if count > 1:
                n = 1 if upright else height
                above, left = (begins, 0) if upright else (0, begins)
                each = height * vectors
                then = added(each, each, count, n, after, limits.groups, add=add, first=begins,
                             pitch=1 if upright else pitch or m, above=above, left=left)  # fmt: skip
            shader = Shader(
                f"rows {lanes}", rows_text(lanes, width, vectors, upright, mine), (False, False, True, *mine.writes)
            )
            planned.append(
                Dispatch(
                    shader,
                    struct.pack("<11I", *words),
                    fold(groups * count, limits.groups),
                    ((a, band), (x, None)),
                    out,
                    final,
                    count * height * vectors * 4 if count > 1 else 0,
                    then,
                )
            )
    return planned


def column_dispatches(
    op: str, vectors: int, m: int, k: int, limits: Limits, store: Store = PLAIN, *, x: int = 0, a: int = 1,
    lanes: Lanes | None = None, splits: int = 0,
) -> list[Dispatch]:  # fmt: skip
    """Steps of y[v,j] = Σ_k x[v,k] a[k,j], of m columns."""
    if m == 1 and vectors == 1:
        return row_dispatches(op, 1, k, limits, store, a=x, x=a)
    lanes = lanes or COLUMNS
    width = 4 if m % 4 == 0 else 1
    across = max(1 << min((m // width).bit_length() - 1, lanes.across.bit_length() - 1), 1)
    lanes = Lanes(across, 1, lanes.ahead if vectors == 1 else max(lanes.ahead // 2, 1))
    down = INVOCATIONS // across
    groups = -(-m // (width * across))
    parts = splits or _splits(groups, -(-k // down), k * width * across, limits)
    budget = _trips(limits, lanes.ahead, down * lanes.ahead, k)
    planned = []
    along = bands(op, "a", k, (m * 4,), limits)
    cuts = [(b, s, min(s + budget, b[0] + b[1])) for b in along for s in range(b[0], b[0] + b[1], budget)]
    for number, (b, begin, end) in enumerate(cuts):
        share = -(-(end - begin) // parts)
        count = -(-(end - begin) // share)
        final = number == len(cuts) - 1
        after = store if final else PLAIN
        mine = after if count == 1 else PARTIAL
        add = number > 0
        words = (m, k, begin, end, share, count, add and count == 1, groups * count, b[0], 0, m)
        each = vectors * m
        then = added(each, each, count, m, after, limits.groups, add=add) if count > 1 else None
        shader = Shader(
            f"columns {lanes}", columns_text(lanes, width, vectors, mine), (False, False, True, *mine.writes)
        )
        band = None if len(along) == 1 else Band(*b, m * 4)
        planned.append(
            Dispatch(
                shader,
                struct.pack("<11I", *words),
                fold(groups * count, limits.groups),
                ((a, band), (x, None)),
                None,
                final,
                count * each * 4 if count > 1 else 0,
                then,
            )
        )
    return planned


@KERNELS.add("matvec", rates=RATES)
def matvec(gpu: Gpu, call: Call) -> Kernel:
    """a[m,k] x[k] -> out[m]."""

    def make(store: Store, a: Shape, x: Shape, out: Shape) -> list[Dispatch] | None:
        if len(a) != 2 or x != a[1:] or out != a[:1]:
            return None
        return row_dispatches("matvec", *a, gpu.limits, store) if 0 not in a else []

    return product_kernel(gpu, call, make)


@KERNELS.add("vecmat", rates=RATES)
def vecmat(gpu: Gpu, call: Call) -> Kernel:
    """x[k] a[k,n] -> out[n]."""

    def make(store: Store, x: Shape, a: Shape, out: Shape) -> list[Dispatch] | None:
        if len(a) != 2 or x != a[:1] or out != a[1:]:
            return None
        return column_dispatches("vecmat", 1, a[1], a[0], gpu.limits, store) if 0 not in a else []

    return product_kernel(gpu, call, make)
