"""The optimizer and the learning rate schedule."""

from __future__ import annotations

import math

import torch
from torch import nn

from qunlearn.quant import Quantizer
from qunlearn.training.config import OptimizerConfig

LARGEST_CHANGE = 0.025
"""Maximum relative change of a scale per step under a constant gradient; see `largest_change`."""


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two parameter groups: with weight decay, and quantizer parameters without."""
    undecayed = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Quantizer)
        for name, parameter in module.named_parameters(recurse=False)
        if name not in module.decayed
    }
    trainable = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trainable if id(p) not in undecayed], "weight_decay": weight_decay},
        {"params": [p for p in trainable if id(p) in undecayed], "weight_decay": 0.0},
    ]


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.SGD:
    """SGD with momentum; the learning rate is set before each step by `learning_rate`."""
    groups = [g for g in parameter_groups(model, config.weight_decay) if g["params"]]
    optimizer = torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
    if quantizers:
        optimizer.register_step_pre_hook(lambda *_: _clip_scale_gradients(quantizers, optimizer))
    return optimizer


def largest_change(momentum: float) -> float:
    """The relative change per step that a scale's gradient is clipped to.

    Under a constant gradient momentum m multiplies the learning rate by `1/(1-m)`, which the clip
    accounts for, and responds late: a scale p that shrinks by a share c of itself per step follows
    `p'' = (1 + m - c(1-m)) p' - m p`. It stays positive as long as the roots are real, which is
    `c ≤ (1-√m)/(1+√m)`: 0.026 for m = 0.9, but 0.0025 for m = 0.99.

    Example:
        >>> largest_change(0.9), round(largest_change(0.99), 5)
        (0.025, 0.00239)
    """
    root = math.sqrt(momentum)
    return min(LARGEST_CHANGE, 0.95 * (1 - root) / (1 + root))


@torch.no_grad()
def _clip_scale_gradients(quantizers: list[Quantizer], optimizer: torch.optim.SGD) -> None:
    """Clip the quantizers' gradients, so that no scale crosses zero.

    The loss is far from linear in a scale: early in training, at a learning rate that suits the
    weights, one step can carry an 8-bit scale through zero, and the network never recovers.
    """
    group = optimizer.param_groups[0]
    rate = group.get(PEAK, group["lr"]) / (1 - group["momentum"])
    if not rate:
        return
    gradients, limits = [], []
    for quantizer in quantizers:
        for name, size in quantizer.sizes().items():
            gradient = getattr(quantizer, name).grad
            if gradient is not None:
                gradients.append(gradient)
                limits.append(size.detach().abs())
    if gradients:
        limits = list(torch._foreach_mul(limits, largest_change(group["momentum"]) / rate))
        torch._foreach_minimum_(gradients, limits)
        torch._foreach_maximum_(gradients, list(torch._foreach_neg(limits)))


PEAK = "peak"
"""Key in `param_groups`: the highest learning rate at which the current momentum may apply."""


def set_rate(
    optimizer: torch.optim.Optimizer, config: OptimizerConfig, steps: int, epoch: int, step: int
) -> None:
    """Set the learning rate of one step.

    During warm-up the rate rises, so momentum is applied at higher rates than it was accumulated
    at. The scales' gradients are therefore clipped by the peak rate.
    """
    rate = learning_rate(config, steps, epoch, step)
    warming = epoch + step / steps < config.warmup
    for group in optimizer.param_groups:
        group["lr"] = rate
        group[PEAK] = config.lr if warming else rate


def learning_rate(config: OptimizerConfig, steps: int, epoch: int, step: int) -> float:
    """The rate at one step: a linear warm-up, then half a cosine from `lr` down to zero.

    A function of the position alone, so that a run can be resumed at any step.

    Example:
        >>> config = OptimizerConfig(epochs=10, lr=0.1)
        >>> [round(learning_rate(config, 4, e, 0), 4) for e in (0, 5, 9)]
        [0.1, 0.05, 0.0024]
    """
    done = epoch + step / steps
    if done < config.warmup:
        return config.lr * (done + 1 / steps) / config.warmup
    share = (done - config.warmup) / max(config.epochs - config.warmup, 1e-9)
    return config.lr * 0.5 * (1 + math.cos(math.pi * share))
