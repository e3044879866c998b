"""FA, RA, TA, MIA, AG and further metrics, from logits alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from qunlearn.metrics.accuracy import accuracy
from qunlearn.metrics.distribution import agreement, entropy, jensen_shannon, true_confidence
from qunlearn.metrics.gap import SCORES, average_gap, gaps
from qunlearn.metrics.membership import FEATURES, REPORTED, attack, draw, vector_efficacy
from qunlearn.store.typed import Json

Logits = Mapping[str, Tensor]
"""A model's logits on each part of a split, by the part's name."""


@dataclass(frozen=True)
class PartScores:
    """Metrics of one part of a split.

    Attributes:
        accuracy: In percent.
        samples: Number of samples of the part.
        entropy: Mean entropy of the predictions, in nats.
        confidence: Mean probability of the true label.
        agreement: How often the reference predicts the same class, in percent.
        divergence: Mean Jensen-Shannon divergence to the reference's probabilities, in nats.
    """

    accuracy: float
    samples: int
    entropy: float
    confidence: float
    agreement: float | None = None
    divergence: float | None = None


@dataclass(frozen=True)
class Scores:
    """Metrics of a model.

    FA, RA, TA and MIA need the parts `forget`, `retain` and `test` (see `complete`); AG and `gaps`
    need a reference too.

    Attributes:
        parts: The scores of each part of the split, by its name.
        attacks: The percentage of forgotten samples that each membership attack classifies as
            non-members, by the name of its feature.
        attack_accuracy: Accuracy of MIA's attack on samples of known membership, in percent.
        reference: The scores of a retrained model.
    """

    parts: Mapping[str, PartScores]
    attacks: Mapping[str, float] = field(default_factory=dict)
    attack_accuracy: float | None = None
    reference: Scores | None = None

    @property
    def complete(self) -> bool:
        """Whether FA, RA, TA and MIA are available."""
        return REPORTED in self.attacks

    @property
    def FA(self) -> float:
        """Accuracy on the forgotten samples, in percent."""
        return self.parts["forget"].accuracy

    @property
    def RA(self) -> float:
        """Accuracy on the retained samples, in percent."""
        return self.parts["retain"].accuracy

    @property
    def TA(self) -> float:
        """Accuracy on the test samples, in percent."""
        return self.parts["test"].accuracy

    @property
    def MIA(self) -> float:
        """The percentage of forgotten samples that the attack classifies as non-members."""
        return self.attacks[REPORTED]

    @property
    def figures(self) -> dict[str, float]:
        """FA, RA, TA and MIA, by name."""
        return {name: getattr(self, name) for name in SCORES}

    @property
    def gaps(self) -> dict[str, float]:
        """The absolute difference of each of the four metrics to the reference's."""
        assert self.reference is not None
        return gaps(self.figures, self.reference.figures)

    @property
    def AG(self) -> float:
        """The mean of the four gaps."""
        assert self.reference is not None
        return average_gap(self.figures, self.reference.figures)

    def to_json(self) -> Json:
        """The JSON of files and `--json`, with derived metrics."""
        content: Json = {}
        if self.complete:
            content |= {**self.figures, "attacks": dict(self.attacks)}
            content["attack_accuracy"] = self.attack_accuracy
        content["parts"] = {
            name: {key: value for key, value in vars(part).items() if value is not None}
            for name, part in self.parts.items()
        }
        if self.reference is not None:
            content |= {"AG": self.AG, "gaps": self.gaps, "reference": self.reference.to_json()}
        return content


def measure(logits: Logits, labels: Logits) -> dict[str, PartScores]:
    """The metrics of each part alone."""
    return {
        part: PartScores(
            accuracy=accuracy(rows, labels[part]),
            samples=len(rows),
            entropy=float(entropy(rows).mean()),
            confidence=float(true_confidence(rows, labels[part]).mean()),
        )
        for part, rows in logits.items()
    }


def score(
    logits: Logits,
    labels: Logits,
    *,
    seed: int = 0,
    exact: bool = False,
    vector: bool = False,
) -> Scores:
    """The scores of a model: metrics of each part, and membership attacks where possible.

    Args:
        logits: Of every part; the attacks need `forget`, `retain` and `test`.
        labels: The true labels of the same parts.
        seed: Draws the retained and test samples that the attacks are trained on: as many of each
            as the smaller of the two parts has.
        exact: Attack with scikit-learn's SVC rather than the faster solver of the same problem.
        vector: Also attack by the complete probability vector, which takes some seconds.
    """
    parts = measure(logits, labels)
    if not {"forget", "retain", "test"} <= parts.keys():
        return Scores(parts)
    members, others = attack_samples(len(labels["retain"]), len(labels["test"]), seed)
    rows = {"retain": members, "test": others}
    picked = {p: (logits[p][rows[p]], labels[p][rows[p]]) for p in rows}
    picked["forget"] = logits["forget"], labels["forget"]
    results = {
        name: attack(
            *(feature(*picked[part]) for part in ("retain", "test", "forget")), exact=exact
        )
        for name, feature in FEATURES.items()
    }
    attacks = {name: each.efficacy for name, each in results.items()}
    if vector:
        attacks["vector"] = vector_efficacy(*(picked[p][0] for p in ("retain", "test", "forget")))
    return Scores(parts, attacks, results[REPORTED].accuracy)


def attack_samples(retained: int, tested: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw equally many retained and test samples to train an attack on."""
    size = min(retained, tested)
    generator = np.random.default_rng([seed, retained, tested])
    return draw(retained, size, generator), draw(tested, size, generator)


def compare(scores: Scores, reference: Scores, logits: Logits, others: Logits) -> Scores:
    """Add a reference to a model's scores, with agreement and divergence of each part."""
    parts = {
        name: replace(
            part,
            agreement=agreement(logits[name], others[name]),
            divergence=float(jensen_shannon(logits[name], others[name]).mean()),
        )
        for name, part in scores.parts.items()
    }
    return replace(scores, parts=parts, reference=reference)
