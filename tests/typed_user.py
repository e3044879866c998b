"""A user's script with every public name: `mypy --strict` (make lint) checks it with the package.

It is not run; the examples of the docstrings are.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import qunlearn as qu
from qunlearn.methods.base import Findings, Job, SgdStepConfig


def own_data(images: Tensor, labels: Tensor) -> qu.ImageData:
    data: qu.ImageData = qu.Data(train=(images, labels), test=(images, labels))
    augmentation: qu.Augmentation = data.augmentation
    assert augmentation is not None
    return data


def story(folder: Path) -> float:
    data: qu.ImageData = qu.load_dataset("digits", subset=300)
    spec = qu.ModelSpec("cnn", classes=10, channels=1, size=8)
    model: nn.Module = qu.quantize(spec.build(), qu.QuantSpec(weights=4, activations=4))
    qu.calibrate(model, torch.rand(8, 1, 8, 8))
    split: qu.Split = qu.Split.make(data)
    trained: nn.Module = qu.train(model, split, epochs=1)
    saved: Path = qu.save(trained, split, folder / "original")
    again: nn.Module = qu.load(saved)
    asked: qu.Split = split.forget_random(0.1)
    try:
        result: qu.Result = qu.forget(again, asked)
    except qu.UserError as error:
        raise SystemExit(str(error)) from None
    print(result.verdict.answer, result.verdict.met, qu.describe(result.model).bytes)
    qu.export_onnx(result.model, folder / "a.onnx", asked, target="compact")
    share: float = qu.metrics.accuracy(torch.rand(4, 10), torch.zeros(4, dtype=torch.int64))
    scores = qu.evaluate(result.model, asked, reference=trained)
    return scores.AG + share


def own_loop(model: nn.Module, split: qu.Split) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    projector = qu.GradientProjector(model, alpha=1.0, granularity="layer")
    forget, retain = (qu.Loader(split.data, rows, 32) for rows in (split.forget, split.retain))
    for away, kept in zip(forget.epoch(0), retain.epoch(0), strict=False):
        with projector.forget():
            qu.negative_entropy(model(away.images)).backward()  # type: ignore[no-untyped-call]
        with projector.retain():
            loss: Tensor = nn.functional.cross_entropy(model(kept.images), kept.labels)
            loss.backward()  # type: ignore[no-untyped-call]
        projector.project()
        optimizer.step()


@qu.method("own", config=SgdStepConfig, source="a user")
def own(job: Job, config: SgdStepConfig) -> Findings | None:
    """Do nothing."""
    return None


def exported(result: qu.Result, split: qu.Split, path: Path) -> None:
    qu.export.export_onnx(result.model, path, split)
