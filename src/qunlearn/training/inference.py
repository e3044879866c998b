"""Scoring samples: no augmentation, no gradient, nothing in the model moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from qunlearn.data import ImageData
from qunlearn.errors import UserError
from qunlearn.quant import Quantizer, fused, weight_cache, why_not
from qunlearn.training.objective import fastest_layout


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for the time; then every module is back in whatever mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


TOGETHER = 128
"""Samples scored together: on processors 1.2 times as fast as 500, which want memory anew."""


@contextmanager
def scoring(model: nn.Module) -> Iterator[Callable[[Tensor], Tensor]]:
    """Gives the fastest way from a batch of images to the model's logits, in eval mode.

    The logits are float32 on the processor. The model must not change within the block.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    layout = fastest_layout(model)

    def logits(images: Tensor) -> Tensor:
        found: Tensor = model(images.to(device, memory_format=layout))
        return found.float().cpu()

    # What is rounded is the same to the last bit, compiled or not; in full precision nothing is.
    low_bit = any(isinstance(module, Quantizer) for module in model.modules())
    compiled = low_bit and device.type == "cpu" and why_not() is None
    with torch.inference_mode(), evaluating(model), weight_cache(), fused(compiled):
        yield logits


def predict(
    model: nn.Module,
    data: ImageData,
    index: Tensor,
    batch_size: int = TOGETHER,
    advance: Callable[[int], None] = lambda samples: None,
) -> Tensor:
    """The model's logits for the samples at `index`, as float32 on the processor.

    The model is put into eval mode for the time, and back into whatever mode it was in. `advance`
    is told how many samples were done.
    """
    if any(isinstance(q, Quantizer) and not q.initialised for q in model.modules()):
        raise UserError(
            "The model's quantizers have not started yet, and must not start from data that is "
            "only to be scored; train the model, or calibrate it on a batch of training images."
        )
    rows = []
    with scoring(model) as logits:
        for part in torch.split(index, batch_size):
            rows.append(logits(data.normalise(data.images.index_select(0, part))))
            advance(len(part))
    return torch.cat(rows) if rows else torch.zeros(0, data.num_classes)
