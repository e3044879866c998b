"""Detects non-finite losses and gradients at the step where they occur, and names the layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.errors import Failure
from qunlearn.quant import collapsed


def refuse_nonfinite(
    model: nn.Module,
    scalars: Mapping[str, Tensor],
    again: Callable[[], object],
    where: str,
    *,
    scaled: bool = False,
) -> None:
    """Raise if a scalar that a step reports, or one of its gradients, is NaN or infinite.

    Args:
        model: The model, with the gradients of the step.
        scalars: The scalars that the step reports.
        again: Recomputes the gradients of the step, to find the first non-finite layer.
        where: The epoch and the step, for the message.
        scaled: Whether the loss is scaled (float16); gradients may then overflow at times.
    """
    gradients = {} if scaled else _gradients(model)
    sizes = list(torch._foreach_norm(list(gradients.values()))) if gradients else []
    # One sum for all, because reading each number would stall the device.
    if torch.isfinite(torch.stack([v.float() for v in (*scalars.values(), *sizes)]).sum()):
        return
    scalar_name = next((n for n, v in scalars.items() if not torch.isfinite(v)), None)
    what = (
        f"{scalar_name} became {float(scalars[scalar_name])}"
        if scalar_name
        else "gradient became NaN or infinite"
    )
    first = first_layer(model, again)
    raise Failure(
        f"The {what} in {where}{f', first in {first}' if first else ''}; restart with a lower "
        "learning rate (lr) or with warm-up. The history has the previous epochs, and the last "
        "good checkpoint is kept."
    )


def first_layer(model: nn.Module, again: Callable[[], object]) -> str:
    """The first layer with a non-finite output, otherwise the last with such a gradient."""
    nonfinite_layers: list[str] = []

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if (
                isinstance(output, Tensor)
                and not nonfinite_layers
                and not torch.isfinite(output).all()
            ):
                nonfinite_layers.append(name)

        return hook

    handles = [m.register_forward_hook(look(name)) for name, m in model.named_modules() if name]
    try:
        again()
    finally:
        for handle in handles:
            handle.remove()
    if nonfinite_layers:
        return f"the output of {nonfinite_layers[0]}"
    # The backward pass starts at the output: the last layer is the first to be non-finite.
    bad = [name for name, g in _gradients(model).items() if not torch.isfinite(g).all()]
    return f"the gradient of {bad[-1]}" if bad else ""


def report_collapse(model: nn.Module) -> tuple[str, ...]:
    """Warn of quantizers whose scale has collapsed to zero; returns their names for the history."""
    names = collapsed(model)
    if names:
        warnings.warn(
            f"The scale of {', '.join(names)} has collapsed to zero and is clamped to the smallest "
            "usable value; lower the learning rate (lr).",
            stacklevel=2,
        )
    return tuple(names)


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
