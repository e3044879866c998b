"""Whether forgetting outlasts a change of bits.

A weight that unlearning has moved by less than a step keeps its code, and one that has just crossed
a border goes back over it on another grid. So the weights are rounded anew, to more bits and to
fewer, and what was forgotten is asked for again. Retrain, which has nothing to recover, is treated
the same: what changes there too is the rounding's doing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.audit.case import Case
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.registry import Audit, Work, audits
from qunlearn.audit.row import AuditRow, Figure, NotApplicable, Verdict
from qunlearn.data import Split
from qunlearn.metrics import Scores
from qunlearn.metrics.bootstrap import Interval
from qunlearn.metrics.gap import SCORES, average_gap, half_width
from qunlearn.metrics.membership import least_accuracy, weakest_attack
from qunlearn.quant import Quantizer, QuantSpec, families
from qunlearn.quant.convert import edge_layers
from qunlearn.quant.layers import QuantLayer
from qunlearn.runs.evaluate import evaluate
from qunlearn.runs.metrics import Declared, metrics_of
from qunlearn.store.run import Run
from qunlearn.store.typed import Json, untyped
from qunlearn.training.config import Widths as BitWidths

FLOAT = 32
DAMAGED = 30.0
"""A network that loses so many points of RA by the rounding says nothing of what it remembers."""
UNTOLD = 10.0
"""If so many points may be chance, nothing can be told."""
SMALLEST = 2.0
"""Recoveries of so many points are not spoken of."""


State = Literal["stays", "returns", "before", "alone", "unusable", "coarse"]
VERDICTS: dict[State, Verdict] = {
    "stays": "pass",
    "returns": "fail",
    "before": "fail",
    "alone": "cannot be told",
    "unusable": "cannot be told",
    "coarse": "cannot be told",
}
REASONS: dict[State, str] = {
    "stays": "",
    "returns": "",
    "before": "not forgotten",
    "alone": "no Retrain",
    "unusable": "no usable width",
    "coarse": "too few samples",
}


class AuditBitsConfig(AuditConfig):
    """How a run is to be looked at in other bit widths."""

    bits: BitWidths = Field(
        (2, 3, 4, 5, 6, 7, 8, FLOAT),
        description="The bits to round the weights to, with commas between; 32 is full precision.",
    )


@dataclass(frozen=True)
class BitScores:
    """A network at one width: the four figures, and how often MIA's own attack is right."""

    FA: float
    RA: float
    TA: float
    MIA: float
    attack_accuracy: float | None = None

    @classmethod
    def of(cls, scores: Scores) -> BitScores:
        """The same of what was measured."""
        return cls(**scores.figures, attack_accuracy=scores.attack_accuracy)

    @property
    def figures(self) -> dict[str, float]:
        """FA, RA, TA and MIA, by name."""
        return {name: getattr(self, name) for name in SCORES}


@dataclass(frozen=True)
class Widths:
    """A network with the bits that it was trained with, and at other widths of its weights."""

    trained: BitScores
    rows: Mapping[str, BitScores]


@dataclass(frozen=True)
class ChangedCodes:
    """The percentage of integer codes that forgetting changed, in all and layer by layer."""

    all: float
    layers: Mapping[str, float]


@dataclass(frozen=True)
class BitsVerdict:
    """Whether what was forgotten comes back.

    Attributes:
        state: "stays": nothing comes back. "returns": some does, beyond chance. "before": nothing
            comes back, but it had not forgotten in the first place. "alone": nothing comes back,
            and without a Retrain it is not known whether it had forgotten. "unusable": no other
            width leaves the network usable. "coarse": there are too few samples to tell.
        points: How much comes back where most does.
        chance: How much may be chance there.
        figure: In which figure that is.
        width: At which width.
        usable: How many widths leave the network usable.
        ahead: How far FA was above Retrain's with the trained bits.
    """

    state: State
    points: float = 0.0
    chance: float = 0.0
    figure: str = ""
    width: str = ""
    usable: int = 0
    ahead: float = 0.0


@dataclass(frozen=True)
class BitsAudit(Widths):
    """What the audit found.

    Attributes:
        samples: How many samples were forgotten.
        attack_samples: How many retained, and as many test samples, MIA's attack learned from.
        changed: How many codes forgetting changed; None if the run before is not at hand.
        reference: Retrain, treated the same.
        declared: What is known of a Retrain that was trained elsewhere.
    """

    samples: int
    attack_samples: int
    changed: ChangedCodes | None = None
    reference: Widths | None = None
    declared: Declared | None = None

    @property
    def gaps(self) -> dict[str, float]:
        """AG at each width, and with the trained bits; empty without a reference."""
        if self.reference is None:
            return {}
        theirs = {"trained": self.reference.trained, **self.reference.rows}
        ours = {"trained": self.trained, **self.rows}
        return {name: average_gap(ours[name].figures, theirs[name].figures) for name in ours}

    def row(self) -> AuditRow:
        """The outcome: how much comes back where most does."""
        judged = verdict(self)
        interval = Interval(judged.points - judged.chance, judged.points + judged.chance)
        name = f"{judged.figure or 'FA'} that comes back at other bits"
        figure = Figure(name, judged.points, interval, unit="points")
        retrain = () if self.reference is None else ("Retrain",)
        return AuditRow(
            "bits", ("network", *retrain), (figure,), VERDICTS[judged.state], REASONS[judged.state]
        )

    def to_json(self) -> Json:
        """As it stands in `audit.json`, with what follows from the rest."""
        return {**untyped(self), "AG": self.gaps, "verdict": untyped(verdict(self))}

    @staticmethod
    def modernised(content: object, run: Run) -> object:
        """What a file has, as it is written now: earlier versions did not count samples."""
        if not isinstance(content, dict) or "samples" in content:
            return content
        parts = {name: part.samples for name, part in metrics_of(run).parts.items()}
        attacked = min(parts.get("retain", 0), parts.get("test", 0))
        return {**content, "samples": parts.get("forget", 0), "attack_samples": attacked}


def bits(case: Case, settings: AuditBitsConfig) -> BitsAudit:
    """Look at a network that has forgotten in other bit widths.

    Args:
        case: The network, its split, and a Retrain to be treated the same, if there is one.
        settings: The widths to round the weights to; 32 leaves them in full precision.
    """
    name = "the network" if case.run is None else f"the run {str(case.run.path)!r}"
    if case.quant.full_precision or not codes_of(case.model):
        raise NotApplicable(
            f"The weights of {name} are in full precision, so that they have no bits to change; "
            "name a run with low-bit weights."
        )
    if case.retrain is not None and not case.same_bits:
        raise NotApplicable(
            f"The reference has other bits or another quantizer than {name}, and cannot be "
            "treated the same; leave --reference out, or name a Retrain with the run's."
        )
    split = case.split
    audit = BitsAudit(
        BitScores.of(evaluate(case.model, split)),
        by_width(case.model, case.quant, split, settings.bits),
        len(split.forget),
        min(len(split.retain), len(split.test)),
        None if case.before is None else changed_codes(case.before, case.model),
    )
    if case.retrain is None:
        return audit
    rows = by_width(case.retrain, case.quant, split, settings.bits)
    treated = Widths(BitScores.of(evaluate(case.retrain, split)), rows)
    return replace(audit, reference=treated, declared=case.declared)


def work(case: Case, settings: AuditBitsConfig) -> Work:
    """Every measured sample is predicted at each width, and as trained."""
    samples = sum(map(len, case.split.measured().values()))
    networks = 1 if case.retrain is None else 2
    return Work(predicted=networks * samples * (1 + len(settings.bits)))


@torch.no_grad()
def changed_codes(before: nn.Module, after: nn.Module) -> ChangedCodes:
    """The percentage of integer codes that differ between two models, in all and layer by layer."""
    then, now = codes_of(before), codes_of(after)
    moved = {name: int((now[name] != then[name]).sum()) for name in now}
    layers = {name: 100 * moved[name] / codes.numel() for name, codes in now.items()}
    total = sum(codes.numel() for codes in now.values())
    return ChangedCodes(100 * sum(moved.values()) / total, layers)


def codes_of(model: nn.Module) -> dict[str, Tensor]:
    """The integer codes of each quantized weight, by the layer's name."""
    return {
        name: layer.weight_quantizer.grid(layer.weight).codes(layer.quantized_weight())
        for name, layer in model.named_modules()
        if isinstance(layer, QuantLayer) and isinstance(layer.weight_quantizer, Quantizer)
    }


def by_width(
    model: nn.Module, quant: QuantSpec, split: Split, bits: Sequence[int]
) -> dict[str, BitScores]:
    """FA, RA, TA and MIA of a model with its weights rounded to each width."""
    return {
        str(width): BitScores.of(evaluate(requantized(model, quant, width), split))
        for width in bits
    }


@torch.no_grad()
def requantized(model: nn.Module, quant: QuantSpec, bits: int) -> nn.Module:
    """A copy whose weights are rounded anew from the values underneath, by least squares.

    The first and the last layer go along only to full precision: they have bits of their own.
    Inputs are rounded as they were.
    """
    model = copy.deepcopy(model)
    layers = {n: m for n, m in model.named_modules() if isinstance(m, QuantLayer)}
    edges = edge_layers(model)
    for name, layer in layers.items():
        spec = quant.for_layer(name, edge=name in edges)
        if not isinstance(layer.weight_quantizer, Quantizer) or spec is None:
            continue
        if bits == FLOAT:
            layer.weight_quantizer = nn.Identity()
        elif name not in edges:
            family = families[spec.quantizer]
            anew = family.weights(bits, layer.weight, spec.per_channel, "mse")
            anew.to(layer.weight.device).initialise(layer.weight)
            layer.weight_quantizer = anew
    return model


def verdict(audit: BitsAudit) -> BitsVerdict:
    """Whether what was forgotten comes back, and where most."""
    trained = audit.trained.figures
    allowed = {name: max(SMALLEST, half_width(trained[name], audit.samples)) for name in SCORES}
    worst = BitsVerdict("stays", 0.0, allowed["FA"])
    usable = 0
    for width, row in audit.rows.items():
        if row.RA < audit.trained.RA - DAMAGED:
            continue
        usable += 1
        for name, back in recovered(audit, width).items():
            beyond = back - allowed[name] > worst.points - worst.chance
            if back > 0 and (not worst.figure or beyond):
                worst = BitsVerdict("stays", back, allowed[name], name, width)
    worst = replace(worst, usable=usable)
    if not usable:
        return replace(worst, state="unusable")
    if worst.chance > UNTOLD:
        return replace(worst, state="coarse")
    if worst.points > worst.chance:
        return replace(worst, state="returns")
    if audit.reference is None:
        return replace(worst, state="alone")
    ahead = audit.trained.FA - audit.reference.trained.FA
    return replace(worst, state="before" if ahead > allowed["FA"] else "stays", ahead=ahead)


def recovered(audit: BitsAudit, width: str) -> dict[str, float]:
    """By how many points memory comes back: forgotten samples right again, or recognised again.

    It must be more than with the trained bits, and more than Retrain shows at that width, since
    rounding harms any network; without Retrain, more than new samples gain.
    """
    now, then = audit.rows[width], audit.trained
    rise = now.FA - then.FA
    if audit.reference is None:
        return {"FA": rise - max(0.0, now.TA - then.TA)}
    retrain = audit.reference.rows[width]
    back = {"FA": min(rise, now.FA - retrain.FA)}
    accuracy = weakest_attack([now.attack_accuracy, retrain.attack_accuracy])
    if accuracy is None or accuracy >= least_accuracy(audit.attack_samples):
        back["MIA"] = min(then.MIA, retrain.MIA) - now.MIA
    return back


audits.register("bits")(
    Audit(
        rank=40,
        config=AuditBitsConfig,
        finding=BitsAudit,
        attack=bits,
        work=work,
        summary="See whether what was forgotten comes back when the weights get other bits.",
        help="""Shows how many integer codes forgetting changed, layer by layer, and the figures
        when the weights are rounded anew to 2 to 8 bits and to none; beside Retrain, if it is
        given, treated the same.""",
        examples=("--reference runs/retrain", "--bits 2,3,32"),
    )
)
