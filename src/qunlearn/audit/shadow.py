"""A shadow pair: networks before and after forgetting whose answers an attacker knows.

Whoever knows the method trains a network as the original was, makes it forget samples of their own
choice, and learns from the two what a forgotten sample looks like. The pair is a pool of one
network, without the samples that the audited run has forgotten; `qunlearn.study.pool` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from qunlearn.audit.case import Case
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.pool import settings_of_run
from qunlearn.audit.pool_folder import Pool, training_of
from qunlearn.audit.pool_plan import IN, OUT, UNLEARNED, drawn_plan
from qunlearn.audit.row import NotApplicable
from qunlearn.data import Split
from qunlearn.data.draw import spread
from qunlearn.metrics import margin
from qunlearn.runs.data import moved, place_of
from qunlearn.runs.model_file import load
from qunlearn.runs.origin import origin_of
from qunlearn.store.run import Run
from qunlearn.training.inference import predict

NUMBER = 0
"""The shadow network is the first, and only, one of its pool."""
RETRAIN = "retrain"
FEWEST = 20
"""The shadow network forgets at least so many samples, or nothing is learned from them."""
LARGEST_SHARE = 0.75
"""At most so much of what is retained varies; the rest is in the shadow network and stays there."""
RETAINED = 2000
"""Retained samples that the classifier is trained on, at most."""
TOP = 10
"""So many probabilities are features: the largest ones of the network before."""

Score = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From logits before, logits after and labels: larger for what looks forgotten."""


class ShadowConfig(AuditConfig):
    """Whether a shadow pair is made, and where it is kept."""

    shadow: bool = Field(
        False,
        description="Train a shadow pair, as long as a Retrain takes (twice with --reference), and "
        "attack with a classifier that learned from it. Later audits use it as well.",
    )
    pool: Path | None = Field(
        None,
        description="The folder of the shadow pair; that of pools, beside the run, by default.",
    )


def shadow_of(run: Run, split: Split, settings: ShadowConfig) -> Pool:
    """The shadow pair of a run that has forgotten, made already or not."""
    origin = origin_of(run)
    if origin is None:
        raise NotApplicable(
            f"The run that {str(run.path)!r} was made from is not available, and a shadow network "
            "is trained as that was; put it back in its place."
        )
    if split.last is None or split.last.kind == "class":
        raise NotApplicable(
            "A shadow network forgets random samples, which says little of a whole class; leave "
            "--shadow out."
        )
    wanted = 3 * max(len(split.forget), FEWEST)
    most = int(LARGEST_SHARE * len(split.retain))
    if most < 3 * FEWEST:
        raise NotApplicable(
            f"{len(split.retain)} samples are retained, too few for a shadow network; leave "
            "--shadow out."
        )
    plan = drawn_plan(
        split,
        models=NUMBER + 1,
        share=min(wanted, most) / len(split.retain),
        seed=settings.seed,
        training=training_of(origin, settings.model) | {"original": origin.info.model_sha256},
    )
    home = settings.pool or run.path.with_name(f"{origin.path.name}-pool")
    place = place_of(origin)
    if settings.data is not None:
        place = moved(place, settings.data)
    return Pool(origin, plan, home / plan.digest[:12], place)


def shadow_seed(pool: Pool) -> int:
    """The seed of the shadow network, which the original hardly has."""
    return int(pool.plan.digest[:7], 16)


def shadow_methods(run: Run, settings: ShadowConfig) -> dict[str, dict[str, object]]:
    """The methods that the shadow network forgets by, with their settings.

    The run's own; and Retrain where the run is compared with one, since an attacker of that would
    have learned from a shadow Retrain.
    """
    method, chosen = settings_of_run(run)
    return {**({RETRAIN: {}} if settings.reference is not None else {}), method: chosen}


@dataclass(frozen=True)
class Shadow:
    """What was learned from a shadow pair.

    Attributes:
        forgotten: How many samples the shadow network forgot.
        scores: The classifier of forgotten samples, against "unseen" and against "retained" ones.
        retrain: The same, learned from a Retrain of the shadow network; empty without a reference.
    """

    forgotten: int
    scores: Mapping[str, Score]
    retrain: Mapping[str, Score]


def learned(case: Case, settings: ShadowConfig) -> Shadow | None:
    """The classifiers, from a shadow pair that was made before; None if there is none."""
    run = case.run
    try:
        if run is None:
            raise NotApplicable("A shadow network is trained as a run's original was; name a run.")
        pool = shadow_of(run, case.split, settings)
    except NotApplicable:
        if settings.shadow:
            raise
        return None
    methods = shadow_methods(run, settings)
    paths = {name: pool.unlearned(name, chosen, NUMBER) for name, chosen in methods.items()}
    if not all(Run.is_complete(path) for path in (pool.trained(NUMBER), *paths.values())):
        if settings.shadow:
            raise NotApplicable(
                f"There is no shadow pair in {str(pool.folder)!r} yet; `qunlearn audit differ "
                "--shadow` makes it."
            )
        return None
    parts, labels = _parts(pool), case.split.data.labels

    def outputs(path: Path) -> dict[str, Tensor]:
        model = load(path, settings.model)
        return {name: predict(model, case.split.data, rows) for name, rows in parts.items()}

    before = outputs(pool.trained(NUMBER))
    scores = {
        name: _classifiers(before, outputs(path), {n: labels[rows] for n, rows in parts.items()})
        for name, path in paths.items()
    }
    compared = scores[RETRAIN] if settings.reference is not None else {}
    return Shadow(len(parts["forgotten"]), scores[settings_of_run(run)[0]], compared)


def _parts(pool: Pool) -> dict[str, Tensor]:
    """What is known of samples in the shadow pair."""
    plan = pool.plan
    retained = torch.cat([plan.base, plan.part(NUMBER, IN)]).sort().values
    return {
        "forgotten": plan.part(NUMBER, UNLEARNED),
        "unseen": plan.part(NUMBER, OUT),
        "retained": spread(retained, RETAINED),
    }


def _classifiers(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], labels: Mapping[str, Tensor]
) -> dict[str, Score]:
    known = {name: features(before[name], after[name], labels[name]) for name in before}
    return {
        against: classifier(known["forgotten"], known[against])
        for against in ("unseen", "retained")
    }


def features(before: Tensor, after: Tensor, labels: Tensor) -> Tensor:
    """What the classifier sees of each sample: two networks' answers, samples × features.

    The largest probabilities, in the order of the network before; the same after; how far they
    moved; the log-odds of the true label before, after, and how far they moved; the rise of its
    loss.

    >>> features(torch.zeros(5, 3), torch.ones(5, 3), torch.zeros(5, dtype=torch.int64)).shape
    torch.Size([5, 13])
    """
    before, after = before.double(), after.double()
    old, new = before.softmax(1), after.softmax(1)
    order = old.argsort(dim=1, descending=True, stable=True)[:, :TOP]
    old, new = old.gather(1, order), new.gather(1, order)
    then, now = margin(before, labels), margin(after, labels)
    losses = [cross_entropy(each, labels, reduction="none") for each in (before, after)]
    rest = torch.stack([then, now, (now - then).abs(), losses[1] - losses[0]], 1)
    return torch.cat([old, new, (new - old).abs(), rest], 1)


def classifier(positive: Tensor, negative: Tensor) -> Score:
    """A logistic regression on standardised features, with as much weight on either side."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(
        StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
    )
    truth = [1] * len(positive) + [0] * len(negative)
    model.fit(torch.cat([positive, negative]).numpy(), truth)

    def score(before: Tensor, after: Tensor, labels: Tensor) -> Tensor:
        return torch.from_numpy(model.decision_function(features(before, after, labels).numpy()))

    return score
