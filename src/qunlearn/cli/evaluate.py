"""`qunlearn evaluate`."""

from __future__ import annotations

from dataclasses import asdict

from qunlearn.cli.output import print_json, print_measured
from qunlearn.cli.settings import Json, RunFolder, with_settings
from qunlearn.runs.config import EvaluateConfig


@with_settings(EvaluateConfig)
def command(settings: EvaluateConfig, run: RunFolder, json: Json = False) -> None:
    """Measure a run on every part of its split, and beside a retrained one.

    Accuracy on the forgotten (FA), retained (RA) and test samples (TA), and the share of forgotten
    samples that a membership attack takes for unseen (MIA). Neither high nor low is good in itself:
    the reference is a network retrained without these samples, and AG is the mean gap to it.
    Measured without augmentation, and with fixed BatchNorm statistics.

    Examples:
      qunlearn evaluate runs/original

      qunlearn evaluate runs/forgotten --reference runs/retrain

      qunlearn evaluate runs/forgotten --onnx model.onnx
    """
    from qunlearn.report.judge import measured_again, verdict_of
    from qunlearn.runs.evaluate import evaluate_run
    from qunlearn.runs.metrics import metrics_of
    from qunlearn.store.run import Run
    from qunlearn.training.devices import use_threads

    use_threads(settings.threads)
    model = None
    if settings.onnx is not None:
        from qunlearn.export import exported_from

        model = exported_from(settings.onnx, run)
    metrics = evaluate_run(
        run,
        data=settings.data,
        factory=settings.model,
        reference=settings.reference,
        model=model,
        seed=settings.seed,
        exact=settings.exact,
        vector=settings.vector,
    )
    stored, info = metrics_of(Run.open(run)), Run.open(run).info
    complete = measured_again(stored, metrics, all_parts=settings.onnx is None)
    verdict = None if complete is None else verdict_of(complete, info.method)
    if json:
        judged = {} if verdict is None else {"verdict": asdict(verdict)}
        measured = {"metrics": metrics.to_json(), **judged}
        print_json({"run": str(run), "onnx": settings.onnx, **measured})
        return
    print_measured(metrics, str(settings.onnx or run), verdict, complete)
