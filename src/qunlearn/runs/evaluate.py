"""Measuring a model on every part of its split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.metrics import Scores, compare, score
from qunlearn.runs.data import split_of
from qunlearn.runs.metrics import RunMetrics
from qunlearn.runs.model_file import load
from qunlearn.runs.reference import check_reference, declared
from qunlearn.store.run import Run
from qunlearn.training.inference import predict
from qunlearn.training.progress import Progress

Logits = Mapping[str, Tensor]


def evaluate(
    model: nn.Module,
    split: Split,
    reference: nn.Module | None = None,
    *,
    seed: int = 0,
    exact: bool = False,
    vector: bool = False,
) -> Scores:
    """Measure a model on every part of a split, without augmentation and without moving it.

    One forward pass for each sample serves all figures.

    Args:
        model: The model.
        split: Says which samples, and which of them were to be forgotten.
        reference: A model retrained without the forgotten samples, to compare with.
        seed: Which retained and test samples the membership attacks learn from.
        exact: Attack with scikit-learn's SVC rather than the faster solver of the same problem.
        vector: Also attack by the whole vector of probabilities, which takes some seconds.

    Returns:
        The scores of each part of `split.measured()`. Where something was to be forgotten, also FA,
        RA, TA and MIA in percent and the further `attacks`; and with a reference AG and the `gaps`
        that it is the mean of. See `Scores`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.random(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> scores = evaluate(model, split, reference=model)
        >>> scores.parts["test"].samples, scores.AG
        (450, 0.0)
    """
    logits = predictions(model, split)
    retrained = None if reference is None else predictions(reference, split)
    return scores_of(logits, split, retrained, seed=seed, exact=exact, vector=vector)


def labels_of(split: Split) -> dict[str, Tensor]:
    """The true labels of every part that is measured."""
    return {part: split.data.labels[index] for part, index in split.measured().items()}


def predictions(model: nn.Module, split: Split) -> dict[str, Tensor]:
    """The model's outputs on every part that is measured."""
    parts = split.measured()
    with Progress("measuring", sum(map(len, parts.values()))) as progress:
        return {
            part: predict(model, split.data, index, advance=progress.advance)
            for part, index in parts.items()
        }


def scores_of(
    logits: Logits,
    split: Split,
    reference: Logits | None = None,
    *,
    seed: int = 0,
    exact: bool = False,
    vector: bool = False,
) -> Scores:
    """The scores that outputs allow, beside those of a retrained model; see `evaluate`."""
    labels = labels_of(split)
    if reference is not None and "forget" not in labels:
        raise UserError("Nothing is asked to be forgotten; leave the reference out.")
    scores = score(logits, labels, seed=seed, exact=exact, vector=vector)
    if reference is None or not scores.complete:
        return scores
    retrained = score(reference, labels, seed=seed, exact=exact, vector=vector)
    return compare(scores, retrained, logits, reference)


def evaluate_run(
    path: Path,
    *,
    data: Path | None = None,
    factory: str | None = None,
    reference: Path | None = None,
    model: nn.Module | None = None,
    seed: int = 0,
    exact: bool = False,
    vector: bool = False,
) -> RunMetrics:
    """Load a run's model and split, and measure it on the data that the run names.

    With `model`, measure that instead: the run's own in another form.
    """
    run = Run.open(path)
    split = split_of(run, data)
    if reference is not None:
        check_reference(run, split, Run.open(reference))
    retrained = None if reference is None else load(reference, factory)
    model = load(path, factory) if model is None else model
    scores = evaluate(model, split, retrained, seed=seed, exact=exact, vector=vector)
    declaration = None if reference is None else declared(Run.open(reference))
    class_wise = split.last is not None and split.whole_classes
    return RunMetrics(**vars(scores), declared=declaration, whole_classes=class_wise)
