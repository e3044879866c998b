"""What audits found, as sections of a run's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qunlearn.metrics.gap import SCORES
from qunlearn.report.html import Safe, join, section, table, tag

BITS = (
    "The weights rounded anew, from the values underneath, to other bits than they were trained "
    "with. A weight that forgetting moved by less than a step keeps its code, so that memory may "
    "come back on another grid. Good: the forgotten samples are right no more often than with the "
    "trained bits, or than Retrain treated the same shows. Where the kept samples (RA) are lost, "
    "the rounding has broken the model, and nothing can be told."
)


def bits_section(found: Mapping[str, Any] | None) -> Safe:
    """The audit of the bits, if one was made."""
    if found is None:
        return Safe("")
    head = ["bits of the weights", *SCORES]
    rows = [_row("as trained", found["trained"])]
    rows += [
        _row("full precision" if width == "32" else width, row)
        for width, row in found["rows"].items()
    ]
    if "reference" in found:
        head += ["AG", "Retrain's FA", "Retrain's MIA"]
        mark = found["reference"]
        ours, others = ([side["trained"], *side["rows"].values()] for side in (found, mark))
        for row, own, other in zip(rows, ours, others, strict=True):
            row += [f"{value:.2f}" for value in (own["AG"], other["FA"], other["MIA"])]
    return section(
        "When the bits change",
        tag("p", BITS),
        tag("p", tag("b", found["verdict"])),
        tag("p", found["declared"]["sentence"]) if "declared" in found else "",
        table(head, rows, "When the bits change"),
        _changed(found["changed"]),
    )


def _changed(changed: Mapping[str, Any] | None) -> Safe:
    """How many codes forgetting changed: one figure, and those of the layers on request."""
    if changed is None:
        return Safe("")
    label = "Codes changed, layer by layer"
    rows = [[name or "(whole model)", f"{v:.2f} %"] for name, v in changed["layers"].items()]
    return join(
        tag("p", f"Forgetting changed {changed['all']:.2f} % of the integer codes."),
        tag("details", tag("summary", label), table(["layer", "codes changed"], rows, label)),
    )


def _row(name: str, scores: Mapping[str, float]) -> list[object]:
    return [name, *(f"{scores[score]:.2f}" for score in SCORES)]
