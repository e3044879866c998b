"""Groups of parameters that are projected together."""

from __future__ import annotations

from typing import Literal

from torch import nn

from qunlearn.quant import Quantizer

Granularity = Literal["layer", "tensor", "global"]


def parameter_layers(model: nn.Module) -> list[tuple[str, str, nn.Parameter]]:
    """Every trainable parameter once, as (layer name, parameter name, parameter).

    A layer is a module with parameters of its own; a quantizer's parameters belong to the layer
    whose weight or input it rounds. A shared parameter belongs to the first layer that uses it.
    """
    parameters, seen = [], set()
    for name, module in model.named_modules():
        layer = name.rpartition(".")[0] if isinstance(module, Quantizer) else name
        for local_name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                full_name = f"{name}.{local_name}" if name else local_name
                parameters.append((layer, full_name, parameter))
    return parameters


def group_names(model: nn.Module, granularity: Granularity) -> list[tuple[str, nn.Parameter]]:
    """Every trainable parameter with the name of the group that it is projected in.

    Projection would reduce a group with a single scalar to zero. With "tensor", a scalar therefore
    joins the largest tensor of its layer. A layer that has only a scalar, such as a PReLU, joins
    the previous layer.
    """
    members = _join_scalar_layers(parameter_layers(model))
    if granularity == "global":
        return [("", parameter) for _, _, parameter in members]
    if granularity == "layer":
        return [(layer, parameter) for layer, _, parameter in members]
    largest: dict[str, tuple[int, str]] = {}
    for layer, name, parameter in members:
        if layer not in largest or parameter.numel() > largest[layer][0]:
            largest[layer] = (parameter.numel(), name)
    return [
        (largest[layer][1] if parameter.numel() == 1 else name, parameter)
        for layer, name, parameter in members
    ]


def _join_scalar_layers(
    members: list[tuple[str, str, nn.Parameter]],
) -> list[tuple[str, str, nn.Parameter]]:
    """Join each layer with a single scalar to the previous layer (the first to the next)."""
    sizes: dict[str, int] = {}
    for layer, _, parameter in members:
        sizes[layer] = sizes.get(layer, 0) + parameter.numel()
    larger = [layer for layer, size in sizes.items() if size > 1]
    target, current = {}, larger[0] if larger else ""
    for layer, size in sizes.items():
        current = layer if size > 1 else current
        target[layer] = current
    return [(target[layer], name, parameter) for layer, name, parameter in members]
