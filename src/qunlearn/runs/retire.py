"""A request that names no trained sample: the same network, measured on what is left."""

from __future__ import annotations

import time

from torch import nn

from qunlearn.data import Split
from qunlearn.parts import TOLD
from qunlearn.runs.evaluate import figures, predictions
from qunlearn.runs.model_file import Header, save
from qunlearn.runs.origin import WEIGHTS_OF, origin_of
from qunlearn.runs.outputs import kept_outputs
from qunlearn.store.run import Run


def retire_into(run: Run, origin: Run, model: nn.Module, split: Split, header: Header) -> None:
    """Keep the same weights, measured on what is left after a request that names no others."""
    started = time.perf_counter()
    save(run, model, header)
    kept = kept_outputs(origin, split)
    logits = predictions(model, split) if kept is None else kept
    run.write_predictions(logits)
    then, metrics = origin.metrics, figures(logits, split)
    first = origin_of(origin) if "before" in then else None
    outputs = None if first is None else kept_outputs(first, split)
    if "before" in then:
        metrics["before"] = then["before"] if outputs is None else figures(outputs, split)
    told = ("calibration", *TOLD)
    metrics |= {name: then[name] for name in told if name in then} | split.request_told()
    run.write_metrics(metrics)
    info = origin.info
    known = {name: info[name] for name in list(info) if name in ("method", "revision", "origin")}
    seconds = {**info["seconds"], "evaluation": round(time.perf_counter() - started, 3)}
    run.finish({"seconds": seconds, **known, WEIGHTS_OF: info["model_sha256"]})
