"""Draws the pictures of the README and of docs/explain/oeu.md, from networks that are there.

    python docs/pictures.py runs    # writes two SVG files beside the pages

`runs` is the folder that the commands of docs/start/digits.md make: original, forgotten, retrain.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

import qunlearn as qu
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import predictions
from qunlearn.store.run import Run

HERE = Path(__file__).parent
BEFORE, AFTER, RETRAIN = "#b0561f", "#1f6fb0", "#6b6b6b"
"""Colours that remain distinct to colour-blind readers, and in print."""

mpl.rcParams.update({"svg.hashsalt": "qunlearn", "svg.fonttype": "path", "font.size": 10})


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture that is the same, byte for byte, for the same networks."""
    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    print(path)


def before_after(runs: Path, path: Path) -> None:
    """Confidence on the forgotten samples: before, after, and of a network that never saw them."""
    split = split_of(Run(runs / "forgotten"))
    panels = {
        "before": ("original", BEFORE),
        "after qunlearn forget": ("forgotten", AFTER),
        "trained without them (Retrain)": ("retrain", RETRAIN),
    }
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
    for panel, (name, (run, colour)) in zip(axes, panels.items(), strict=True):
        network = qu.load(runs / run)
        labels = split.data.labels[split.forget]
        likely = predictions(network, split)["forget"].softmax(1)
        panel.hist(likely.gather(1, labels[:, None])[:, 0], np.linspace(0, 1, 21), color=colour)
        right = qu.evaluate(network, split)
        panel.set_title(name)
        note = f"{right.FA:.0f} % right\nothers: {right.RA:.0f} %"
        panel.text(0.04, 0.9, note, transform=panel.transAxes, va="top")
        panel.set_xlabel("confidence in the true label")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"of {len(split.forget)} forgotten samples")
    save(figure, path)


def gradients(runs: Path, path: Path) -> None:
    """Both gradients where they disagree most, in the plane that they span."""
    split, model = split_of(Run(runs / "forgotten")), qu.load(runs / "original").train()
    layers = {n: p for n, p in model.named_parameters() if p.ndim == 4}
    gone, kept = (qu.Loader(split.data, rows, 64) for rows in (split.forget, split.retain))
    cosine, name = 1.0, ""
    for step in range(20):
        forget = gone.batch(*divmod(step, len(gone)))
        retain = kept.batch(*divmod(step, len(kept)))
        losses = (
            qu.negative_entropy(model(forget.images)),
            torch.nn.functional.cross_entropy(model(retain.images), retain.labels),
        )
        found = [torch.autograd.grad(loss, list(layers.values())) for loss in losses]
        for layer, g_f, g_r in zip(layers, *found, strict=True):
            angle = float(torch.cosine_similarity(g_f.flatten(), g_r.flatten(), 0))
            cosine, name = min((cosine, name), (angle, layer))
    # Lengths are those of unit gradients: what matters is the angle.
    f, r = np.array([cosine, np.sqrt(1 - cosine**2)]), np.array([1.0, 0.0])
    projected = f - (f @ r) * r
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for arrow, colour, label in (
        (r, RETRAIN, r"$g_r$: retain"),
        (f, BEFORE, r"$g_f$: forget"),
        (projected, AFTER, r"$\hat g_f$: forget, projected"),
    ):
        axes.annotate(
            "", arrow, (0, 0), arrowprops={"arrowstyle": "-|>", "lw": 2.5, "color": colour}
        )
        left = arrow is f
        axes.text(
            arrow[0] + (-0.04 if left else 0.04),
            arrow[1] + 0.02,
            label,
            color=colour,
            fontsize=12,
            ha="right" if left else "left",
        )
    axes.plot(*zip(f, projected, strict=True), ":", color="#333333")
    axes.text(f[0] / 2, f[1] + 0.14, "removed", ha="center", fontsize=10)
    axes.set(xlim=(-1.2, 1.4), ylim=(-0.12, 1.25), aspect="equal")
    axes.set_title(f"layer {name}: cosine {cosine:.2f}", fontsize=11)
    axes.axis("off")
    save(figure, path)


if __name__ == "__main__":
    (folder,) = sys.argv[1:]
    before_after(Path(folder), HERE / "before-after.svg")
    gradients(Path(folder), HERE / "explain" / "gradients.svg")
