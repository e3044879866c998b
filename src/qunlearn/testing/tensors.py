"""What the checks share: the same tensors, finite tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Tensors = Mapping[str, Tensor]


def copied(module: nn.Module) -> dict[str, Tensor]:
    """A module's state as it is now."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def difference(one: Tensors, other: Tensors) -> str | None:
    """The first entry in which two states differ, bit for bit; None if they are the same."""
    names = [*one, *(name for name in other if name not in one)]
    return next(
        (n for n in names if n not in one or n not in other or not torch.equal(one[n], other[n])),
        None,
    )


def nonfinite(tensors: Tensors) -> str | None:
    """The first entry that has NaN or infinite values; None if there is none."""
    return next((name for name, value in tensors.items() if not torch.isfinite(value).all()), None)


def without_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> str | None:
    """The first parameter that the loss gives no finite gradient; None if all have one."""
    loss = nn.functional.cross_entropy(model(images), labels)
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return next(
        (
            n
            for n, g in zip(names, gradients, strict=True)
            if g is None or not torch.isfinite(g).all()
        ),
        None,
    )
