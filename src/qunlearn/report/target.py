"""Whether a calibrated method reached its target, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qunlearn.methods.calibration import state_of
from qunlearn.report.html import counted
from qunlearn.report.verdict import COARSE, Verdict


@dataclass(frozen=True)
class Target:
    """A target, and where the forgotten samples ended: mean confidences in the truth, in percent.

    Attributes:
        state: "reached", "short", "too far", "little" or "open"; see `state_of`.
        aimed: The target.
        reached: What was reached.
        before: What it was before forgetting.
        chance: How far off the target itself may be (95 %).
        samples: How many samples were to be forgotten.
        unseen: From how many unseen samples the target was estimated.
        random: Whether the request was a random share.
        gone: Whether nothing is retained of the samples' classes.
        epochs: For how many epochs it ran; 0 if that is not known.
        down: In which of them the samples first were at or below target.
        sharpened: By what the logits were multiplied.
        remedy: What to do if the target was missed.
    """

    state: str
    aimed: float
    reached: float
    before: float
    chance: float
    samples: int
    unseen: int
    random: bool
    gone: bool = False
    epochs: int = 0
    down: int | None = None
    sharpened: float = 1.0
    remedy: str = ""

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Target | None:
        """That of a run, from its figures; None if its method has none.

        The state is judged anew: older versions called more of them reached.
        """
        if "calibration" not in metrics:
            return None
        before = 100 * metrics["before"]["parts"]["forget"]["confidence"]
        found = {"before": before, **metrics["calibration"]}
        known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        return cls(**{**known, "state": state_of(found)})

    @property
    def met(self) -> bool:
        """Whether nothing speaks against it."""
        return self.state not in ("short", "too far")

    @property
    def above(self) -> float:
        """By how many points the samples ended above it."""
        return self.reached - self.aimed

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        lead = {
            "reached": "Target reached.",
            "short": f"Target not reached: {self.above:.1f} points above it{remedy}.",
            "too far": f"Target overshot: {-self.above:.1f} points below it{remedy}.",
            "little": "There was little to forget.",
            "open": f"The sample is {-self.above:.1f} points below its target; a single sample "
            "cannot show whether that is too far.",
        }[self.state]
        target = (
            "0 %, for nothing of the class is retained"
            if self.gone
            else f"{self.aimed:.1f} ± {self.chance:.1f} % (estimated from "
            f"{counted(self.unseen, 'unseen sample')})"
        )
        said = (
            f"{lead} Mean confidence in the true label on the forgotten samples: "
            f"{self.reached:.1f} %, target {target}, before forgetting {self.before:.1f} %."
        )
        if self.epochs and self.state != "little":
            when = f"epoch {self.down} of {self.epochs}" if self.down else "no epoch"
            said += f" First at or below target in {when}."
        if self.sharpened > 1.02:
            said += (
                f" Logits were multiplied by {self.sharpened:.2f} to restore the temperature; no "
                "prediction changes."
            )
        if not self.random and not self.gone:
            said += " The request is no random share; unseen samples are the best model there is."
        return said

    def judge(self, verdict: Verdict) -> Verdict:
        """The verdict on its network, where there is no Retrain to decide it."""
        level, word, headline = self._answer(verdict)
        return Verdict(level, word, headline, verdict.reasons, verdict.cautions)

    def _answer(self, verdict: Verdict) -> tuple[str, str, str]:
        remedy = f"; {self.remedy}" if self.remedy else ""
        if verdict.level == "damaged":
            return verdict.level, verdict.word, verdict.headline
        if self.state == "short":
            word = "Only in part" if self.above < (self.before - self.aimed) / 2 else "No"
            off = f"{self.above:.1f} points surer of the forgotten samples than it should be"
            return "no", word, f"it is still {off}{remedy}."
        if self.state == "too far":
            off = f"{-self.above:.1f} points less sure of the forgotten samples than of unseen ones"
            return "too-much", "Too much", f"it is {off}, which can give them away{remedy}."
        if self.gone:
            return verdict.level, verdict.word, verdict.headline
        if self.state == "little":
            said = "already before, the model treated these samples much like unseen ones."
            return "unsure", "Cannot be told", said
        if self.samples == 1:
            said = "the model may well never have seen the sample, but one sample shows little."
            return "unsure", "Cannot be told", said
        if self.chance > COARSE:
            said = (
                "the target is reached, but with so few samples it may itself be off by "
                f"{self.chance:.0f} points."
            )
            return "unsure", "Cannot be told", said
        said = (
            "the target is reached, and as far as this can tell the model treats the forgotten "
            "samples like unseen ones."
        )
        return "yes", "Yes", said
