"""An entry before it is compiled: its control flow, and the location of each variable in its space."""

from functools import cached_property

from trueno_cuda.ptx.emulate.control import Flow
from trueno_cuda.ptx.emulate.effects import accumulates, written
from trueno_cuda.ptx.emulate.inline import inlined
from trueno_cuda.ptx.emulate.memory import SHARED_BASE, Allocation
from trueno_cuda.ptx.emulate.opcodes import form_of
from trueno_cuda.ptx.emulate.provenance import Provenance
from trueno_cuda.ptx.syntax.errors import PtxError
from trueno_cuda.ptx.syntax.limits import too_many
from trueno_cuda.ptx.syntax.tree import Function, Instruction, Program, Variable
from trueno_cuda.ptx.syntax.types import TYPES


class Layout:
    """What is known of an entry from its text alone.  offsets: each variable's byte in its space."""

    def __init__(self, program: Program, function: Function) -> None:
        self.name = function.name
        self.program = program
        self.function = flat = inlined(program, function)
        self.params = flat.params
        self._lay_out(program, flat)
        codes = [i for i in flat.body if isinstance(i, Instruction)]
        for ins in codes:
            form_of(ins)
        self.warpgroups = any(i.opcode == "wgmma" for i in codes)
        self.uses_mbarrier = any(i.opcode == "mbarrier" or any(m.startswith("mbarrier") for m in i.mods) for i in codes)
        self.granule = self._granule(codes)
        self.accumulators = [r for i in codes if accumulates(i) for r in written(i)]
        keep = 0
        for r in self.accumulators:
            keep |= 1 << r.index
        self.flow = Flow(flat.body, keep)
        self.registers = flat.registers

    def _lay_out(self, program: Program, function: Function) -> None:
        self.offsets: dict[int, int] = {}
        at = 0
        for p in function.params:
            at = -(-at // p.align) * p.align
            self.offsets[id(p)] = at
            at += p.size
        self.param_size = at
        _check_room(function, "param", at)
        entry = {id(p) for p in function.params}
        at = 0
        for v in function.variables:
            if v.space in ("local", "param") and id(v) not in entry:
                at = -(-at // v.align) * v.align
                self.offsets[id(v)] = at
                at += v.size
        self.local_size = -(-at // 16) * 16
        _check_room(function, "local", at)
        shared = [v for v in (*program.variables, *function.variables) if v.space == "shared"]
        at = 0
        for v in [v for v in shared if not (v.extern or v.size == 0)]:
            at = -(-at // v.align) * v.align
            self.offsets[id(v)] = at
            at += v.size
        self.static_shared = at
        _check_room(function, "shared", at)
        dynamic = [v for v in shared if v.extern or v.size == 0]
        for v in dynamic:
            at = -(-at // max(v.align, 16)) * max(v.align, 16)
        for v in dynamic:
            self.offsets[id(v)] = at
        self.shared_before_dynamic = at
        self.shared_variables: list[Variable] = sorted(shared, key=lambda v: self.offsets[id(v)])
        self.shared_arrays: dict[Variable, Allocation] = {}
        for v in shared:
            if v not in dynamic:
                start = SHARED_BASE + self.offsets[id(v)]
                self.shared_arrays[v] = Allocation(v.name, start, v.size, "", v.type.bytes, start, start + v.size)

    def shared_name(self, offset: int, ins: Instruction) -> tuple[str | None, str]:
        """The shared variable that holds a byte, and the place in words: in elements, as `ins` accesses them."""
        variable = None
        for v in self.shared_variables:
            if self.offsets[id(v)] <= offset:
                variable = v
        if variable is None:
            return None, f"shared byte {offset}"
        start = offset - self.offsets[id(variable)]
        size = next((TYPES[m].bytes for m in reversed(ins.mods) if m in TYPES), 1)
        if size == 1 or start % size:
            return variable.name, f"byte {start} of {variable.name}"
        return variable.name, f"{variable.name}[{start // size}]"

    def _granule(self, codes: list[Instruction]) -> int:
        """Bytes that the shadow of shared memory tells apart: the narrowest access."""
        size = 4
        for i in codes:
            if i.opcode in ("ld", "st", "atom", "red") and not {"global", "param", "const", "local"} & set(i.mods):
                size = min(size, *(TYPES[m].bytes for m in i.mods if m in TYPES and TYPES[m].bits >= 8), 4)
        return size

    def source(self, ins: Instruction) -> str:
        """The line of the source that an instruction comes from, as `add.py:12`, where the text says so."""
        if ins.written is None:
            return ""
        file, line = ins.written
        return f"{self.program.files.get(file, 'source')}:{line}"

    @cached_property
    def provenance(self) -> Provenance:
        return Provenance(self.flow.instructions)


def _check_room(function: Function, space: str, size: int) -> None:
    wrong = too_many(space, size)
    if wrong:
        raise PtxError(wrong, function.line, function.name)
