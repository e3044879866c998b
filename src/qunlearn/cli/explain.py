"""`qunlearn explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json, RunFolder

if TYPE_CHECKING:
    from qunlearn.runs.explain import Conflict

SHADES = " ░▒▓█"
"""From no conflict to gradients that point straight apart."""


def command(run: RunFolder, json: Json = False) -> None:
    """Show where forgetting and retaining were in conflict.

    Draws the layers against the steps, darker where the two gradients pointed further apart, and
    says it in words.

    Example:
      qunlearn explain runs/forgotten
    """
    from qunlearn.runs.explain import conflict_of

    conflict = conflict_of(run)
    if json:
        print_json({"run": str(run), **conflict.to_dict()})
    else:
        say(f"{conflict.words()}\n")
        draw(conflict)


def draw(conflict: Conflict) -> None:
    """A row for each layer, a column for each sampled step, as wide as the terminal allows."""
    import shutil

    import torch

    label = max(map(len, conflict.layers)) or len("(whole model)")
    columns = min(len(conflict.steps), max(10, shutil.get_terminal_size().columns - label - 8))
    cells = [part.mean(1) for part in torch.tensor_split(conflict.cosine, columns, dim=1)]
    say(f"{'layer':{label}}  {'steps →':{columns}}  apart")
    for i, layer in enumerate(conflict.layers):
        shades = "".join(shade(cell[i].item()) for cell in cells)
        share = 100 * conflict.in_conflict()[i].item()
        say(f"{layer or '(whole model)':{label}}  {shades}  {share:3.0f} %")
    say(
        "\nShade: the cosine between the two gradients, from 0 or more (blank) to -0.3 and below "
        "(full).\nApart: the share of sampled steps with a cosine below zero."
    )


def shade(cosine: float) -> str:
    """A character for a cosine.

    >>> [shade(cosine) for cosine in (0.5, 0.0, -0.05, -0.15, -0.25, -1.0)]
    [' ', ' ', '░', '▒', '▓', '█']
    """
    if cosine >= 0:
        return SHADES[0]
    return SHADES[min(len(SHADES) - 1, 1 + int(-cosine * 10))]
