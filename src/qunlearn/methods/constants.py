"""The tuned constants of the calibrated method, in one table.

They were chosen by looking at seed 0 of these, all quarter-width ResNet-18 W4A4 with 10 % forgotten:
the first and the second network, trained on 5,000 images of CIFAR-10 each, and one on 5,000 images
of CIFAR-100. The method was then tested on data that nobody had looked at (docs/results.md).
"""

from __future__ import annotations

from typing import NamedTuple

FIRST = "the first network"
AGAIN = "the second network; CIFAR-100"
DIGITS = "the first network; noisy digits"
HUNDRED = "CIFAR-100"
TEN = "six requests of ten samples, CIFAR-10; noisy digits"
CHOSEN = "no search on record"


class Constant(NamedTuple):
    """A tuned constant.

    Attributes:
        value: Its value.
        unit: What it is counted in.
        meaning: What it does.
        settled_on: The data that it was chosen by looking at.
    """

    value: float
    unit: str
    meaning: str
    settled_on: str


CONSTANTS = {
    # The target: what unseen samples look like.
    "DRAWS": Constant(
        8, "versions", "augmented versions that a sample's difficulty is the mean of", CHOSEN
    ),
    "MEMBERS": Constant(
        500, "samples", "retained samples that a forgotten one is ranked among, at most", CHOSEN
    ),
    "LEARNING": Constant(
        0.45,
        "exponent",
        "errors on unseen samples grow by this power as training data shrink",
        FIRST,
    ),
    "PRIOR": Constant(
        20, "samples", "samples of all classes that count beside those of a class", CHOSEN
    ),
    "UNKNOWN": Constant(
        2, "samples", "samples of unknown confidence that count beside the unseen ones", CHOSEN
    ),
    "FEWEST": Constant(
        10, "samples", "unseen samples that a target is estimated from, at least", CHOSEN
    ),
    # The push: how the log-odds of the true label are lowered.
    "PUSH": Constant(
        0.6, "of the retain gradient", "weight of a sample that is far above its target", FIRST
    ),
    "SLACK": Constant(
        0.2, "probability", "distance above the target from which on the push is full", CHOSEN
    ),
    "WRONG": Constant(
        8.0, "log-odds", "the same, for a sample whose target is a wrong prediction", AGAIN
    ),
    "BELOW": Constant(
        0.05, "probability", "mean distance below the targets at which no sample is pushed", DIGITS
    ),
    "RECENT": Constant(
        256, "samples", "most recently pushed samples that this mean is over, at most", DIGITS
    ),
    # The schedule: how long, and in which steps.
    "EPOCHS": Constant(5, "epochs", "passes over the retained samples, at least", FIRST),
    "PER_SHARE": Constant(
        30, "epochs", "passes for a request of everything; a smaller one takes its share", FIRST
    ),
    "LR": Constant(0.01, "", "learning rate", FIRST),
    "SMALL": Constant(
        0.1, "share", "requests below this share have a learning rate in proportion", TEN
    ),
    "LEAST": Constant(0.3, "of LR", "the smallest learning rate", TEN),
    "PUSHES": Constant(64, "batches", "forget batches in a run, at least", DIGITS),
    "TURNS": Constant(
        15, "visits", "visits to a sample in a run, at most, at learning rate LR", DIGITS
    ),
    "ONE_TURN": Constant(0.35, "probability", "distance that one visit per epoch covers", HUNDRED),
    # The verdict.
    "CLOSE": Constant(
        2.0, "points", "distance from the target that always counts as reached", CHOSEN
    ),
    "REST": Constant(0.25, "of the way", "distance left that chance may excuse, at most", CHOSEN),
    "FAR": Constant(
        10.0, "points", "distance below the target that chance may excuse, at most", CHOSEN
    ),
}
"""Every constant that the method was tuned by."""


def _value(name: str) -> float:
    return CONSTANTS[name].value


DRAWS, MEMBERS, FEWEST = (int(_value(name)) for name in ("DRAWS", "MEMBERS", "FEWEST"))
LEARNING, PRIOR, UNKNOWN = _value("LEARNING"), _value("PRIOR"), _value("UNKNOWN")
PUSH, SLACK, WRONG, BELOW = (_value(name) for name in ("PUSH", "SLACK", "WRONG", "BELOW"))
RECENT, EPOCHS, TURNS = (int(_value(name)) for name in ("RECENT", "EPOCHS", "TURNS"))
PER_SHARE, LR, SMALL, LEAST = (_value(name) for name in ("PER_SHARE", "LR", "SMALL", "LEAST"))
PUSHES, ONE_TURN = _value("PUSHES"), _value("ONE_TURN")
CLOSE, REST, FAR = (_value(name) for name in ("CLOSE", "REST", "FAR"))


def table() -> str:
    """The constants as a table in Markdown, as docs/calibration.md has it."""
    head = "| constant | value | unit | what it does | settled on |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| `{name}` | {each.value:g} | {each.unit} | {each.meaning} | {each.settled_on} |\n"
        for name, each in CONSTANTS.items()
    )
