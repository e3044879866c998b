"""The heat map of `qunlearn explain`: layers against steps, in characters."""

from __future__ import annotations

import torch

from qunlearn.runs.explain import Conflict

SHADES = " ░▒▓█"
"""From no conflict to gradients that point straight apart."""

LEGEND = (
    "Shade: the cosine between the two gradients, from 0 or more (blank) to -0.3 and below "
    "(full).\nApart: the share of sampled steps with a cosine below zero."
)


def shaded(conflict: Conflict, width: int) -> list[str]:
    """A row for each layer, a column for each sampled step, in lines of about `width` letters."""
    label = max(map(len, conflict.layers)) or len("(whole model)")
    columns = min(len(conflict.steps), max(10, width - label - 8))
    cells = [part.mean(1) for part in torch.tensor_split(conflict.cosine, columns, dim=1)]
    lines = [f"{'layer':{label}}  {'steps →':{columns}}  apart"]
    for i, (layer, share) in enumerate(zip(conflict.layers, conflict.in_conflict(), strict=True)):
        shades = "".join(shade(cell[i].item()) for cell in cells)
        lines.append(f"{layer or '(whole model)':{label}}  {shades}  {100 * share.item():3.0f} %")
    return lines


def shade(cosine: float) -> str:
    """A character for a cosine.

    >>> [shade(cosine) for cosine in (0.5, 0.0, -0.05, -0.15, -0.25, -1.0)]
    [' ', ' ', '░', '▒', '▓', '█']
    """
    if cosine >= 0:
        return SHADES[0]
    return SHADES[min(len(SHADES) - 1, 1 + int(-cosine * 10))]
