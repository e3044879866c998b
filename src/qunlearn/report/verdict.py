"""Did the model forget? The answer in words, as careful as the measurements are coarse."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = 2.0
"""Gaps of so many points are not spoken of, however exactly they are known."""
HARM = 5.0
"""By so many points a model may be worse at what it should keep."""
COARSE = 10.0
"""Where smaller gaps than this cannot be told from chance, nothing is called forgotten."""

PROOF = (
    "Measurements like these can show that something is remembered; they cannot prove that "
    "nothing is."
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
    """

    level: str
    word: str
    headline: str
    reasons: tuple[str, ...]
    cautions: tuple[str, ...] = (PROOF,)
    met: bool = True

    @property
    def answer(self) -> str:
        """The answer in a sentence."""
        return f"{self.word}: {self.headline}"

    def __str__(self) -> str:
        return " ".join([self.answer, *self.reasons])
