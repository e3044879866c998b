"""Which parameters are projected together."""

from __future__ import annotations

from typing import Literal

from torch import nn

from qunlearn.quant import Quantizer

Granularity = Literal["layer", "tensor", "global"]


def parameter_layers(model: nn.Module) -> list[tuple[str, str, nn.Parameter]]:
    """Every trainable parameter once, as (its layer, its own name, itself).

    A layer is a module with parameters of its own; a quantizer's parameters belong to the layer
    whose weight or input it rounds. A shared parameter belongs to the first layer that uses it.
    """
    found, seen = [], set()
    for name, module in model.named_modules():
        layer = name.rpartition(".")[0] if isinstance(module, Quantizer) else name
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                full = f"{name}.{own}" if name else own
                found.append((layer, full, parameter))
    return found


def group_names(model: nn.Module, granularity: Granularity) -> list[tuple[str, nn.Parameter]]:
    """Every trainable parameter with the name of the group that it is projected in.

    A group of a single number would be projected to nothing. So with "tensor" a single number goes
    with the largest tensor of its layer; and a layer that has nothing else, such as a PReLU, goes
    with the layer before it.
    """
    members = _without_lone_numbers(parameter_layers(model))
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


def _without_lone_numbers(
    members: list[tuple[str, str, nn.Parameter]],
) -> list[tuple[str, str, nn.Parameter]]:
    """Layers of a single number joined to the one before them (the first to the one after)."""
    sizes: dict[str, int] = {}
    for layer, _, parameter in members:
        sizes[layer] = sizes.get(layer, 0) + parameter.numel()
    larger = [layer for layer, size in sizes.items() if size > 1]
    home, current = {}, larger[0] if larger else ""
    for layer, size in sizes.items():
        current = layer if size > 1 else current
        home[layer] = current
    return [(home[layer], name, parameter) for layer, name, parameter in members]
