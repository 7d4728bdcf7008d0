"""Training steps that a guard watches.

A small network learns which of two spirals a point belongs to, and its learning rate is far too large at first.  The
guard stops at the first result that is not finite, and names the op in which it arises.  The program then returns to
weights from before the trouble and halves the rate; without a guard it would compute NaN to the end.
"""

import matplotlib.pyplot as plt
import numpy as np
import trueno
from trueno import Action, Condition

rng = np.random.default_rng(5)
turns = rng.uniform(0.3, 1, 600).astype(np.float32)
side = np.repeat([0, 1], 300)
angle = 7 * turns + np.pi * side
points = np.stack([turns * trueno.cos(angle), turns * trueno.sin(angle)], 1) + rng.normal(0, 0.02, (600, 2))
points, wanted = points.astype(np.float32), side.astype(np.float32)
weights = [rng.normal(0, s, shape).astype(np.float32) for s, shape in ((1, (3, 64)), (0.2, (65, 64)), (0.2, (65, 1)))]


def with_one(x):
    """x[i,j], and a column of ones for the bias."""
    return np.concatenate([x, np.ones_like(x[:, :1])], 1)


def forward(weights, x):
    """The logit of each point, and what each layer saw."""
    seen = [with_one(x)]
    for w in weights[:-1]:
        seen.append(with_one(trueno.leaky_relu(trueno.matmul(seen[-1], w), slope=0.1)))
    return trueno.matmul(seen[-1], weights[-1])[:, 0], seen


def step(weights, rate):
    """Weights after a step down the gradient, and the loss before it."""
    logit, seen = forward(weights, points)
    loss = trueno.mean(trueno.sub(trueno.softplus(logit), trueno.mul(wanted, logit)))
    slope = ((trueno.sigmoid(logit) - wanted) / len(wanted))[:, None]
    new = []
    for w, h in zip(weights[::-1], seen[::-1], strict=True):
        new.append(trueno.fma(trueno.matmul(h.T, slope), -rate, w))
        slope = trueno.matmul(slope, w.T)[:, :-1] * np.where(h[:, :-1] > 0, 1, np.float32(0.1))
    return new[::-1], float(loss)


guard = trueno.JidokaGuard().on(Condition.NAN, Action.STOP).on(Condition.INF, Action.STOP)
rate, losses, stops, good = 64.0, [], [], (weights, 0)
while len(losses) < 1500:
    try:
        with guard:
            weights, loss = step(weights, rate)
    except trueno.GuardError as error:
        rate /= 2
        stops.append((len(losses), rate))
        if len(stops) == 1:
            print(error)
        weights = good[0]
        continue
    losses.append(loss)
    if loss < 1 and len(losses) - good[1] >= 20:
        good = weights, len(losses)  # worth coming back to

right = np.mean((forward(weights, points)[0] > 0) == (wanted > 0))
print(f"{len(stops)} stops; at rate {rate:g} the loss is {losses[-1]:.3f}, and {right:.1%} of the points are right")

grid = np.linspace(-1.2, 1.2, 160, dtype=np.float32)
plane = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
field = trueno.sigmoid(forward(weights, plane)[0]).reshape(160, 160)

figure, (left, panel) = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
left.plot(losses, lw=1)
left.set(xscale="log", yscale="log", xlabel="step", ylabel="loss")
for number, _ in stops:
    left.axvline(number, color="C3", lw=0.8, alpha=0.6)
left.set_title("loss; red lines: the guard stopped a step", loc="left", fontsize=10)
panel.imshow(field, extent=(-1.2, 1.2, -1.2, 1.2), origin="lower", cmap="RdBu", alpha=0.6)
panel.scatter(*points.T, c=wanted, cmap="RdBu", s=6, edgecolors="k", linewidths=0.2)
panel.set_title("what the network says", loc="left", fontsize=10)
panel.axis("off")
plt.show()
