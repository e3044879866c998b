"""`qunlearn evaluate`."""

from __future__ import annotations

from qunlearn.cli.output import print_accuracies, print_json
from qunlearn.cli.settings import Json, RunFolder, with_settings
from qunlearn.training.config import EvaluateConfig


@with_settings(EvaluateConfig)
def command(settings: EvaluateConfig, run: RunFolder, json: Json = False) -> None:
    """Measure a run's accuracy on every part of its split.

    Without augmentation, and without moving BatchNorm. Every sample's hash is checked against the
    run's manifest first.

    Example:
      qunlearn evaluate runs/original
    """
    from qunlearn.training.evaluate import evaluate_run

    metrics = evaluate_run(run, data_dir=settings.data_dir, factory=settings.model)
    if json:
        print_json({"run": str(run), "metrics": metrics})
    else:
        print_accuracies(metrics, str(run))
