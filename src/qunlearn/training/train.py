"""Training a model on one part of a split."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from qunlearn.data import ImageData, Loader, Split
from qunlearn.errors import UserError, unknown
from qunlearn.quant import calibrate
from qunlearn.store.history import Epoch
from qunlearn.training.checkpoint import Checkpointer, fingerprint
from qunlearn.training.config import ComputeConfig, OptimizerConfig, StepConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.loop import optimize
from qunlearn.training.made_on import made_on
from qunlearn.training.objective import CrossEntropy


def train(
    model: nn.Module,
    split: Split,
    *,
    part: str = "train",
    on_epoch: Callable[[Epoch], None] = lambda row: None,
    fabric: Fabric | None = None,
    title: str = "training",
    checkpoint: Path | None = None,
    **settings: Any,
) -> nn.Module:
    """Train a model on one part of a split, in place, and return it in eval mode.

    Args:
        model: Any classifier; quantized by `quantize` or in full precision.
        split: The split of the data set.
        part: "train", or "retain" to leave out the samples to forget.
        on_epoch: Gets a row of metrics after each epoch.
        fabric: Devices and precision; by default one CPU or GPU in float32.
        title: Title of the progress bar.
        checkpoint: File for checkpoints; training resumes from it if it exists.
        **settings: Settings of `OptimizerConfig`, such as `epochs=10, lr=0.05`.

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.make(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
    """
    config = OptimizerConfig.parse(settings)
    if fabric is None:
        fabric = make_fabric(ComputeConfig())
    if part not in ("train", "retain"):
        raise unknown("part to train on", part, ("train", "retain"))
    index = split.train if part == "train" else split.retain
    check_fits(model, split.data, index, config)
    saved = Checkpointer(checkpoint, fingerprint(model, config, index)) if checkpoint else None
    optimize(
        fabric,
        model,
        config,
        lambda wrapped: CrossEntropy(fabric, wrapped, _loader(split.data, index, config, fabric)),
        prepare=lambda: calibrate_first(model, split.data, index, config),
        title=title,
        values=split.data.images[0].numel(),
        on_epoch=on_epoch,
        checkpointer=saved,
    )
    made_on[model] = split
    return model.eval()


def check_fits(
    model: nn.Module, data: ImageData, index: Tensor, config: StepConfig, processes: int = 1
) -> None:
    """Raise unless the model can be trained on these samples; runs a copy on two of them."""
    smallest = Loader(data, index, config.batch_size, world=processes).smallest_share
    if smallest == 1 and any(isinstance(m, _BatchNorm) for m in model.modules()):
        raise UserError(
            f"A batch size of {config.batch_size} leaves batches of a single sample, on which "
            "BatchNorm cannot be trained; use a batch size (batch_size) of 4 or more."
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError("The model has no trainable parameters; set requires_grad on some.")
    trial = copy.deepcopy(model).eval()
    try:
        with torch.inference_mode():
            logits = trial(data.normalise(data.images[index[:2]]))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"The model fails on images of shape {tuple(data.images.shape[1:])}: {reason}; use a "
            "model for this shape."
        ) from None
    expected = (len(index[:2]), data.num_classes)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(
            f"The model's output for {expected[0]} images is {output}, not {expected}; give the "
            f"model {data.num_classes} outputs, one for each class."
        )


def calibrate_first(
    model: nn.Module, data: ImageData, index: Tensor, config: OptimizerConfig
) -> None:
    """Initialise the quantizers from the complete first batch, for any number of processes."""
    loader = Loader(data, index, config.batch_size, seed=config.seed, augment=config.augment)
    device = next(model.parameters()).device
    calibrate(model, loader.batch(0, 0).images.to(device))


def _loader(data: ImageData, index: Tensor, config: OptimizerConfig, fabric: Fabric) -> Loader:
    return Loader(
        data,
        index,
        config.batch_size,
        seed=config.seed,
        augment=config.augment,
        rank=fabric.global_rank,
        world=fabric.world_size,
    )
