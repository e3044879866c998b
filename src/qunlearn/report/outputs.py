"""What a model answers: its confidence in the truth, and how it spreads its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qunlearn.metrics import true_confidence
from qunlearn.parts import part_name
from qunlearn.report.drawing import FORGET, INK, KNOWN, OTHERS, SOFT, Drawn, draw, slug

COLOURS = {"forget": FORGET, "held_out": KNOWN, "test": OTHERS[2]}
BINS, RANKS = 20, 10
BEFORE, RETRAIN, AFTER = "before", "Retrain", "after"
"""The models of a figure: before forgetting, trained without the samples, and after."""
SIZE = (3.5, 2.2)


@dataclass(frozen=True)
class Outputs:
    """What the figures need of a model's outputs.

    Attributes:
        confidence: By part, the probability of the true class of each sample.
        answers: The probabilities of the classes on each forgotten sample.
    """

    confidence: Mapping[str, Tensor]
    answers: Tensor

    @property
    def ranked(self) -> Tensor:
        """The mean of the forgotten samples' probabilities, each sorted from high to low."""
        return self.answers.sort(1, descending=True).values.mean(0)

    @classmethod
    def of(cls, logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]) -> Outputs | None:
        """None if there are no outputs, or they are of other samples than the labels."""
        parts = [part for part in COLOURS if part in labels and part in logits]
        if "forget" not in parts or any(len(logits[p]) != len(labels[p]) for p in parts):
            return None
        confidence = {part: true_confidence(logits[part], labels[part]) for part in parts}
        return cls(confidence, logits["forget"].double().softmax(1))


def confidence_panel(title: str, model: Outputs, retrain: Outputs | None) -> Drawn:
    """For each part how confident the model is in the truth; Retrain's as an outline."""
    edges = torch.linspace(0, 1, BINS + 1)

    def shares(values: Tensor) -> list[float]:
        counts = torch.histc(values.float(), BINS, 0, 1)
        return (100 * counts / len(values)).tolist()

    bars = {part: shares(values) for part, values in model.confidence.items()}
    theirs = {} if retrain is None else {p: shares(v) for p, v in retrain.confidence.items()}
    top = 1.08 * max(max(row) for row in [*bars.values(), *theirs.values()])

    def paint(figure: Any) -> None:
        rows = figure.subplots(len(bars), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (part, row) in zip(rows, bars.items(), strict=True):
            axes.stairs(row, edges.tolist(), fill=True, color=COLOURS[part], alpha=0.85, lw=0)
            if part in theirs:
                axes.stairs(theirs[part], edges.tolist(), color=INK, lw=1.1)
            mean = 100 * model.confidence[part].mean().item()
            # Beside the bars, not on them: the left margin holds the name of the row.
            axes.set_ylabel(
                f"{part_name(part)}\nmean {mean:.0f} %",
                rotation=0,
                ha="right",
                va="center",
                color=INK,
            )
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
            axes.set_xlim(0, 1)
            axes.set_ylim(0, top)
        rows[-1].set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        rows[-1].set_xlabel("confidence in the true class" + (" (line: Retrain)" if theirs else ""))

    means = ", ".join(
        f"{part_name(part)} {100 * values.mean().item():.0f} %"
        for part, values in model.confidence.items()
    )
    alt = f"Histograms of the confidence in the true class, {title}. Means: {means}."
    return draw(f"confidence-{slug(title)}", title, alt, SIZE, paint)


def ranked_panel(title: str, answers: Mapping[str, Outputs | None]) -> Drawn:
    """How the answer on a forgotten sample is spread over the classes, first choice first.

    Args:
        title: Whose.
        answers: Those before, of Retrain, and after; None where they are not available.
    """
    confidences = {
        name: outputs.ranked[:RANKS] for name, outputs in answers.items() if outputs is not None
    }
    looks = {BEFORE: (SOFT, ":", "s"), RETRAIN: (INK, "--", "o"), AFTER: (FORGET, "-", "D")}

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for name, values in confidences.items():
            colour, line, marker = looks[name]
            ranks = range(1, len(values) + 1)
            axes.plot(
                ranks,
                (100 * values).tolist(),
                color=colour,
                ls=line,
                marker=marker,
                ms=3,
                lw=1.4,
                label=name,
            )
        axes.set_ylim(0, 104)
        axes.set_yticks([0, 50, 100], ["0 %", "50 %", "100 %"])
        axes.set_xticks(range(1, len(next(iter(confidences.values()))) + 1))
        axes.set_xlabel("first choice, second choice, …")
        axes.grid(axis="y")
        axes.legend(loc="upper right", fontsize=8)

    top = ", ".join(
        f"{name} {100 * values[0].item():.0f} %" for name, values in confidences.items()
    )
    alt = f"Mean probabilities on forgotten samples from high to low, {title}. First choice: {top}."
    return draw(f"answers-{slug(title)}", title, alt, (3.5, 1.9), paint)
