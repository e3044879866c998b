"""The gradient over a whole part of the data, with the model left as it is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qunlearn.data import ImageData
from qunlearn.quant import Quantizer
from qunlearn.training.inference import evaluating


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that may be changed."""
    return [p for p in model.parameters() if p.requires_grad]


def continuous(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters but for the quantizers' own."""
    quantizers = {
        id(p) for m in model.modules() if isinstance(m, Quantizer) for p in m.parameters()
    }
    return [p for p in trainable(model) if id(p) not in quantizers]


def whole_gradient(
    model: nn.Module,
    data: ImageData,
    index: Tensor,
    weights: Tensor,
    *,
    labels: Tensor | None = None,
    parameters: Sequence[nn.Parameter] | None = None,
    batch_size: int = 256,
) -> list[Tensor]:
    """The gradient of `Σ weight · cross-entropy` over the samples at `index`.

    In eval mode and without augmentation, so that it is one well-defined vector: each sample counts
    alone, and BatchNorm does not move. `labels` replaces the true labels of these samples.
    """
    parameters = trainable(model) if parameters is None else list(parameters)
    device = parameters[0].device
    labels = data.labels[index] if labels is None else labels
    total = [torch.zeros_like(p) for p in parameters]
    with evaluating(model):
        for part in torch.split(torch.arange(len(index)), batch_size):
            images = data.normalise(data.images[index[part]]).to(device)
            losses = nn.functional.cross_entropy(
                model(images), labels[part].to(device), reduction="none"
            )
            objective = (losses * weights[part].to(losses)).sum()
            gradients = torch.autograd.grad(
                objective, parameters, allow_unused=True, materialize_grads=True
            )
            torch._foreach_add_(total, gradients)
    return total
