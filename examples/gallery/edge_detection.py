"""Edges of a picture, by `convolve2d`.

One call applies several kernels: here both of Sobel's derivatives, after a smoothing.  Their length is the strength
of an edge, and their direction is its colour.
"""

import matplotlib.pyplot as plt
import numpy as np
import trueno

SIDE = 256
rng = np.random.default_rng(3)
y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32) / SIDE

# A picture to look at: a shaded wall, a disc, a tilted square and a grating, with noise.
picture = 0.3 + 0.2 * x
picture += 0.5 * (trueno.sqrt((x - 0.3) ** 2 + (y - 0.35) ** 2) < 0.18)
tilted = trueno.maximum(trueno.abs(x + 0.5 * y - 1.1), trueno.abs(y - 0.5 * x - 0.05))
picture -= 0.25 * (tilted < 0.15)
picture += 0.15 * trueno.sin(80 * x) * (y > 0.8)
picture += rng.normal(0, 0.02, picture.shape)
picture = picture.astype(np.float32)


def gaussian(sigma, radius=4):
    """weights[p,q] of a smoothing of `sigma` pixels; they sum to 1."""
    line = trueno.exp(-(np.arange(-radius, radius + 1, dtype=np.float32) ** 2) / (2 * sigma**2))
    weights = trueno.outer(line, line)
    return weights / weights.sum()


smooth = trueno.convolve2d(picture[None], gaussian(1.5)[None, None], mode="same")
sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
across, down = trueno.convolve2d(smooth, np.stack([sobel, sobel.T])[:, None], mode="same")
strength = trueno.sqrt(across**2 + down**2)
strength[[0, 1, -2, -1]] = strength[:, [0, 1, -2, -1]] = 0  # the picture ends there, which is no edge of it
print(f"the strongest edge is {strength.max():.2f}, the median {np.median(strength):.3f}")

direction = (np.arctan2(down, across) / (2 * np.pi)) % 1
colours = plt.get_cmap("hsv")(direction)[..., :3] * (strength / np.quantile(strength, 0.995))[..., None].clip(0, 1)

figure, panels = plt.subplots(1, 3, figsize=(9, 3.3), constrained_layout=True)
for panel, image, title in zip(
    panels, (picture, strength, colours), ("picture", "strength", "direction as colour"), strict=True
):
    panel.imshow(image, cmap="gray")
    panel.set_title(title, loc="left", fontsize=10)
    panel.axis("off")
plt.show()
