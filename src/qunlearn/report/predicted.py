"""What an exported network takes images for, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qunlearn.report.tables import TextTable

SHOWN = 3
"""How many classes are shown of each image."""


def predictions_of_images(predicted: Sequence[tuple[str, Mapping[str, float]]]) -> TextTable:
    """The most probable classes of each image, the most probable first.

    >>> predictions_of_images([("a.png", {"cat": 0.9, "dog": 0.1})]).rows
    [['a.png', 'cat 90.0 %', 'dog 10.0 %']]
    """
    rows = [
        [image, *(f"{name} {100 * share:.1f} %" for name, share in list(classes.items())[:SHOWN])]
        for image, classes in predicted
    ]
    width = max(len(row) for row in rows)
    head = ["image", *("most probable", "then", "then")[: width - 1]]
    return TextTable(head, rows, left=width)
