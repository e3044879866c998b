"""Where forgetting and retaining pulled apart: layers against steps."""

from __future__ import annotations

from typing import Any

import torch

from qunlearn.report.drawing import FORGET, INK, KNOWN, Drawn, draw, slug
from qunlearn.report.words import conflict_words
from qunlearn.runs.explain import Conflict

COLUMNS = 40
FULL = 0.3
"""The cosine from which on a cell has its full colour."""


def heat_map(title: str, conflict: Conflict) -> Drawn:
    """A row for each layer, a column for each sampled step, or for a few of them together."""
    count = min(COLUMNS, len(conflict.steps))
    cells = torch.stack(
        [part.mean(1) for part in torch.tensor_split(conflict.cosine, count, dim=1)], 1
    )
    layers = [layer or "(whole model)" for layer in conflict.layers]

    def paint(figure: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.patches import Patch

        shades = LinearSegmentedColormap.from_list("conflict", [FORGET, "#efefec", KNOWN])
        axes = figure.add_subplot()
        # Not an image: that would stand in the page as pixels, and blur when it is enlarged.
        axes.pcolormesh(
            cells.numpy(), cmap=shades, vmin=-FULL, vmax=FULL, edgecolors="face", linewidth=0.2
        )
        axes.invert_yaxis()
        axes.set_yticks([i + 0.5 for i in range(len(layers))], layers, fontsize=6.5)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xticks([0, count], ["start", "end"])
        axes.get_xticklabels()[0].set_ha("left")
        axes.get_xticklabels()[1].set_ha("right")
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.legend(
            handles=[
                Patch(color=FORGET, lw=0, label="pull apart"),
                Patch(color="#efefec", lw=0, label="neither"),
                Patch(color=KNOWN, lw=0, label="pull together"),
            ],
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=3,
            fontsize=7.5,
            handlelength=1.2,
            columnspacing=1.2,
            borderpad=0.1,
        )

    alt = f"Heat map of the gradients' conflict, {title}. {conflict_words(conflict)}"
    size = (4.2, 0.75 + 0.125 * max(4, len(layers)))
    return draw(f"conflict-{slug(title)}", title, alt, size, paint)
