"""Pointers that know their address space and element, and arrays that also know their length.

Indices count elements.  Global addresses have 64 bits, shared ones 32; neither can be made from a number, turned into
the other, or used as one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, overload

from trueno_cuda.ptx.aliases import POINTER, instead
from trueno_cuda.ptx.errors import BuildError, UnknownName, suggestion
from trueno_cuda.ptx.hazards import Region
from trueno_cuda.ptx.types import Type, checked
from trueno_cuda.ptx.values import Emitter, Number, Value, multiple, plain, seen

Index = Value | int | tuple[Value | int, ...]

CACHE = {
    "ca": ".ca", "cg": ".cg", "cs": ".cs", "lu": ".lu", "cv": ".cv", "wb": ".wb", "wt": ".wt", "nc": ".nc",
    "no_allocate": ".L1::no_allocate", "evict_first": ".L1::evict_first", "evict_last": ".L1::evict_last",
    "evict_normal": ".L1::evict_normal", "evict_unchanged": ".L1::evict_unchanged",
    "l2_64": ".L2::64B", "l2_128": ".L2::128B", "l2_256": ".L2::256B",
}  # fmt: skip
"""Words of `cache=`, joined by blanks: `cache="nc no_allocate l2_128"`, in the order that PTX wants."""
ELEMENTS = "say .load(index), which gives a Value, and .store(index, value)"
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile")
OPTIONS = {
    "load": ("where", "other", "cache", "policy", "order", "scope"),
    "store": ("where", "cache", "policy", "order", "scope"),
    "atomic": ("where", "order", "scope"),
    "reduce": ("where", "order", "scope"),
}
MASKS = ("mask", "when", "predicate", "pred", "cond", "condition", "if_")
"""Other names of where=."""
SCOPES = {"block": "cta", "cluster": "cluster", "gpu": "gpu", "system": "sys"}


@dataclass(slots=True, eq=False)
class Root:
    """The origin of an address: a parameter or a declared array.

    align: bytes that its accesses need; read, written: whether any did.
    """

    name: str
    space: str
    align: int
    read: bool = False
    written: bool = False


@dataclass(slots=True, eq=False)
class Pointer:
    """Elements in one address space, from `address` on.

    multiple: a power of two that divides the distance from the root, in elements.  count: their number, if it
    is known.  region: what the builder checks for hazards, in shared memory.  offset: where it begins in that, as
    indices, each with the bytes that it counts.
    """

    k: "MemoryEmitter"
    element: Type
    root: Root
    address: Value
    multiple: int = 1 << 40
    count: int | None = None
    region: Region | None = None
    pitches: tuple[int, ...] = (1,)
    offset: tuple[tuple[object, int], ...] = ()

    def __repr__(self) -> str:
        return f"{self.root.name} ({self.root.space} {self.element})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        known = ("load", "store", "atomic", "reduce", "cast", "prefetch", "element")
        raise UnknownName(f"{self.root.name}.{name}: a pointer has no {name!r}{instead(name, POINTER, known)}")

    def __getitem__(self, index: Any) -> Any:
        raise BuildError(f"{self}[...]: {ELEMENTS}")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise BuildError(f"{self}[...] = ...: say .store(index, value)")

    def __add__(self, index: Index) -> "Pointer":
        """The pointer `index` elements further on: `(x + row * N).load(i)` computes the row once."""
        at = self.k.flat(self, index)
        self.k.in_bounds(self, at, 0)
        address = self.k.address(self, at)
        step = min(self.multiple, multiple(at))
        offset = (*self.offset, (seen(at), self.element.bytes))
        return Pointer(self.k, self.element, self.root, address, step, None, self.region, self.pitches, offset)

    def cast(self, element: Type) -> "Pointer":
        """The same memory as elements of another type: bytes as f16, f16 as f16x2."""
        element = checked(element, f"{self.root.name}.cast", f"{self.root.name}.cast(f16)")
        unit, count = self.multiple * self.element.bytes // element.bytes, self.count
        if not unit:
            raise BuildError(f"{self}: its address is a multiple of {self.multiple} only, not of a {element}")
        whole = None if count is None else count * self.element.bytes // element.bytes
        self.root.align = max(self.root.align, element.bytes)
        return Pointer(self.k, element, self.root, self.address, unit, whole, self.region, offset=self.offset)

    @overload
    def load(self, index: Index = 0, vec: None = None, **options: Any) -> Value: ...
    @overload
    def load(self, index: Index = 0, vec: int = 1, **options: Any) -> list[Value]: ...
    def load(self, index: Index = 0, vec: int | None = None, **options: Any) -> Value | list[Value]:
        """One element, or with `vec` a list of neighbours.

        where: a predicate; masked threads get `other`, zero unless given.  cache: words of CACHE, joined by blanks.
        policy: a k.l2_policy.  order, scope: `acquire`, `relaxed` or `volatile`, for a `block`, `cluster`, `gpu` or the
        `system`.
        BuildError: more than 16 bytes at once, an index that is not known to be a multiple of `vec`, an index beyond
        an array whose length is known.
        """
        if vec is not None and type(vec) is not int:
            raise BuildError(
                f"{self}: vec={vec!r} is not a Python int; an index of two dimensions is a tuple: .load((row, column))"
            )
        values = self.k.load(self, index, vec or 1, **_known(self, "load", options))
        return values[0] if vec is None else values

    def store(self, index: Index, values: "Value | Number | Sequence[Value | Number]", **options: Any) -> None:
        """One element, or a list of neighbours as one vector; options and errors as those of `load`.

        A Python number takes the element's type; a Value must have it.
        """
        values = plain(values)
        if not isinstance(values, (Value, int, float, Sequence)) or isinstance(values, str):
            raise BuildError(f"{self}: {values!r} is neither a value nor a list of values to store")
        several = list(values) if isinstance(values, Sequence) else [values]
        self.k.store(self, index, several, **_known(self, "store", options))

    def atomic(self, name: str, index: Index, *operands: Value | Number, **options: Any) -> Value:
        """Update an element atomically and return its old value: add min max and or xor inc dec exch cas.

        operands: one value, two for `cas` (what is expected, what is written).  where: masked threads get 0.
        order, scope: as those of `load`.  BuildError: for a type that the table of atomics does not have.
        """
        return self.k.atomic(self, name, index, operands, returns=True, **_known(self, "atomic", options))  # type: ignore[return-value]

    def reduce(self, name: str, index: Index, *operands: Value | Number, **options: Any) -> None:
        """Update an element atomically and return nothing, which is cheaper."""
        self.k.atomic(self, name, index, operands, returns=False, **_known(self, "reduce", options))

    def prefetch(self, index: Index, level: str = "L2") -> None:
        """Prefetch the cache line of an element, into `L2` or `L1`, without waiting."""
        self.k.emit(f"prefetch.{self.root.space}.{level}", self.k.place_of(self, self.k.flat(self, index)))


class Array(Pointer):
    """A declared array; with stages, one array per stage: `ring[i]`."""

    stages: int
    dynamic: int | None = None  # bytes from the start of dynamic shared memory

    @property
    def bytes(self) -> int:
        """Bytes of all its stages, a Python int."""
        return (self.count or 0) * self.element.bytes * self.stages

    def __len__(self) -> int:
        return self.count or 0

    def __getitem__(self, stage: Index) -> Pointer:
        k, size = self.k, self.count or 0
        if isinstance(stage, tuple) or (self.stages == 1 and not (isinstance(stage, int) and stage == 0)):
            raise BuildError(f"{self}[...]: {ELEMENTS}")
        if isinstance(stage, int):
            if not 0 <= stage < self.stages:
                raise BuildError(f"{self}[{stage}]: it has {self.stages} stages")
            name = str(stage)
        else:
            name = k.read(stage)
        whole = Pointer(k, self.element, self.root, self.address)
        at = stage * size if isinstance(stage, int) else k.apply("mul", stage, size)
        address = self.address if isinstance(stage, int) and stage == 0 else k.address(whole, at)
        region = self.region._replace(stage=name) if self.region else None
        return Pointer(k, self.element, self.root, address, multiple(size), self.count, region, self.pitches)


class MemoryEmitter(Emitter, Protocol):
    """The methods of the kernel under construction that pointers use; `Builder` has them."""

    def flat(self, pointer: Pointer, index: Index) -> Value | int:
        """A row and a column as one index."""

    def in_bounds(self, pointer: Pointer, index: Value | int, count: int) -> None:
        """BuildError if `count` elements from `index` on are known to be beyond the array."""

    def address(self, pointer: Pointer, index: Value | int) -> Value:
        """The address of an element, in a register."""

    def place_of(self, pointer: Pointer, index: Value | int) -> str:
        """`[register+bytes]` of an element."""

    def read(self, value: Value) -> str:
        """The register of a value that exists here."""

    def emit(self, instruction: str, *operands: str, guard: str = "") -> None:
        """Append one instruction."""

    @property
    def load(self) -> Callable[..., list[Value]]:
        """Emits `pointer.load(...)`, given the pointer and always how many; gives a list."""

    @property
    def store(self) -> Callable[..., None]:
        """Emits `pointer.store(...)`, given the pointer and always a list."""

    @property
    def atomic(self) -> Callable[..., Value | None]:
        """Emits `pointer.atomic(...)`, and with returns=False `pointer.reduce(...)`."""


def _known(pointer: Pointer, method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of an access; BuildError for an unknown one."""
    for name in options:
        if name not in OPTIONS[method]:
            hint = '; did you mean "where"?' if name in MASKS else suggestion(name, OPTIONS[method])
            choices = "" if hint else f"; it has {', '.join(OPTIONS[method])}"
            raise BuildError(f"{pointer}.{method}: no option {name!r}{hint}{choices}")
    return options
