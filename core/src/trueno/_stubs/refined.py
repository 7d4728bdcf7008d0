"""Signatures that the source does not have: the overloads of the functions beside the ops, and of some methods."""

SCOPE = '''\
@overload
def {name}(*names: Ours) -> BackendScope:
    """{doc}"""
@overload
def {name}(*names: Ours | _Slip) -> NoSuchBackend: ...
@overload
def {name}(*names: str) -> BackendScope: ...

'''
DEVICE = '''\
@overload
{define} device(name: Ours) -> DeviceContext:
    """{doc}"""
@overload
{define} device(name: _Slip) -> NoSuchBackend: ...
@overload
{define} device(name: str) -> DeviceContext: ...

'''
TO = '''\
@overload
{define} to(x: Operand, name: OnHost) -> NDArray[Any]:
    """{doc}"""
@overload
{define} to(x: Operand, name: _Slip) -> NoSuchBackend: ...
@overload
{define} to(x: Operand, name: str) -> Any: ...
@overload
{define} to(x: QuantizedMatrix, name: Backend) -> QuantizedMatrix: ...

'''
NUMPY = '''\
@overload
{define} numpy(x: Operand) -> NDArray[Any]:
    """{doc}"""
@overload
{define} numpy(x: QuantizedMatrix) -> QuantizedMatrix: ...

'''
FUNCTIONS = {
    "use": SCOPE,
    "prefer": SCOPE,
    "set_default": 'def {name}(*names: Backend) -> None:\n    """{doc}"""\n\n',
    "reset_quarantine": 'def {name}(backend: Backend | None = None) -> None:\n    """{doc}"""\n\n',
    "device": DEVICE,
    "to": TO,
    "numpy": NUMPY,
    "explain": '''\
def {name}(op: _Op | str, *operands: Operand | QuantizedMatrix | Pages, **parameters: Any) -> Decision:
    """{doc}"""

''',
    "split": '''\
@overload
def {name}(x: Host, sizes: Sequence[int], axis: int = 0) -> tuple[NDArray[Any], ...]:
    """{doc}"""
@overload
def {name}(x: Operand, sizes: Sequence[int], axis: int = 0) -> tuple[Any, ...]: ...

''',
    "repeat": '''\
@overload
def {name}(x: Host, repeats: int | Sequence[int], axis: int = 0) -> NDArray[Any]:
    """{doc}"""
@overload
def {name}(x: Operand, repeats: int | Sequence[int], axis: int = 0) -> Any: ...

''',
    "trace": '''\
def {name}(
    kinds: Kind | Iterable[Kind] | None = None, path: str | os.PathLike[str] | None = None, *, limit: int = 100_000
) -> Trace:
    """{doc}"""

''',
    "quantize": '''\
def {name}(x: Operand, format: FormatName, imatrix: Operand | None = None) -> QuantizedMatrix:
    """{doc}"""

''',
    "requantize": '''\
def {name}(q: QuantizedMatrix, format: FormatName, imatrix: Operand | None = None) -> QuantizedMatrix:
    """{doc}"""

''',
}
"""Functions of `trueno` beside the ops; `{name}` and `{doc}` are filled in."""

HOLDER = {
    "__init__": """\
    def __init__(
        self, data: Operand | Iterator[float], dtype: Dtype | None = None, *, backend: Backend | None = None
    ) -> None: ...
""",
    "with_backend": "    def with_backend(self, backend: Backend | None) -> Self:\n"
    '        """The same data, computed on `backend` from now on; DeviceError where they live on another device."""\n',
    "to": """\
    def to(self, backend: Backend) -> Self:
        \"\"\"The same data as an array of `backend`'s own type (`trueno.to`); itself if they are there already.\"\"\"
""",
    "copy": '    def copy(self) -> Self:\n        """The same data in memory of its own, on the same device."""\n',
    "astype": "    def astype(self, dtype: Dtype) -> Self:\n"
    '        """The data in another float dtype; DtypeError for a dtype that is not a float\'s, and on a device."""\n',
    "flatten": '    def flatten(self) -> Vector:\n        """All elements, row by row, as a new Vector."""\n',
    "__neg__": "    def __neg__(self) -> Self: ...\n",
    "__abs__": "    def __abs__(self) -> Self: ...\n",
    "__copy__": "    def __copy__(self) -> Self: ...\n",
    "__deepcopy__": "    def __deepcopy__(self, memo: dict[int, Any]) -> Self: ...\n",
    "__getitem__": "",
    "__iter__": "",
    "__eq__": "    def __eq__(self, other: object) -> NDArray[np.bool]: ...\n",
}
VECTOR = {
    "__getitem__": """\
    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> np.floating[Any]: ...
    @overload
    def __getitem__(self, index: slice | NDArray[Any] | Sequence[int] | EllipsisType) -> Vector: ...
    @overload
    def __getitem__(self, index: tuple[Any, ...] | None) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
""",
    "__matmul__": """\
    @overload
    def __matmul__(self, other: Vector | Line | Sequence[Number]) -> np.floating[Any]: ...
    @overload
    def __matmul__(self, other: Matrix | Plane) -> Vector: ...
    @overload
    def __matmul__(self, other: Arrays) -> Any: ...
""",
    "__rmatmul__": """\
    @overload
    def __rmatmul__(self, other: Line | Sequence[Number]) -> np.floating[Any]: ...
    @overload
    def __rmatmul__(self, other: Plane) -> Vector: ...
    @overload
    def __rmatmul__(self, other: Arrays) -> Any: ...
""",
}
MATRIX = {
    "__getitem__": """\
    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Vector: ...
    @overload
    def __getitem__(self, index: slice | EllipsisType) -> Matrix: ...
    @overload
    def __getitem__(self, index: tuple[int, int]) -> np.floating[Any]: ...
    @overload
    def __getitem__(self, index: tuple[slice, int] | tuple[int, slice]) -> Vector: ...
    @overload
    def __getitem__(self, index: tuple[slice, slice]) -> Matrix: ...
    @overload
    def __getitem__(self, index: tuple[Any, ...] | NDArray[Any] | Sequence[int] | None) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
""",
    "__matmul__": """\
    @overload
    def __matmul__(self, other: Vector | Line) -> Vector: ...
    @overload
    def __matmul__(self, other: Matrix | Plane) -> Matrix: ...
    @overload
    def __matmul__(self, other: Arrays) -> Any: ...
""",
    "__rmatmul__": """\
    @overload
    def __rmatmul__(self, other: Line | Sequence[Number]) -> Vector: ...
    @overload
    def __rmatmul__(self, other: Plane) -> Matrix: ...
    @overload
    def __rmatmul__(self, other: Arrays) -> Any: ...
""",
}
PRODUCT = """\
    @overload
    def {name}(self, x: Vector) -> Vector: ...
    @overload
    def {name}(self, x: Matrix) -> Matrix: ...
    @overload
    def {name}(self, x: NDArray[Any] | Nested) -> NDArray[Any]: ...
    @overload
    def {name}(self, x: _Foreign) -> _Foreign: ...
"""
QUANTIZED = {
    "__init__": "    def __init__(self, bytes: Any, shape: Sequence[int], format: FormatName | str) -> None: ...\n",
    "format": "    @property\n    def format(self) -> FormatName: ...\n",
    "shape": "    @property\n    def shape(self) -> tuple[int, int]: ...\n",
    "bytes": "    @property\n    def bytes(self) -> Any: ...\n",
    "__getitem__": """\
    def __getitem__(self, rows: slice | Sequence[int] | NDArray[np.integer[Any]]) -> QuantizedMatrix: ...
""",
    "__setattr__": "",
    "__matmul__": PRODUCT.format(name="__matmul__"),
    "__rmatmul__": PRODUCT.format(name="__rmatmul__"),
}
CONTEXT = {
    "__init__": "    def __init__(self, name: Backend) -> None: ...\n",
    "upload": """\
    @overload
    def upload(self, x: Operand) -> Any:
        \"\"\"A new buffer with a copy of `x`: a list, a number, or an array of floats or integers of any library.\"\"\"
    @overload
    def upload(self, x: QuantizedMatrix) -> QuantizedMatrix: ...
""",
    "read": """\
    @overload
    def read(self, x: Operand, out: NDArray[Any] | None = None) -> NDArray[Any]:
        \"\"\"A buffer as a new NumPy array, or in `out`, a contiguous array of the buffer's shape and dtype.\"\"\"
    @overload
    def read(self, x: QuantizedMatrix) -> QuantizedMatrix: ...
""",
}
CACHE = {
    "__init__": """\
    format: str
    capacity: int
    layers: int
    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        value_dim: int = 0,
        dtype: Dtype | Literal["q8_0", "f32", "f16", "bf16"] = "float16",
        capacity: int,
        sequences: int = 1,
        page: int = 0,
        device: Backend = "",
    ) -> None: ...
""",
    "append": """\
    def append(self, layer: int, k: Operand, v: Operand, sequences: int | Sequence[int]) -> None:
        \"\"\"Add tokens to one layer: k[t,hk,d] and v[t,hk,e] to a sequence, or [b,t,hk,…] to b, float32.\"\"\"
""",
    "attend": """\
    @overload
    def attend(
        self,
        layer: int,
        q: Host,
        sequences: int | Sequence[int],
        *,
        scale: float = 0.0,
        window: int = 0,
        softcap: float = 0.0,
    ) -> NDArray[Any]:
        \"\"\"Causal attention of the last t tokens: q[t,hq,d] of one sequence, or q[b,t,hq,d] of b; y[…,t,hq,e].\"\"\"
    @overload
    def attend(
        self,
        layer: int,
        q: Foreign,
        sequences: int | Sequence[int],
        *,
        scale: float = 0.0,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Any: ...
""",
    "record": """\
    def record(self, batch: Batch, sequences: int) -> CacheStep:
        \"\"\"One new token of each of so many sequences, in a batch: its `run` serves every token.\"\"\"
""",
}
BATCH = {
    "__init__": "    def __init__(self, backend: Backend | None = None) -> None: ...\n",
    "upload": "    def upload(self, x: Operand | QuantizedMatrix | Pages, *, live: bool = False) -> Handle:\n"
    '        """A handle of `x`: an array, a list, a number, or an array of the backend on which this runs."""\n',
    "update": "    def update(self, h: Handle, x: Operand | QuantizedMatrix | Pages) -> None:\n"
    '        """Replace the array of an upload by one of the same shape and dtype."""\n',
    "read": """\
    @overload
    def read(self, h: Handle, out: None = None) -> Any:
        \"\"\"A copy of a handle's array, in `out` if given; a NumPy scalar if the op returns one.\"\"\"
    @overload
    def read(self, h: Handle, out: NDArray[_S]) -> NDArray[_S]: ...
    @overload
    def read(self, h: Handle, out: _Foreign) -> _Foreign: ...
""",
}
