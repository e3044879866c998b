"""Scoring samples: no augmentation, no gradient, nothing in the model moves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qunlearn.data import ImageData


@torch.inference_mode()
def predict(model: nn.Module, data: ImageData, index: Tensor, batch_size: int = 500) -> Tensor:
    """The model's logits for the samples at `index`, as float32 on the processor.

    The model is put into eval mode for the time, and back into whatever mode it was in.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        rows = [
            model(data.normalise(data.images[part]).to(device)).float().cpu()
            for part in torch.split(index, batch_size)
        ]
    finally:
        for module, mode in modes:
            module.training = mode
    return torch.cat(rows) if rows else torch.zeros(0, data.num_classes)
