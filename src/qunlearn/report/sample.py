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
from qunlearn.report.outputs import AFTER, BEFORE, RETRAIN, Outputs

CLASSES, LETTERS = 10, 16


def sample_panels(
    split: Split,
    models: Mapping[str, Outputs],
    before: Outputs | None,
    retrain: Outputs | None,
    *,
    image: bool,
) -> tuple[list[Drawn], str]:
    """A panel for each model, and what to look for; none if the answers are not available.

    Args:
        split: What was forgotten.
        models: By name, those that have forgotten.
        before: The model that was trained on the samples.
        retrain: The one trained without them, which chooses the sample; else the only model does.
        image: Whether to show the sample itself as well.
    """
    judge = retrain or (next(iter(models.values())) if len(models) == 1 else None)
    if before is None or judge is None:
        return no_panels(image=image)
    labels = split.data.labels[split.forget]
    sample = Sample.telling(labels, split.data.classes, before, judge, *models.values())
    drawn = [
        sample_panel(name, sample, {BEFORE: before, RETRAIN: retrain, AFTER: outputs})
        for name, outputs in models.items()
    ]
    if image:
        true_class = sample.names[sample.truth]
        drawn.insert(0, image_panel(split.data.images[split.forget[sample.place]], true_class))
    return drawn, sample.words(by_retrain=retrain is not None)


def no_panels(*, image: bool) -> tuple[list[Drawn], str]:
    """Nothing, unless an image was asked for."""
    if image:
        raise UserError(
            "There is no sample whose image could be shown: it is chosen by the answers before and "
            "after forgetting, and not both are available; put the run before back where it was, "
            "or leave --image out."
        )
    return [], ""


@dataclass(frozen=True)
class Sample:
    """A forgotten sample, and the classes that its panels show, the same in each.

    Attributes:
        place: Which of the forgotten samples it is.
        shown: The classes, in their order: the true one, and those that any model thinks of most.
        truth: Which of `shown` is the true one.
        names: What the classes shown are called, cut to fit.
        fell: From what to what the confidence in the true class went.
    """

    place: int
    shown: Tensor
    truth: int
    names: tuple[str, ...]
    fell: tuple[float, float]

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
        confidence = before.confidence["forget"], after.confidence["forget"]
        place = int((confidence[0] - confidence[1]).argmax())
        truth = int(labels[place])
        most = torch.stack([model.answers[place] for model in (before, after, *others)]).amax(0)
        most[truth] = torch.inf
        shown = most.topk(min(CLASSES, len(most))).indices.sort().values
        names = tuple(fitting(classes[c]) for c in shown.tolist())
        fell = float(confidence[0][place]), float(confidence[1][place])
        return cls(place, shown, shown.tolist().index(truth), names, fell)

    def words(self, *, by_retrain: bool) -> str:
        """Which sample it is, and what to look for."""
        then, now = (f"{100 * confidence:.0f} %" for confidence in self.fell)
        judge = "in Retrain" if by_retrain else "after"
        lead = (
            f"The forgotten sample whose true class lost most confidence: {then} before, {now} "
            f"{judge}. "
            if self.fell[0] > self.fell[1]
            else "No forgotten sample's true class lost confidence; this one's gained least: "
            f"{then} before, {now} {judge}. "
        )
        if by_retrain:
            return lead + (
                "Good: the bar of the true class ends near Retrain's mark. To which classes the "
                "rest goes is chance, and another Retrain may choose others; but they are few, "
                "for a model is seldom evenly uncertain about what it never saw."
            )
        return lead + "It is the one that changed most, not a typical one."


def fitting(name: str) -> str:
    r"""A class name that leaves room for its bar, and can stand in XML.

    >>> fitting("cat"), fitting("Chesapeake Bay retriever"), fitting("c\x00t")
    ('cat', 'Chesapeake Bay …', 'c?t')
    """
    clean = "".join(letter if letter.isprintable() else "?" for letter in name)
    return clean if len(clean) <= LETTERS else f"{clean[: LETTERS - 1]}…"


def sample_panel(title: str, sample: Sample, answers: Mapping[str, Outputs | None]) -> Drawn:
    """How the answer on one forgotten sample is spread over the classes, by name.

    Args:
        title: Whose.
        sample: The sample.
        answers: Those before, of Retrain, and after; None where they are not available.
    """
    percent = {
        name: (100 * outputs.answers[sample.place][sample.shown]).tolist()
        for name, outputs in answers.items()
        if outputs is not None
    }
    places = range(len(sample.names))
    labels = [n + (" (true)" if i == sample.truth else "") for i, n in enumerate(sample.names)]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        signs = []
        for name, values in percent.items():
            if name == BEFORE:
                drawn = axes.barh(places, values, 0.8, fill=False, edgecolor=SOFT, lw=1, ls=":")
            elif name == RETRAIN:
                (drawn,) = axes.plot(values, places, "|", color=INK, ms=9, mew=2, zorder=3)
            else:
                drawn = axes.barh(places, values, 0.5, color=FORGET)
            signs.append(drawn)
        axes.set_yticks(places, labels)
        axes.get_yticklabels()[sample.truth].set(color=INK, weight="bold")
        axes.set_ylim(len(places) - 0.4, -0.6)  # the first class is on top
        axes.set_xlim(0, 104)
        axes.set_xticks([0, 50, 100], ["0 %", "50 %", "100 %"])
        axes.grid(axis="x")
        axes.spines["left"].set_color(LINE)
        axes.legend(
            signs, percent, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=3, fontsize=8
        )

    shares = ", ".join(f"{name} {values[sample.truth]:.0f} %" for name, values in percent.items())
    alt = f"Probabilities of the classes on one forgotten sample, {title}. True class: {shares}."
    return draw(f"sample-{slug(title)}", title, alt, (3.5, 0.9 + 0.19 * len(places)), paint)


def image_panel(image: Tensor, true_class: str) -> Drawn:
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

    return draw(
        "image",
        f"the sample: {true_class}",
        f"A forgotten sample: {true_class}.",
        (3.5, 2.8),
        paint,
    )
