"""The tuned constants of the calibrated method, in one table.

They were chosen by looking at seed 0 of three networks (quarter-width ResNet-18 W4A4, 10 %
forgotten): the first and the second were trained on 5,000 images of CIFAR-10 each, the third on
5,000 of CIFAR-100. The method was then tested on data that nobody had looked at
(docs/reference/results.md).
"""

from __future__ import annotations

from typing import NamedTuple

FIRST = "the first network"
AGAIN = "the second network; CIFAR-100"
DIGITS = "the first network; noisy digits"
HUNDRED = "CIFAR-100"
THIRD = "a network trained once more, CIFAR-10"
CHOSEN = "no search on record"
ALL = "chosen after seeing all of CIFAR-10 (10 points) and 5,000 images (26)"


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
        3, "versions", "augmented versions that a sample's difficulty is the mean of", CHOSEN
    ),
    "MEMBERS": Constant(
        300, "samples", "retained samples that a forgotten one is ranked among, at most", CHOSEN
    ),
    "UNSEEN": Constant(
        500, "samples", "unseen samples that the target is estimated from, at most", CHOSEN
    ),
    "LEARNING": Constant(
        0.45,
        "exponent",
        "errors on unseen samples grow by this power as training data shrink",
        FIRST,
    ),
    "PRIOR": Constant(
        20, "samples", "weight of all classes together in the target of one class", CHOSEN
    ),
    "UNKNOWN": Constant(
        2,
        "samples",
        "pseudo-samples of confidence 0 or 1 added to the unseen ones' variance",
        CHOSEN,
    ),
    "FEWEST": Constant(
        10, "samples", "unseen samples that a target is estimated from, at least", CHOSEN
    ),
    # The push: how the log-odds of the true label are lowered.
    "PUSH": Constant(
        0.6, "of the retain gradient", "weight of a sample that is far above its target", FIRST
    ),
    "SLACK": Constant(
        0.2, "probability", "distance above the target at which the push is full", CHOSEN
    ),
    "WRONG": Constant(
        8.0, "log-odds", "the same, for a sample whose target is a wrong prediction", AGAIN
    ),
    "BELOW": Constant(
        0.05, "probability", "mean distance below the targets at which no sample is pushed", DIGITS
    ),
    "RECENT": Constant(
        256, "samples", "most recently pushed samples that this mean is taken over, at most", DIGITS
    ),
    "FOLLOWS": Constant(3, "times", "how often the targets are estimated while pushing", CHOSEN),
    "FORGET_BATCH": Constant(32, "samples", "forget samples in a step, at most", FIRST),
    "EARLIER": Constant(
        512,
        "samples",
        "samples of earlier requests that are held at their confidence, at most",
        CHOSEN,
    ),
    # The schedule: how many steps, and at which learning rate.
    "MEMORISED": Constant(
        15.0, "points", "confidence above the target at which forgetting is deep at once", ALL
    ),
    "DEEP_LR": Constant(0.05, "", "learning rate at depth deep", THIRD),
    "DEEP_NOISE": Constant(
        0.5, "of a tensor's spread", "noise on the weights, which are scaled back", THIRD
    ),
    "DEEP_FLOOR": Constant(120, "steps", "steps of the push phase, at least", THIRD),
    "DEEP_GROWTH": Constant(3, "steps", "further such steps for each forget batch", CHOSEN),
    "DEEP_VISITS": Constant(7, "visits", "pushes of each sample, at most one batch a step", THIRD),
    "DEEP_REPAIR": Constant(450, "steps", "steps of the repair, at least", THIRD),
    "SHALLOW_LR": Constant(0.01, "", "learning rate at depth shallow", FIRST),
    "SHALLOW_FLOOR": Constant(16, "steps", "steps of the push phase, at least", THIRD),
    "SHALLOW_GROWTH": Constant(2, "steps", "further such steps for each forget batch", THIRD),
    "SHALLOW_REPAIR": Constant(1.3, "of the push phase", "steps of the repair", THIRD),
    "LONGEST_REPAIR": Constant(120, "steps", "steps of a shallow repair, at most", CHOSEN),
    "PASSES": Constant(10, "epochs", "passes over the retained samples, at most", CHOSEN),
    "PLAIN": Constant(0.6, "of the repair", "the last steps, without augmentation", THIRD),
    "ROUND": Constant(64, "steps", "steps of a round, about", CHOSEN),
    "WATCHED": Constant(
        500, "samples", "retained samples whose accuracy is compared before and after", CHOSEN
    ),
    "RECOVERED": Constant(
        1.0,
        "points",
        "fall of that accuracy at which the repair is repeated; a third of it for a third request",
        CHOSEN,
    ),
    # The verdict.
    "CLOSE": Constant(
        2.0, "points", "distance from the target that always counts as reached", CHOSEN
    ),
    "REST": Constant(
        0.25, "of the way", "distance above the target that chance may excuse, at most", CHOSEN
    ),
    "FAR": Constant(
        10.0, "points", "distance below the target that chance may excuse, at most", CHOSEN
    ),
    "UNEVEN": Constant(
        0.1, "KS distance", "distance of the distributions that always counts as reached", CHOSEN
    ),
    # The relearning probe.
    "PROBE_STEPS": Constant(200, "steps", "steps of fine-tuning, at most", CHOSEN),
    "PROBE_PASSES": Constant(5, "epochs", "passes over the retained samples, at most", CHOSEN),
    "PROBE_LR": Constant(0.05, "", "learning rate that it starts from", CHOSEN),
}
"""Every constant that the method was tuned by."""


def _value(name: str) -> float:
    return CONSTANTS[name].value


def _count(name: str) -> int:
    return int(_value(name))


DRAWS, MEMBERS, UNSEEN = _count("DRAWS"), _count("MEMBERS"), _count("UNSEEN")
LEARNING, PRIOR, UNKNOWN = _value("LEARNING"), _value("PRIOR"), _value("UNKNOWN")
FEWEST, RECENT, EARLIER = _count("FEWEST"), _count("RECENT"), _count("EARLIER")
PUSH, SLACK, WRONG, BELOW = (_value(name) for name in ("PUSH", "SLACK", "WRONG", "BELOW"))
FORGET_BATCH, FOLLOWS = _count("FORGET_BATCH"), _count("FOLLOWS")
DEEP_LR, DEEP_NOISE = _value("DEEP_LR"), _value("DEEP_NOISE")
DEEP_FLOOR, DEEP_GROWTH = _count("DEEP_FLOOR"), _count("DEEP_GROWTH")
DEEP_VISITS, DEEP_REPAIR = _count("DEEP_VISITS"), _count("DEEP_REPAIR")
SHALLOW_LR, SHALLOW_REPAIR = _value("SHALLOW_LR"), _value("SHALLOW_REPAIR")
SHALLOW_FLOOR, SHALLOW_GROWTH = _count("SHALLOW_FLOOR"), _count("SHALLOW_GROWTH")
LONGEST_REPAIR, PASSES = _count("LONGEST_REPAIR"), _count("PASSES")
PLAIN, ROUND, WATCHED = _value("PLAIN"), _count("ROUND"), _count("WATCHED")
RECOVERED, MEMORISED = _value("RECOVERED"), _value("MEMORISED")
CLOSE, REST, FAR, UNEVEN = (_value(name) for name in ("CLOSE", "REST", "FAR", "UNEVEN"))
PROBE_STEPS, PROBE_PASSES = _count("PROBE_STEPS"), _count("PROBE_PASSES")
PROBE_LR = _value("PROBE_LR")


def table() -> str:
    """The constants as a table in Markdown, as docs/explain/calibration.md has it."""
    head = "| constant | value | unit | what it does | settled on |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| `{name}` | {each.value:g} | {each.unit} | {each.meaning} | {each.settled_on} |\n"
        for name, each in CONSTANTS.items()
    )
