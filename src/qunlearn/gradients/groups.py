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

    With "tensor" a single number still goes with the largest tensor of its layer: alone, it would
    be projected to nothing.
    """
    members = parameter_layers(model)
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
