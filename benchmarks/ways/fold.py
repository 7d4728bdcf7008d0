"""One persistent kernel made of the kernels that a recording launches: each becomes a section of it.

    table     one step per launch: number of the section, grid, and the launch's parameters
    blocks    all are resident at once, and all go through every step: block i takes the blocks i, i + all, ... of the
              step's grid, and then arrives at a counter
    wait      `griddepcontrol.wait` of a section becomes a wait until all blocks have arrived at the end of the step
              before; what a kernel does before it waits overlaps with that step, as under programmatic launch

A section is the text of a kernel's body in a scope of its own, so that registers and labels keep their names.  Three
things change: parameters come from the table, the place in the grid from the step, and shared arrays lie in one dynamic
array, which all sections use in turn.  The body is not parsed: `trueno_cuda.ptx` prints each of these in one form only.

The wait spins, and is bounded: after `pieces.SPINS` polls, some seconds, it traps, and the launch ends with an error.
That happens where not all blocks are resident, which nothing here ensures but the caller's grid: a kernel of this kind
is safe only where nothing else runs on the GPU, and to ship one would take a cooperative launch.  The last block that
arrives clears the counter for the next launch.

Registers are those of the largest section and of the loop around it.  For a decode step of a 7B model on sm_90a that is
all that three blocks of 128 threads may have, 168, and 48 bytes a thread go to local memory.
"""

from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import Final, NamedTuple

import numpy as np
from trueno_cuda.ptx import TARGETS, Kernel, ptr, u32
from trueno_cuda.ptx.builder import DYNAMIC, Param
from trueno_cuda.ptx.kernel import OVERLAPPING, _declared
from trueno_cuda.ptx.types import TensorMap, Type

from benchmarks.ways.pieces import END, PLACE, START, WAIT

HEAD: Final = np.dtype([("section", "<u4"), ("x", "<u4"), ("y", "<u4"), ("blocks", "<u4")])
"""What a step begins with; the parameters follow, at their own offsets."""
ALIGN: Final = 16
ROOM: Final = 48 << 10
"""Bytes of shared memory that a section may have, where the caller does not know better."""
GRID_WAIT, NEXT_GRID, RETURN = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;", "ret;"
REFUSED: Final = {
    "mbarrier.": "it waits at mbarriers, which live as long as a block",
    "cluster": "its blocks meet in a cluster",
    "wgmma.": "wgmma takes all registers of a warp group",
    "tcgen05.": "tcgen05 has memory of a block's own",
    "setmaxnreg.": "its warps pass registers to each other",
    "cp.async.bulk": "bulk copies write behind the back of its barriers",
    ".nc.": "it reads through a cache that does not see what earlier sections write",
    ".sys": "it talks to other GPUs",
    "%nctaid.z": "it asks for the third side of its grid, which a step does not have",
    ".loc ": "it is built with lines of Python",
}
"""What the text of a section may not have, and why."""
PARAMS: Final = (
    Param("table", ptr(u32), 0, 8, ALIGN, read=True),
    Param("count", ptr(u32), 8, 8, 4, read=True, written=True),
    Param("steps", u32, 16, 4, 4),
    Param("stride", u32, 20, 4, 4),
)


class Step(NamedTuple):
    """One launch: what `Device.prepare` and the launch itself are given."""

    kernel: Kernel
    grid: tuple[int, int, int]
    numbers: tuple[int, ...]
    pointers: tuple[int, ...]
    floats: tuple[float, ...] = ()


def refusal(kernel: Kernel, threads: int, room: int = ROOM) -> str:
    """Why a kernel cannot be a section of one whose blocks have so many threads; empty if it can.

    room: bytes of shared memory of a block.
    """
    if TARGETS[kernel.arch].number < OVERLAPPING:
        return f"it is for {kernel.arch}, whose kernels do not wait for a grid themselves"
    if kernel.threads != (threads, 1, 1):
        have = " x ".join(map(str, kernel.threads)) if kernel.threads else "a number that the launch decides"
        return f"its blocks have other threads: {have}, not {threads}"
    if kernel.cluster is not None:
        return REFUSED["cluster"]
    if any(isinstance(p.type, TensorMap) for p in kernel.params):
        return "it takes tensor maps"
    if kernel.shared_bytes > room:
        return f"its shared memory, {kernel.shared_bytes} bytes, is more than {room}"
    lines = list(_lines(kernel))
    for word, reason in REFUSED.items():
        if any(word in line for line in lines):
            return reason
    if (returns := sum(line.endswith(RETURN) for line in lines)) != 1:
        return f"it returns in {returns} places"
    if lines.count(GRID_WAIT) > 1:
        return "it waits in several places, which threads of a block may not reach together"
    return ""


def kinds(steps: Sequence[Step]) -> list[Kernel]:
    """The different kernels of some steps, in the order in which they come: the sections of a folded kernel."""
    return list({_identity(step.kernel): step.kernel for step in steps}.values())


def folded(kernels: Sequence[Kernel], threads: int, resident: int) -> Kernel:
    """The kernel that has these as its sections, of which a multiprocessor is to hold `resident` blocks.

    Its parameters are the table, the counter, which must be 0 at first, and the steps and their stride (`table`).
    ValueError for a kernel that is refused but for its shared memory, and for different architectures.
    """
    for kernel in kernels:
        if reason := refusal(kernel, threads, kernel.shared_bytes):
            raise ValueError(f"{kernel.name} cannot be a section: {reason}")
    if len(arches := sorted({kernel.arch for kernel in kernels})) != 1:
        raise ValueError(f"kernels for {', '.join(arches) or 'no architecture'} make no kernel for one")
    version = max((k.version for k in kernels), key=lambda v: tuple(map(int, v.split("."))))
    name, shared = f"persistent_{len(kernels)}", max(kernel.shared_bytes for kernel in kernels)
    entries = ",\n".join(f"    {_declared(p)}" for p in PARAMS)
    branches = [f"    setp.eq.u32 %is, %section, {n};\n    @%is bra $section_{n};" for n in range(len(kernels))]
    pieces = [
        f"// {name}: {', '.join(kernel.name for kernel in kernels)}",
        f".version {version}\n.target {arches[0]}\n.address_size 64\n",
        f".extern .shared .align 128 .b8 {DYNAMIC}[];\n",
        f".visible .entry {name}(\n{entries}\n)",
        f".reqntid {threads}, 1, 1\n.minnctapersm {resident}\n{{",
        START, *branches, "    trap;",
        *(line for n, kernel in enumerate(kernels) for line in _section(n, kernel)),
        END, "}\n",
    ]  # fmt: skip
    return Kernel(
        name, "\n".join(pieces), arches[0], version, PARAMS, {}, (threads, 1, 1), threads, 0, shared, early=True
    )


def table(kernels: Sequence[Kernel], steps: Sequence[Step]) -> tuple[bytes, int]:
    """The table of steps for the kernel that `folded` makes of `kernels`, and the bytes from one step to the next.

    ValueError for a grid with sides that its kernel does not look at.
    """
    section = {_identity(kernel): n for n, kernel in enumerate(kernels)}
    longest = HEAD.itemsize + max(kernel.param_bytes for kernel in kernels)
    stride = -(-longest // ALIGN) * ALIGN
    rows = []
    for step in steps:
        x, y, z = step.grid
        if y * z > 1 and _flat(step.kernel):
            raise ValueError(f"{step.kernel.name}: a grid of {step.grid}, and the kernel looks along x alone")
        head = np.array((section[_identity(step.kernel)], x, y, x * y * z), HEAD).tobytes()
        rows.append((head + _packed(step)).ljust(stride, b"\0"))
    return b"".join(rows), stride


def _identity(kernel: Kernel) -> tuple[str, bool]:
    """Kernels of one text are one section, unless only some may read before they wait."""
    return kernel.key, kernel.early


def _flat(kernel: Kernel) -> bool:
    """Whether a kernel asks for its place along x alone, which spares its section two divisions."""
    return not any(word in kernel.text for word in ("%ctaid.y", "%ctaid.z", "%nctaid."))


def _packed(step: Step) -> bytes:
    """The parameters of a launch as the driver has them; floats that are too large become infinite, as there."""
    kernel, values = step.kernel, (*step.pointers, *step.numbers, *step.floats)
    memory = bytearray(kernel.param_bytes)
    for p, value in zip(kernel.params, values, strict=True):
        letter = "u"  # as of addresses
        if isinstance(p.type, Type):
            letter = "i" if p.type.kind == "s" else p.type.kind
        with np.errstate(over="ignore"):
            memory[p.offset : p.offset + p.bytes] = np.array(value, f"<{letter}{p.bytes}").tobytes()
    return bytes(memory)


def _lines(kernel: Kernel) -> Iterator[str]:
    """The lines of a kernel's body, without blanks around them."""
    text = kernel.text
    body = text[text.index("\n{\n") + 3 : text.rindex("}")]
    return (line.strip() for line in body.splitlines())


def _section(number: int, kernel: Kernel) -> Iterator[str]:
    """The lines of a section: a loop over the blocks of the step that are this block's."""
    yield f"// {kernel.name}\n$section_{number}:"
    yield "    mov.u32 %at_x, %block;" if _flat(kernel) else PLACE
    if not kernel.early or GRID_WAIT not in kernel.text:  # it may not read before the step before has ended
        yield WAIT
    yield "{"
    yield from _body(kernel)
    yield "}"
    yield "    add.u32 %block, %block, %everyone;\n    setp.ge.u32 %is, %block, %blocks;\n    @%is bra $arrive;"
    yield f"    bar.sync 0;\n    bra $section_{number};"  # shared memory is free again


def _body(kernel: Kernel) -> Iterator[str]:
    """The lines of a kernel's body as a section has them."""
    params = {f"[arg_{p.name}];": f"[%entry+{HEAD.itemsize + p.offset}];" for p in kernel.params}
    arrays, end = dict[str, int](), 0
    for line in _lines(kernel):
        opcode, _, rest = line.partition(" ")
        target, _, source = rest.partition(", ")
        if opcode == ".shared":  # .align 16 .b8 name[1024];
            _, align, _, array = rest.split()
            name, _, nbytes = array.removesuffix("];").partition("[")
            arrays[name] = -(-end // int(align)) * int(align)
            end = arrays[name] + int(nbytes)
        elif opcode.startswith("ld.param."):  # %r1, [arg_n];
            yield f"    {opcode.replace('.param.', '.global.')} {target}, {params[source]}"
        elif opcode == "mov.u32" and source.removesuffix(";") in arrays:  # %shared1, name;
            yield f"    mov.u32 {target}, {DYNAMIC};"
            yield f"    add.u32 {target}, {target}, {arrays[source.removesuffix(';')]};"
        elif line == GRID_WAIT:
            if kernel.early:
                yield indent(WAIT, "    ")
        elif line not in (NEXT_GRID, RETURN):
            yield f"    {_placed(line)}" if line and not line.startswith("$") else line


def _placed(line: str) -> str:
    """A line with the place and size of the step's grid for those of the launch."""
    for special, own in (("%ctaid.", "%at_"), ("%nctaid.", "%grid_")):
        line = line.replace(special, own)
    return line
