"""Mutated GGUF files: opened right or a FileError, in memory that the file justifies; the gguf package is the judge."""

import struct
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import trueno
from gguf import quants
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows
from trueno.gguf.file import READ

from .attack import Tally

TRIES = 20
LIES = (0, 1, 31, 255, 2**16, *(2**n + k for n in (31, 32, 59, 61, 62, 63) for k in (-1, 0)), 2**64 - 1)
ROOM, EACH = 600_000, 300
"""Bytes of memory for any file, and for each of its bytes: a key of 14 is a text, a tuple and a place in a table."""
SKIPPED = ("Q8_1", "Q8_K")
"""Types whose size or meaning the package does not have right, or at all."""


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, originals = Path(folder) / "x.gguf", []
        for _ in range(2):
            _write(rng, path)
            originals.append(path.read_bytes())
            assert _opened(path, len(originals[-1])), "a sound file is refused"
        for k in range(TRIES):
            raw = originals[int(rng.integers(2))]
            for _ in range(int(rng.choice([1, 1, 2, 5]))):
                raw = MUTATIONS[int(rng.integers(len(MUTATIONS)))](rng, raw, originals)
            path.write_bytes(raw)
            tally.states += 1
            if k % 5 == 0:
                tracemalloc.start()
            try:
                _opened(path, len(raw))
                if k % 5 == 0:
                    peak = tracemalloc.get_traced_memory()[1]
                    assert peak < ROOM + EACH * len(raw), f"{peak} bytes for a file of {len(raw)}"
            finally:
                tracemalloc.stop()


def _write(rng: np.random.Generator, path: Path) -> None:
    """A sound file with keys and tensors of many types, by the gguf package."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.number", int(rng.integers(1 << 32)))
    writer.add_int64("a.long", -int(rng.integers(1 << 60)))
    writer.add_float64("a.float", float(rng.standard_normal()))
    writer.add_bool("yes", True)
    writer.add_string("a.text", "Straße" * int(rng.integers(0, 4)))
    writer.add_array("words", [f"w{i}" for i in range(int(rng.integers(1, 9)))])
    writer.add_array("numbers", [int(i) for i in rng.integers(-9, 9, int(rng.integers(1, 9)))])
    for name in rng.choice(list(FORMATS), 3, replace=False):
        f = FORMATS[str(name)]
        kind = gguf.GGMLQuantizationType[f.name.upper()]
        if kind.name in SKIPPED:
            continue
        rows = random_rows(f, (int(rng.integers(1, 4)), f.nbytes * int(rng.integers(1, 3))), rng)
        writer.add_tensor(f"blk.{f.name}", rows, raw_dtype=kind)
    for dtype in ("f4", "f2", "f8", "i1", "i4"):
        writer.add_tensor(f"plain.{dtype}", rng.integers(-9, 9, tuple(rng.integers(1, 5, 2))).astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _opened(path: Path, size: int) -> bool:
    """Open and read everything; whether it was accepted.  What both accept must be one and the same."""
    try:
        with trueno.gguf.open(path) as file:
            seen: dict[str, Any] = {name: file.metadata[name] for name in file.metadata}
            for t in file.tensors.values():
                assert t.nbytes <= size
                if t.type in READ:
                    data = t.data
                    if isinstance(data, trueno.QuantizedMatrix) and data.size:
                        trueno.dequantize(data)
            tracing = tracemalloc.is_tracing()
            if not tracing:
                _compared(path, file, seen)
    except trueno.FileError as error:
        if str(path) not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return False
    return True


def _compared(path: Path, file: Any, found: dict[str, Any]) -> None:
    try:
        reader = gguf.GGUFReader(path)
        theirs = {name: field.contents() for name, field in reader.fields.items()}
    except Exception:
        return  # it refuses what is read here, or stumbles
    for name, value in found.items():
        if not name.startswith("GGUF.") and name in theirs:
            assert _alike(value, theirs[name]), f"{name}: {value!r}, but gguf says {theirs[name]!r}"
    for t in reader.tensors:
        if t.tensor_type.name in SKIPPED or t.name not in file.tensors:
            continue
        mine = file.tensors[t.name]
        assert mine.type.upper() == t.tensor_type.name
        assert mine.raw.tobytes() == np.ascontiguousarray(t.data).tobytes(), f"{t.name}: other bytes"
        if mine.type in FORMATS and t.tensor_type in quants._type_traits and mine.nbytes:
            with np.errstate(all="ignore"):
                want = quants.dequantize(np.ascontiguousarray(t.data).reshape(mine.data.shape[0], -1), t.tensor_type)
            got = trueno.dequantize(mine.data)
            assert np.array_equal(got, want, equal_nan=True), f"{t.name}: other numbers"


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, np.ndarray)):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b) or (a != a and b != b)


def _flip(rng: np.random.Generator, raw: bytes, _: list[bytes]) -> bytes:
    found = bytearray(raw)
    for at in rng.integers(0, len(raw), int(rng.choice([1, 3, 20]))) if raw else ():
        found[at] ^= 1 << int(rng.integers(8))
    return bytes(found)


def _head(rng: np.random.Generator, raw: bytes, _: list[bytes]) -> bytes:
    """A byte of the header, where everything means something."""
    at = int(rng.integers(0, max(1, min(len(raw), 900))))
    return raw[:at] + bytes([int(rng.choice([0, 1, 8, 9, 12, 127, 128, 255]))]) + raw[at + 1 :]


def _number(rng: np.random.Generator, raw: bytes, _: list[bytes]) -> bytes:
    """A length, a count or an offset that lies."""
    at, lie = int(rng.integers(0, max(1, min(len(raw), 1500)))), LIES[int(rng.integers(len(LIES)))]
    if rng.random() < 0.5:
        near = struct.unpack_from("<Q", raw.ljust(at + 8, b"\0"), at)[0]
        lie = (near + int(rng.choice([-32, -8, -1, 1, 8, 32, 256]))) % 2**64
    return raw[:at] + struct.pack("<Q", lie) + raw[at + 8 :]


def _splice(rng: np.random.Generator, raw: bytes, originals: list[bytes]) -> bytes:
    other = originals[int(rng.integers(len(originals)))]
    a, b = int(rng.integers(len(raw) + 1)), int(rng.integers(len(other) + 1))
    return raw[:a] + other[b:]


def _moved(rng: np.random.Generator, raw: bytes, _: list[bytes]) -> bytes:
    """A piece doubled, or gone."""
    a = int(rng.integers(len(raw) + 1))
    b = a + int(rng.choice([1, 4, 8, 24, 32, 100]))
    return raw[:b] + raw[a:] if rng.random() < 0.5 else raw[:a] + raw[b:]


def _cut(rng: np.random.Generator, raw: bytes, _: list[bytes]) -> bytes:
    return raw[: int(rng.integers(len(raw) + 1))]


MUTATIONS = (_flip, _flip, _head, _head, _number, _number, _splice, _moved, _cut)
