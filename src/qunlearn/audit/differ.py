"""What an attacker learns who has the network before and after forgetting.

Outputs change most where something was forgotten, so that the difference may say what it was (Chen
et al. 2021). A Retrain differs from the network before as well, and most on the forgotten samples:
it sets the measure. Telling more than a Retrain leaks the request; a smaller change than a
Retrain's says that samples were not forgotten. An attacker who knows the method can also learn the
difference from a shadow pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from qunlearn.audit.bits import ChangedCodes, changed_codes, codes_of
from qunlearn.audit.case import Case
from qunlearn.audit.registry import Audit, Work, audits
from qunlearn.audit.row import LEVEL, PASS, AuditRow, Figure, Judgement, NotApplicable
from qunlearn.audit.shadow import Score, Shadow, ShadowConfig, learned
from qunlearn.data.draw import spread
from qunlearn.metrics import auc, margin, tpr_at_fpr
from qunlearn.metrics.bootstrap import Interval
from qunlearn.metrics.delong import auc_difference_interval, auc_interval
from qunlearn.metrics.retrain_free import retrain_free_divergence
from qunlearn.training.inference import predict

TOLERANCE = 0.02
"""By so much two Retrains of other seeds may differ in AUC, beyond what samples show."""
RETAINED = 2000
"""Retained samples that are compared with, at most."""

Against = Literal["unseen", "retained"]


def output_distance(before: Tensor, after: Tensor, labels: Tensor) -> Tensor:
    """The L2 distance of the probabilities.

    >>> output_distance(torch.tensor([[99.0, 0]]), torch.tensor([[0, 99.0]]), torch.tensor([0]))
    tensor([1.4142], dtype=torch.float64)
    """
    change = before.double().softmax(1) - after.double().softmax(1)
    return change.square().sum(1).sqrt()


def log_odds_fall(before: Tensor, after: Tensor, labels: Tensor) -> Tensor:
    """By how much the log-odds of the true label fell."""
    return margin(before.double(), labels) - margin(after.double(), labels)


def loss_rise(before: Tensor, after: Tensor, labels: Tensor) -> Tensor:
    """By how much the cross-entropy rose."""
    now, then = (cross_entropy(x.double(), labels, reduction="none") for x in (after, before))
    return now - then


SCORES: Mapping[str, Score] = {
    "output distance": output_distance,
    "log-odds": log_odds_fall,
    "loss": loss_rise,
}
"""What is compared, sample by sample; forgotten samples are expected to have more of it."""
LEARNED = "shadow classifier"
"""The score that is learned from a shadow pair."""


@dataclass(frozen=True)
class Attack:
    """A score that is to separate forgotten samples from others.

    Attributes:
        name: What is compared.
        against: The other samples.
        score: The score of a sample.
        on_retrain: The score where the network after forgetting is a Retrain.
    """

    name: str
    against: Against
    score: Score
    on_retrain: Score


OTHERS: tuple[Against, ...] = ("unseen", "retained")
FIXED = tuple(Attack(name, to, score, score) for name, score in SCORES.items() for to in OTHERS)
"""The attacks that need nothing but the two networks."""


def learned_attacks(shadow: Shadow) -> tuple[Attack, ...]:
    """The attacks by what was learned from a shadow pair, and for Retrain from a shadow Retrain."""
    theirs = shadow.retrain or shadow.scores
    return tuple(Attack(LEARNED, to, shadow.scores[to], theirs[to]) for to in OTHERS)


@dataclass(frozen=True)
class Separation:
    """How well a score separates forgotten samples from others.

    Attributes:
        score: What is compared.
        against: The other samples.
        auc: The probability that a forgotten sample has more of it; 0.5 is chance.
        interval: Where the AUC lies.
        tpr: The share of forgotten samples recognised at a false-positive rate of 1 %, and of
            0.1 %; None where there are fewer than 100, or 1,000, others.
        retrain: The AUC between the network before and a Retrain.
        retrain_tpr: The same shares for a Retrain.
        beyond: Where the difference to Retrain's AUC lies.
    """

    score: str
    against: Against
    auc: float
    interval: Interval
    tpr: tuple[float | None, float | None]
    retrain: float | None = None
    retrain_tpr: tuple[float | None, float | None] = (None, None)
    beyond: Interval | None = None


@dataclass(frozen=True)
class DifferAudit:
    """What the difference of two networks tells.

    Attributes:
        separations: By each score, against unseen and against retained samples.
        memorised: The AUC of the confidence before forgetting, forgotten against unseen samples.
        divergence: The retrain-free divergence (RF-JSD) after forgetting; None without classes in
            common.
        divergence_before: The same before forgetting.
        samples: How many samples each part has.
        changed: The integer codes that changed, layer by layer; None in full precision.
        shadow: How many samples the shadow network forgot; None without a shadow pair.
    """

    separations: tuple[Separation, ...]
    memorised: Interval
    divergence: float | None
    divergence_before: float | None
    samples: Mapping[str, int]
    changed: ChangedCodes | None = None
    shadow: int | None = None

    def row(self) -> AuditRow:
        """Fails if the difference tells more than a Retrain's, or less is changed than by it."""
        judged = self.judged()
        figures = [
            Figure(f"AUC by {s.score}, against {s.against}", s.auc, s.interval, s.retrain)
            for s in sorted(self.separations, key=_furthest, reverse=True)
        ]
        figures.append(Figure("retrain-free divergence", self.divergence))
        compared = any(s.retrain is not None for s in self.separations)
        needs = ["network", "network before"]
        needs += ["Retrain"] * compared + ["shadow pair"] * (self.shadow is not None)
        return AuditRow(
            "differ",
            tuple(needs),
            tuple(figures),
            judged.verdict,
            judged.reason,
            detail=judged.detail,
        )

    def judged(self) -> Judgement:
        """The verdict, and what decided it."""
        compared = [(s, s.beyond) for s in self.separations if s.beyond is not None]
        tells = [s for s, beyond in compared if beyond.low > TOLERANCE]
        if tells:
            worst = max(tells, key=_furthest)
            detail = {"score": worst.score, "against": worst.against}
            return Judgement("fail", "separates more", detail)
        # That a classifier learned less is its misfortune: it says nothing of the network.
        still = [s for s, beyond in compared if beyond.high < -TOLERANCE and s.score != LEARNED]
        if still:
            worst = max(still, key=_furthest)
            detail = {"score": worst.score, "against": worst.against}
            return Judgement("fail", "changed less", detail)
        if compared:
            return PASS
        unseen = [s for s in self.separations if s.against == "unseen" and s.score != LEARNED]
        unmoved = all(s.interval.high <= 0.5 + TOLERANCE for s in unseen)
        if self.memorised.low > 0.5 and unmoved:
            return Judgement("fail", "unchanged")
        return Judgement("cannot be told", "no Retrain")


def _furthest(separation: Separation) -> float:
    other = 0.5 if separation.retrain is None else separation.retrain
    return abs(separation.auc - other)


def differ(case: Case, settings: ShadowConfig) -> DifferAudit:
    """Compare the networks before and after forgetting; see `DifferAudit`."""
    if case.before is None:
        named = None if case.run is None else case.run.config.get("run")
        raise NotApplicable(
            "The network before forgetting is not available, and its difference to the one after "
            "is what this audit looks at; restore the run that was forgotten from"
            f"{'' if named is None else f', {str(named)!r}'}."
        )
    shadow = learned(case, settings)
    split, labels = case.split, case.split.data.labels
    unseen = split.measured().get("held_out", split.test[:0])
    test = split.measured().get("test", split.test[:0])
    parts = {
        "forgotten": split.forget,
        "unseen": torch.cat([unseen, test]),
        "retained": spread(split.retain, RETAINED),
    }
    truth = {name: labels[index] for name, index in parts.items()}

    def outputs(model: nn.Module) -> dict[str, Tensor]:
        return {name: predict(model, split.data, index) for name, index in parts.items()}

    before, after = outputs(case.before), outputs(case.model)
    retrain = None if case.retrain is None else outputs(case.retrain)
    sure = {name: margin(before[name].double(), truth[name]) for name in ("forgotten", "unseen")}
    low_bit = (
        bool(codes_of(case.before)) and codes_of(case.before).keys() == codes_of(case.model).keys()
    )
    return DifferAudit(
        separations(
            before, after, retrain, truth, FIXED + (learned_attacks(shadow) if shadow else ())
        ),
        auc_interval(sure["forgotten"], sure["unseen"], LEVEL),
        _divergence(after, before, truth),
        _divergence(before, before, truth),
        {name: len(index) for name, index in parts.items()},
        changed_codes(case.before, case.model) if low_bit else None,
        shadow.forgotten if shadow else None,
    )


def separations(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    retrain: Mapping[str, Tensor] | None,
    labels: Mapping[str, Tensor],
    attacks: Sequence[Attack] = FIXED,
) -> tuple[Separation, ...]:
    """How well each attack separates forgotten samples from others, from logits by part."""
    level = LEVEL / len(attacks)
    rows = []
    for attack in attacks:
        logits = [(before[p], after[p], labels[p]) for p in ("forgotten", attack.against)]
        ours = (attack.score(*logits[0]), attack.score(*logits[1]))
        interval = auc_interval(*ours, level=LEVEL)
        row = Separation(attack.name, attack.against, auc(*ours), interval, recognised(*ours))
        if retrain:
            logits = [(before[p], retrain[p], labels[p]) for p in ("forgotten", attack.against)]
            theirs = (attack.on_retrain(*logits[0]), attack.on_retrain(*logits[1]))
            both = [torch.stack(scores, 1) for scores in zip(ours, theirs, strict=True)]
            row = replace(
                row,
                retrain=auc(*theirs),
                retrain_tpr=recognised(*theirs),
                beyond=auc_difference_interval(both[0], both[1], level),
            )
        rows.append(row)
    return tuple(rows)


def recognised(positive: Tensor, negative: Tensor) -> tuple[float | None, float | None]:
    """TPR at 1 % and at 0.1 % FPR; None where there are too few negatives for the rate.

    >>> recognised(torch.arange(4.0), torch.arange(200) / 100)
    (0.5, None)
    """
    one, tenth = (
        tpr_at_fpr(positive, negative, rate) if len(negative) * rate >= 1 else None
        for rate in (0.01, 0.001)
    )
    return one, tenth


def _divergence(
    model: Mapping[str, Tensor], before: Mapping[str, Tensor], labels: Mapping[str, Tensor]
) -> float | None:
    value = retrain_free_divergence(
        model["forgotten"], labels["forgotten"], before["unseen"], labels["unseen"]
    )
    return None if value != value else value


def work(case: Case, settings: ShadowConfig) -> Work:
    """Each network predicts each sample once."""
    split = case.split
    retained = min(RETAINED, len(split.retain))
    samples = len(split.forget) + len(split.held_out) + len(split.test) + retained
    return Work((2 if case.retrain is None else 3) * samples)


audits.register("differ")(
    Audit(
        rank=20,
        config=ShadowConfig,
        finding=DifferAudit,
        attack=differ,
        work=work,
        summary="See what an attacker learns who has the network before and after.",
        help="""Compares outputs, log-odds and losses before and after: how well they separate
        forgotten samples from unseen and from retained ones (AUC, TPR at 1 % and 0.1 % FPR); which
        layers' integer codes changed; and the retrain-free divergence. Beside Retrain, if it is
        given, whose difference sets the measure. With --shadow also by a classifier that learned
        from a shadow pair.""",
        examples=("--reference runs/retrain", "--reference runs/retrain --shadow --threads 1"),
    )
)
