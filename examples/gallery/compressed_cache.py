"""A cache of keys and values whose idle conversations are compressed, by `trueno.lz4`.

A server holds the caches of many conversations, and most of them wait for their user.  LZ4 stores once what repeats:
slots that no token has taken yet, and in the first layer the values of words that occur again.  It finds nothing in
the digits of the other layers' numbers, and is not asked to: such pages are stored as they are.

With a CUDA device all of this happens in its memory; otherwise in the host's.
"""

import matplotlib.pyplot as plt
import numpy as np
import trueno

LAYERS, HEADS, WIDTH, CAPACITY, TALKS, PAGE = 4, 2, 64, 512, 12, 4096
DEVICE = "cuda" if "cuda" in trueno.backends() and trueno.backends()["cuda"].available else ""
rng = np.random.default_rng(1)


def sent(x):
    """`x` where the cache is."""
    return trueno.to(x, DEVICE) if DEVICE else x


cache = trueno.KVCache(LAYERS, HEADS, WIDTH, capacity=CAPACITY, sequences=TALKS, device=DEVICE)
words = rng.standard_normal((200, HEADS, WIDTH)).astype(np.float32)  # a first layer's value depends on its word alone
lengths = rng.integers(20, CAPACITY, TALKS)
for length in lengths:
    talk = cache.new()
    text = np.minimum(rng.zipf(1.3, length), 200) - 1  # some words are frequent, as in every language
    for layer in range(LAYERS):
        keys, values = rng.standard_normal((2, length, HEADS, WIDTH)).astype(np.float32)
        cache.append(layer, sent(keys), sent(words[text] if layer == 0 else values), talk)
question = sent(rng.standard_normal((1, 4, WIDTH)).astype(np.float32))
before = [trueno.numpy(cache.attend(layer, question, 0)) for layer in range(LAYERS)]

# Conversation 0 goes on; the others are idle.  Each is one page of this cache, with its keys and values of a layer.
cold, saved = {}, []
for layer in range(LAYERS):
    for what, memory in zip(("keys", "values"), cache.pages(layer), strict=True):
        for talk in range(1, TALKS):
            packed = trueno.lz4.compress_pages(memory.bytes[talk].reshape(-1, PAGE)).compact()
            cold[layer, what, talk] = packed
            saved.append((layer, what, talk, packed.length, packed.packed.nbytes))
            memory.bytes[talk] = 0  # another conversation could have the memory now

whole, small = (sum(row[k] for row in saved) for k in (3, 4))
taken = sum(lengths[1:]) * LAYERS * 2 * HEADS * WIDTH * 2
print(
    f"{TALKS - 1} idle conversations: {whole >> 10} KiB, of which tokens fill {taken >> 10}; {small >> 10} compressed"
)

# A user answers: the pages of the conversation come back as they were.
for layer in range(LAYERS):
    for what, memory in zip(("keys", "values"), cache.pages(layer), strict=True):
        for talk in range(1, TALKS):
            pages = trueno.lz4.decompress_pages(cold[layer, what, talk])
            memory.bytes[talk] = pages.reshape(memory.bytes[talk].shape)
assert all(np.array_equal(trueno.numpy(cache.attend(n, question, 0)), before[n]) for n in range(LAYERS))

figure, panel = plt.subplots(figsize=(7, 3.6), constrained_layout=True)
for what, marker in (("keys", "o"), ("values", "s")):
    for layer in range(LAYERS):
        rows = [
            (lengths[talk] / CAPACITY, size / length) for n, w, talk, length, size in saved if (n, w) == (layer, what)
        ]
        first = layer == 0 and what == "values"
        label = (
            "values of the first layer" if first else "keys and other values" if (layer, what) == (1, "keys") else None
        )
        panel.plot(*zip(*sorted(rows), strict=True), marker, color="C1" if first else "C0", ms=5, label=label)
panel.plot([0, 1], [0, 1], color="gray", lw=0.8, zorder=0)
panel.set(xlabel="share of its slots that a conversation has filled", ylabel="compressed size / memory", ylim=(0, 1.02))
panel.legend()
plt.show()
