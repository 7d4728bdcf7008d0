"""Principal components of images, by `symmetric_eigen`.

A thousand small pictures of a bar, turned and blurred at random, are 576 numbers each.  The covariance of those
numbers is one symmetric matrix; its eigenvectors, drawn as pictures again, show in which ways the images differ.
"""

import matplotlib.pyplot as plt
import numpy as np
import trueno

SIDE, IMAGES, KEPT = 24, 1000, 16
rng = np.random.default_rng(7)


def bars(angles, widths):
    """images[i,y,x]: a bar through the middle, turned by angles[i] and widths[i] pixels wide, with soft edges."""
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32) - (SIDE - 1) / 2
    sines, cosines = trueno.sin(angles)[:, None, None], trueno.cos(angles)[:, None, None]
    across = trueno.abs(x * sines - y * cosines)
    along = trueno.abs(x * cosines + y * sines)
    return trueno.sigmoid(2 * (widths[:, None, None] - across)) * trueno.sigmoid(2 * (9 - along))


angles = rng.uniform(0, np.pi, IMAGES).astype(np.float32)
images = bars(angles, rng.uniform(1, 3, IMAGES).astype(np.float32))

rows = images.reshape(IMAGES, -1)
mean = trueno.mean(rows, axis=0)
centred = rows - mean
covariance = trueno.matmul(centred.T, centred) / IMAGES
values, vectors = trueno.symmetric_eigen(covariance)

share = np.cumsum(values) / values.sum()
print(f"{rows.shape[1]} numbers an image; {KEPT} components hold {share[KEPT - 1]:.1%} of the variance")

kept = vectors[:, :KEPT]
again = trueno.matmul(trueno.matmul(centred, kept), kept.T) + mean

figure, panels = plt.subplots(3, 6, figsize=(9, 4.8), constrained_layout=True)
for column, number in enumerate(rng.choice(IMAGES, 6, replace=False)):
    panels[0, column].imshow(images[number], cmap="gray", vmin=0, vmax=1)
    panels[1, column].imshow(again[number].reshape(SIDE, SIDE), cmap="gray", vmin=0, vmax=1)
    component = vectors[:, column].reshape(SIDE, SIDE)
    panels[2, column].imshow(component, cmap="RdBu", vmin=-abs(component).max(), vmax=abs(component).max())
for row, title in zip(panels, ("images", f"from {KEPT} numbers each", "components"), strict=True):
    row[0].set_title(title, loc="left", fontsize=10)
for panel in panels.flat:
    panel.axis("off")
plt.show()
