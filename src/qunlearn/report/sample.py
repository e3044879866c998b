"""One forgotten sample: what the model answered on it before, and what it answers now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.report.drawing import FORGET, INK, LINE, SOFT, Drawn, draw, slug
from qunlearn.report.outputs import BEFORE, RETRAIN, Outputs

CLASSES, LETTERS = 10, 20
IMAGE = "sample-image"


def sample_panels(
    split: Split,
    models: Mapping[str, Outputs],
    before: Outputs | None,
    judge: Outputs | None,
    retrain: Outputs | None,
    *,
    image: bool,
) -> list[Drawn]:
    """A panel for each model; none if what was answered before is not at hand.

    Args:
        split: What was forgotten.
        models: By name, those that have forgotten.
        before: The model that was trained on the samples.
        judge: The model by whose answers the sample is chosen; see `Sample.telling`.
        retrain: The one trained without them, if there is one.
        image: Whether to show the sample itself as well.
    """
    if before is None or judge is None:
        return no_panels(image=image)
    labels = split.data.labels[split.forget]
    sample = Sample.telling(labels, split.data.classes, before, judge, *models.values())
    drawn = [
        sample_panel(name, sample, {BEFORE: before, RETRAIN: retrain, name: own})
        for name, own in models.items()
    ]
    if image:
        named = sample.names[sample.truth]
        drawn.insert(0, image_panel(split.data.images[split.forget[sample.place]], named))
    return drawn


def no_panels(*, image: bool) -> list[Drawn]:
    """An empty list, unless an image was asked for."""
    if image:
        raise UserError(
            "There is no sample whose image could be shown: it is chosen by the answers before and "
            "after forgetting, and these were not kept; leave --image out."
        )
    return []


@dataclass(frozen=True)
class Sample:
    """A forgotten sample, and the classes that its panels show, the same in each.

    Attributes:
        place: Which of the forgotten samples it is.
        shown: The classes, in their order: the true one, and those that any model thinks of most.
        truth: Which of `shown` is the true one.
        names: What the classes shown are called.
    """

    place: int
    shown: Tensor
    truth: int
    names: tuple[str, ...]

    @classmethod
    def telling(
        cls,
        labels: Tensor,
        classes: Sequence[str],
        before: Outputs,
        after: Outputs,
        *others: Outputs,
    ) -> Sample:
        """The sample whose true class lost most confidence from one model to another.

        Args:
            labels: The true classes of the forgotten samples.
            classes: The names of all classes.
            before: The model that was trained on the samples.
            after: The model that decides which sample it is.
            others: Models whose answers will be shown as well.
        """
        lost = before.confidence["forget"] - after.confidence["forget"]
        place = int(lost.argmax())
        truth = int(labels[place])
        most = torch.stack([model.answers[place] for model in (before, after, *others)]).amax(0)
        most[truth] = torch.inf
        shown = most.topk(min(CLASSES, len(most))).indices.sort().values
        names = (classes[c] for c in shown.tolist())
        short = tuple(n if len(n) <= LETTERS else f"{n[: LETTERS - 1]}…" for n in names)
        return cls(place, shown, shown.tolist().index(truth), short)


def sample_panel(title: str, sample: Sample, answers: Mapping[str, Outputs | None]) -> Drawn:
    """How the answer on one forgotten sample is spread over the classes, by name.

    Args:
        title: Whose.
        sample: The sample.
        answers: By name: `BEFORE` and `RETRAIN`, if at hand, then the model's own.
    """
    known = {
        name: (100 * found.answers[sample.place][sample.shown]).tolist()
        for name, found in answers.items()
        if found is not None
    }
    places = range(len(sample.names))
    named = [n + (" (true)" if i == sample.truth else "") for i, n in enumerate(sample.names)]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for name, values in known.items():
            if name == BEFORE:
                axes.barh(places, values, 0.8, fill=False, edgecolor=SOFT, lw=1, ls=":", label=name)
            elif name == RETRAIN:
                axes.plot(values, places, "|", color=INK, ms=9, mew=2, zorder=3, label=name)
            else:
                axes.barh(places, values, 0.5, color=FORGET, label=name)
        axes.set_yticks(places, named)
        axes.get_yticklabels()[sample.truth].set(color=INK, weight="bold")
        axes.set_ylim(len(places) - 0.4, -0.6)  # the first class is on top
        axes.set_xlim(0, 104)
        axes.set_xticks([0, 50, 100], ["0 %", "50 %", "100 %"])
        axes.grid(axis="x")
        axes.spines["left"].set_color(LINE)
        signs = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        where: Any = {"loc": "lower center", "bbox_to_anchor": (0.4, 1)}
        axes.legend([signs[name] for name in known], known, ncols=3, fontsize=8, **where)

    said = ", ".join(f"{name} {values[sample.truth]:.0f} %" for name, values in known.items())
    alt = f"Probabilities of the classes on one forgotten sample, {title}. True class: {said}."
    return draw(f"sample-{slug(title)}", title, alt, (3.5, 0.9 + 0.19 * len(places)), paint)


def image_panel(image: Tensor, named: str) -> Drawn:
    """The sample itself, C×H×W."""
    pixels = image.double()
    if len(pixels) not in (1, 3):
        pixels = pixels.mean(0, keepdim=True)
    if image.dtype == torch.uint8:
        pixels = pixels / 255
    else:
        pixels = (pixels - pixels.amin()) / (pixels.amax() - pixels.amin()).clamp(min=1e-12)
    rows = pixels.permute(1, 2, 0).squeeze(-1).tolist()

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.imshow(rows, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.axis("off")

    return draw(IMAGE, f"the sample: {named}", f"A forgotten sample: {named}.", (3.5, 2.8), paint)
