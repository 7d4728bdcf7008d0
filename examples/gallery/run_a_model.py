"""What a language model says next, by the engine of `examples/qwen2`.

It writes a tiny model with random weights (name a GGUF file as argument for a real one), continues a few tokens, and
draws the probabilities from which each token is taken.  Random weights talk nonsense, as fast as others talk sense.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import trueno

from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model, Sampling, sample
from examples.qwen2.synthesize import synthesize

START, NEW, SHOWN = [300, 5, 77, 410], 24, 12

if len(sys.argv) > 1:
    path = Path(sys.argv[1])
else:
    path = Path(tempfile.mkdtemp()) / "tiny.gguf"
    synthesize(path, "tiny")
model = Model(Checkpoint(path))
print(f"{model.config.layers} layers of {model.config.width} numbers, {model.config.vocabulary} tokens")

how, rng = Sampling(temperature=0.8, top_k=40), np.random.default_rng(2)
tokens, rows = list(START), []
cache = model.cache(len(START) + NEW)
logits = model.prefill(tokens, cache)[0]
for number in rng.random(NEW):
    rows.append(trueno.softmax(logits / how.temperature))
    tokens.append(sample(logits, how, number))
    logits = model.decode(tokens[-1:], [cache])[0]
print("tokens:", *tokens[len(START) :])

likely, names = trueno.topk(np.stack(rows), SHOWN)
taken = tokens[len(START) :]
figure, (panel, lines) = plt.subplots(1, 2, figsize=(9, 3.8), constrained_layout=True, width_ratios=(2, 1))
image = panel.imshow(likely.T, cmap="Blues", aspect="auto", vmin=0)
for step, row in enumerate(names):
    for rank in np.flatnonzero(row == taken[step]):
        panel.plot(step, rank, "o", color="C3", ms=4)
panel.set(xlabel="token", ylabel="rank", yticks=range(0, SHOWN, 2), yticklabels=range(1, SHOWN + 1, 2))
panel.set_title(f"the {SHOWN} most likely; red: what was taken", loc="left", fontsize=10)
figure.colorbar(image, ax=panel, label="probability")
for temperature in (0.5, 0.8, 1.2):
    mass = np.sort(trueno.softmax(logits / np.float32(temperature)))[::-1].cumsum()
    lines.plot(np.arange(1, len(mass) + 1), mass, label=f"temperature {temperature}")
lines.set(xscale="log", xlabel="most likely tokens", ylabel="their probability together", ylim=(0, 1.02))
lines.legend(fontsize=8)
plt.show()
