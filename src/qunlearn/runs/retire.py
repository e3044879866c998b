"""A request that names no trained sample: the same network, measured on what is left."""

from __future__ import annotations

import time

from torch import nn

from qunlearn.data import Split
from qunlearn.runs.evaluate import predictions, scores_of
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.runs.model_file import Header, save
from qunlearn.runs.origin import origin_of
from qunlearn.runs.outputs import stored_outputs
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run


def retire_into(run: Run, origin: Run, model: nn.Module, split: Split, header: Header) -> None:
    """Keep the same weights, measured on what is left after a request that names no others."""
    started = time.perf_counter()
    save(run, model, header)
    stored = stored_outputs(origin, split)
    logits = predictions(model, split) if stored is None else stored
    run.write_predictions(logits)
    then, info = metrics_of(origin), origin.info
    first = origin_of(origin) if then.before is not None else None
    outputs = None if first is None else stored_outputs(first, split)
    metrics = RunMetrics(
        **vars(scores_of(logits, split)),
        before=then.before if outputs is None else scores_of(outputs, split),
        whole_classes=then.whole_classes,
        calibration=then.calibration,
        relearning=then.relearning,
        duplicates=then.duplicates,
        request=split.outcome(),
    )
    run.write_metrics(metrics.to_json())
    seconds = {**info.seconds, "evaluation": round(time.perf_counter() - started, 3)}
    run.finish(
        RunInfo(seconds, info.method, info.revision, info.origin, weights_of=info.model_sha256)
    )
