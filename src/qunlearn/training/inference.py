"""Inference: no augmentation, no gradients, no change to the model."""

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
    """Eval mode within the block; afterwards the mode of every module is restored."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


TOGETHER = 128
"""Batch size for inference: on CPUs 1.2 times as fast as 500, which reallocates memory."""


@contextmanager
def scoring(model: nn.Module) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yields a fast function from a batch of images to logits, in eval mode.

    The logits are float32 on the CPU. The model must not change within the block.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    layout = fastest_layout(model)

    def logits(images: Tensor) -> Tensor:
        outputs: Tensor = model(images.to(device, memory_format=layout))
        return outputs.float().cpu()

    # Compiled quantizers give bit-identical results; full-precision models have none.
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
    """The model's logits for the samples at `index`, as float32 on the CPU.

    The model is in eval mode during the call; its mode is restored afterwards. `advance` is called
    with the number of samples of each batch.
    """
    if any(isinstance(q, Quantizer) and not q.initialised for q in model.modules()):
        raise UserError(
            "The model's quantizers are not initialised, and evaluation data must not initialise "
            "them; train the model, or calibrate it on a batch of training images."
        )
    rows = []
    with scoring(model) as logits:
        for part in torch.split(index, batch_size):
            rows.append(logits(data.normalise(data.images.index_select(0, part))))
            advance(len(part))
    return torch.cat(rows) if rows else torch.zeros(0, data.num_classes)
