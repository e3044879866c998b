"""What a verdict is, and how an ordered table of rules decides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")

SMALLEST = 2.0
"""Gaps of up to so many points are ignored, however exactly they are known."""

HARM = 5.0
"""How many points the accuracy on retained and new samples may fall."""

COARSE = 10.0
"""Where chance may explain gaps of more points than this, the verdict is "Inconclusive"."""

PROOF = (
    "Measurements like these can show that something is remembered; they cannot prove that "
    "nothing is."
)


EXACT = (
    "The network was trained anew without the samples; the mean and standard deviation that inputs "
    "are normalised by may still include them."
)


@dataclass(frozen=True)
class Verdict:
    """An answer.

    Attributes:
        level: "yes", "mostly", "unsure", "no", "too-much" or "damaged".
        word: The answer in a word or two.
        headline: The rest of the sentence.
        reasons: What it rests on.
        cautions: How far it can be trusted.
        met: False if a target was missed, that of this request or of an earlier one.
        chance: The gap that chance alone may make in the figures that decided, in points.
    """

    level: str
    word: str
    headline: str
    reasons: tuple[str, ...]
    cautions: tuple[str, ...] = (PROOF,)
    met: bool = True
    chance: float = 0.0

    @property
    def answer(self) -> str:
        """The answer in a sentence."""
        return f"{self.word}: {self.headline}"

    def __str__(self) -> str:
        return " ".join([self.answer, *self.reasons])


@dataclass(frozen=True)
class Rule(Generic[V]):
    """One answer, and when it is the answer.

    Attributes:
        applies: Whether it is, from what was measured.
        level: The verdict's level.
        word: Its word.
        headline: The rest of the sentence, or a function that makes it from what was measured.
    """

    applies: Callable[[V], bool]
    level: str
    word: str
    headline: str | Callable[[V], str]


def decided(
    rules: Iterable[Rule[V]],
    view: V,
    reasons: tuple[str, ...],
    cautions: tuple[str, ...],
    chance: float,
) -> Verdict:
    """The verdict of the first rule that applies."""
    rule = next(rule for rule in rules if rule.applies(view))
    headline = rule.headline if isinstance(rule.headline, str) else rule.headline(view)
    return Verdict(rule.level, rule.word, headline, reasons, cautions, chance=chance)
