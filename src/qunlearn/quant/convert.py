"""`quantize(model, spec)`: replace layers by low-bit layers, and report those that cannot be."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qunlearn.errors import UserError, unknown
from qunlearn.quant.batchnorm import preserve_running_stats
from qunlearn.quant.layers import QUANTIZED, QuantLayer
from qunlearn.quant.quantizer import families
from qunlearn.quant.spec import LayerSpec, QuantSpec, covers


def quantize(model: nn.Module, spec: QuantSpec) -> nn.Module:
    """Replace a model's convolutions and linear layers by low-bit ones, in place, and return it.

    Weights, biases and BatchNorm stay the same objects under the same names, so a state dict of the
    full-precision model still fits. A module used in several places is replaced once. The first and
    the last layer, in the order in which the model registers them, get `spec.first_last_bits`.
    Weight scales are initialised from the weights now, activation scales from the first batch of
    the forward pass. In a custom training loop, call `calibrate` first to choose that batch. The
    spec is stored as the model's `quant_spec`.

    Raises:
        UserError: If the model has weights that cannot be quantized; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
        >>> model = quantize(model, QuantSpec(weights=4, activations=4))
        >>> model[0].weight_quantizer
        LsqPlusWeight(bits=8)
    """
    if any(isinstance(module, QuantLayer) for module in model.modules()):
        raise UserError(
            "This model is quantized already; quantize the full-precision model it came from."
        )
    if spec.full_precision:
        return model
    plan = _plan(model, spec)
    swapped = {id(layer): _swap(layer, layer_spec) for layer, layer_spec in plan}
    vars(swapped.get(id(model), model))["quant_spec"] = spec  # so that it can be saved
    if id(model) in swapped:
        return swapped[id(model)]
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and id(child) in swapped:
                setattr(parent, name, swapped[id(child)])
    return model


@torch.no_grad()
def calibrate(model: nn.Module, images: Tensor) -> None:
    """Initialise the activation scales from one batch, as the first training step would.

    Calibrating with a whole batch makes the scales independent of how later batches are divided
    into steps or among processes. BatchNorm's running statistics are not updated.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, QuantLayer)}
    reached: set[int] = set()
    hooks = [m.register_forward_hook(lambda m, *_: reached.add(id(m))) for m in layers.values()]
    try:
        with preserve_running_stats(model):
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    unreached = [name for name, layer in layers.items() if id(layer) not in reached]
    if unreached:
        raise UserError(
            f"The layer {unreached[0]!r} saw no data: the model does not call it, or keeps it in a "
            f"plain list; leave it alone with overrides={{{unreached[0]!r}: None}}."
        )


def edge_layers(model: nn.Module) -> tuple[str, str]:
    """The names of the first and the last layer with a weight, quantized or not."""
    kinds = (*QUANTIZED, *QUANTIZED.values())
    names = [name for name, module in model.named_modules() if type(module) in kinds]
    return names[0], names[-1]


def _plan(model: nn.Module, spec: QuantSpec) -> list[tuple[nn.Module, LayerSpec]]:
    """The layers to quantize, each with its spec; raises before the model is changed."""
    layers = {name: module for name, module in model.named_modules() if type(module) in QUANTIZED}
    names = list(layers)
    all_names = [n for n, _ in (*model.named_modules(), *model.named_parameters())]
    for pattern, changes in spec.overrides.items():
        if not any(covers(pattern, name) for name in (all_names if changes is None else names)):
            raise unknown("layer in an override:", pattern, names)
    problems = _problems(model, spec)
    if problems:
        example = next((name for name in problems if name), None)
        remedy = f" To leave it as it is, pass overrides={{{example!r}: None}}." if example else ""
        raise UserError(f"Cannot quantize {'; '.join(problems.values())}.{remedy}")
    if not layers:
        raise UserError(
            "There is nothing to quantize: the model has no convolution and no linear layer."
        )
    plan, edges = [], edge_layers(model)
    for name, layer in layers.items():
        layer_spec = spec.for_layer(name, edge=name in edges)
        if layer_spec is not None:
            plan.append((layer, layer_spec))
    return plan


def _problems(model: nn.Module, spec: QuantSpec) -> dict[str, str]:
    """The modules that cannot be quantized, outermost ones only: name to reason."""
    problems: dict[str, str] = {}
    for name, module in model.named_modules():
        if spec.leaves_alone(name) or any(name.startswith(f"{outer}.") for outer in problems):
            continue
        if reason := _obstacle(module):
            problems[name] = f"{name or 'the model itself'} ({type(module).__name__}): {reason}"
        elif type(module) not in QUANTIZED:
            for matrix in _matrices(module):
                inner = f"{name}.{matrix}" if name else matrix
                if not spec.leaves_alone(inner):
                    problems[inner] = (
                        f"{inner} (parameter of {type(module).__name__}): a matrix outside of "
                        "convolutions and linear layers has no low-bit form; make it one of those"
                    )
    return problems


def _obstacle(module: nn.Module) -> str | None:
    """Why a module as a whole cannot be quantized, or None if it can or need not."""
    tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if any(nn.parameter.is_lazy(tensor) for tensor in tensors):
        return "its shape is not known yet; run one batch through the model first"
    if nn.utils.parametrize.is_parametrized(module):
        return (
            "its weight is computed by a parametrization; remove that first with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    kind = next((base for base in QUANTIZED if isinstance(module, base)), None)
    if kind is type(module):
        return _weight_obstacle(module)
    if kind is not None:
        return f"a subclass of {kind.__name__} may compute something else; use nn.{kind.__name__}"
    if isinstance(module, nn.TransformerEncoderLayer):
        return "in eval mode it reads its layers' weights past them; write it out as layers"
    if type(module).__module__.startswith("torch.nn.") and _matrices(module):
        return f"no low-bit form of its {_matrices(module)[0]!r} is known; use other layers"
    return None


def _weight_obstacle(layer: nn.Module) -> str | None:
    """Why the weight of a convolution or linear layer cannot be quantized, or None if it can."""
    members = (*layer.named_parameters(), *layer.named_buffers(), *layer.named_children())
    foreign = [name for name, _ in members if name not in ("weight", "bias")]
    if foreign:
        return (
            f"it also holds {foreign[0]!r}, which its weight may be computed from; "
            "undo weight norm, spectral norm, pruning or adapters first"
        )
    weight = layer.weight
    assert isinstance(weight, Tensor)
    if weight.is_meta:
        return "its weight has no values yet; load them first"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}; convert it to float32 first"
    if not torch.isfinite(weight).all():
        return "its weight has NaN or infinite values; repair or retrain it"
    return None


def _matrices(module: nn.Module) -> list[str]:
    """The names of a module's direct parameters that are matrices, not norms, biases or gains."""
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return []
    parameters = module.named_parameters(recurse=False)
    return [name for name, p in parameters if sum(size > 1 for size in p.shape) > 1]


def _swap(layer: nn.Module, spec: LayerSpec) -> QuantLayer:
    family = families[spec.quantizer]
    weight = layer.weight
    assert isinstance(weight, Tensor)
    for_weight: nn.Module = nn.Identity()
    for_input: nn.Module = nn.Identity()
    if spec.weights is not None:
        for_weight = family.weights(spec.weights, weight, spec.per_channel, spec.init)
        for_weight.to(weight.device)
        for_weight.initialise(weight)
    if spec.activations is not None:
        for_input = family.activations(spec.activations, spec.init).to(weight.device)
    return QUANTIZED[type(layer)](layer, for_weight, for_input)
