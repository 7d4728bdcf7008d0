"""Broken LZ4 blocks on the PTX emulator: each is decoded to the right bytes or refused where it is wrong.

The judge is the `lz4` package and the rules of the op; the emulator itself reports races and accesses outside of
arrays, and these end exactly where the last block does.  A launch takes some fifty blocks of pages of one size.

`python -m tests.hostile.lz4_emulated --count 10000` runs many, `--seed` and `--launch NUMBER` one launch again.
"""

import argparse
import os
import random
import sys
import time

import lz4.block
import numpy as np
import trueno
from trueno.formats.lz4 import fault
from trueno.formats.lz4_samples import PAGES, damaged, laid, page, written

BACKEND = "cuda_emulated"
SIZES = (1, 5, 12, 13, 14, 64, 100, 255, 300, 1000, 1024, 1025, 4095, 4096, 4097, 5000)
NEAR = (0, 0, 0, -20, -12, -5, -1, 1, 5, 12)
"""By how much the page of a block is longer than the room for it."""


def broken(rng: np.random.Generator, room: int) -> list[bytes]:
    """Blocks that were right and are damaged, once or twice, and random bytes."""
    blocks = []
    for _ in range(3):
        p = max(room + int(rng.choice(NEAR)), 1)
        text = page(str(rng.choice(PAGES)), p, rng).tobytes()
        blocks.append(written(p, rng) if p > 13 and rng.random() < 0.5 else lz4.block.compress(text, store_size=False))
    once = [block for whole in blocks for block in damaged(whole, rng) if block]
    twice = [block for whole in rng.permutation(np.array(once, object))[:2] for block in damaged(whole, rng) if block]
    return [*blocks, *once, *twice, *(rng.bytes(int(rng.integers(1, 40))) for _ in range(4))]


def launch(rng: np.random.Generator) -> tuple[int, int]:
    """Decode some blocks at once; how many, and how many of them are right.  AssertionError for another result."""
    room = int(rng.choice(SIZES))
    blocks = broken(rng, room)
    packed, offsets, sizes = laid([(block, len(block)) for block in blocks], rng)
    y, lengths = trueno.lz4_decompress(*(trueno.to(a, BACKEND) for a in (packed, offsets, sizes)), page=room)
    right = 0
    for block, row, length in zip(blocks, trueno.numpy(y), trueno.numpy(lengths).tolist(), strict=True):
        wrong = fault(block, room)
        if wrong < 0:
            right += 1
            text = lz4.block.decompress(block, uncompressed_size=room)
            assert (length, row.tobytes()) == (len(text), text.ljust(room, b"\0")), (room, block.hex())
        else:
            assert length == -1 - wrong and not row.any(), (room, length, -1 - wrong, block.hex())
    return len(blocks), right


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.lz4_emulated", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="blocks, at least")
    parser.add_argument(
        "--seed", type=int, default=int(os.environ.get("TRUENO_HOSTILE_SEED") or 0), help="default: new"
    )
    parser.add_argument("--launch", type=int, help="that launch alone")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().getrandbits(31)
    print(f"seed {seed}", flush=True)
    count = right = 0
    number, start = given.launch or 0, time.perf_counter()
    while count < given.count:
        try:
            some, good = launch(np.random.default_rng([seed, number]))
        except Exception:
            print(f"python -m tests.hostile.lz4_emulated --seed {seed} --launch {number}", flush=True)
            raise
        count, right, number = count + some, right + good, number + 1
        if given.launch is not None:
            break
    seconds = time.perf_counter() - start
    print(f"{count} blocks in {number} launches, {right} of them right; {count / seconds:.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
