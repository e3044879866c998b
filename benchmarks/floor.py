"""The floor of a step: its bare convolutions and BatchNorms, and what the rest is."""

from __future__ import annotations

import torch
from steps import images
from timing import Work
from torch import Tensor, nn


def bare_kernels(net: nn.Module, batch: int = 64) -> Work:
    """Forward and backward of each convolution and BatchNorm alone, on tensors of their shapes."""
    shapes: list[tuple[nn.Module, torch.Size]] = []
    layers = [m for m in net.modules() if isinstance(m, (nn.Conv2d, nn.BatchNorm2d))]
    hooks = [
        m.register_forward_hook(lambda m, inputs, _: shapes.append((m, inputs[0].shape)))
        for m in layers
    ]
    net.train()(images(batch))
    for hook in hooks:
        hook.remove()
    parts = [kernel(module, shape) for module, shape in shapes]
    return lambda: [part() for part in parts]


def kernel(module: nn.Module, shape: torch.Size) -> Work:
    """One layer's forward and backward; the first convolution needs no gradient of its input."""
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    if isinstance(module, nn.BatchNorm2d):
        return lambda: batch_norm(x, module)
    weight = module.weight.detach().contiguous(memory_format=torch.channels_last)
    geometry = (module.stride, module.padding, module.dilation, False, (0, 0), module.groups)
    wanted = (shape[1] > 3, True, False)

    def work() -> None:
        y = torch.convolution(x, weight, None, *geometry)
        torch.ops.aten.convolution_backward(y, x, weight, None, *geometry, wanted)

    return work


def batch_norm(x: Tensor, norm: nn.BatchNorm2d) -> None:
    """Forward and backward of BatchNorm in training."""
    weight, bias = norm.weight.detach(), norm.bias.detach()
    y, mean, deviation = torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
    torch.ops.aten.native_batch_norm_backward(
        y, x, weight, None, None, mean, deviation, True, 1e-5, [True, True, True]
    )


def shares(work: Work) -> dict[str, float]:
    """Which share of a function's time goes where; quantizers with all that they call."""
    work()
    with torch.profiler.profile() as profile:
        work()
    events = profile.key_averages()
    total = sum(e.self_cpu_time_total for e in events)
    named = {
        "convolutions": ("aten::mkldnn_convolution", "aten::convolution_backward"),
        "BatchNorm": ("aten::native_batch_norm", "aten::native_batch_norm_backward"),
    }
    by_kind = {
        name: sum(e.self_cpu_time_total for e in events if e.key in keys) / total
        for name, keys in named.items()
    }
    rounding = ("_Round", "_RoundBackward")
    by_kind["quantizers"] = sum(e.cpu_time_total for e in events if e.key in rounding) / total
    return by_kind | {"the rest": 1 - sum(by_kind.values())}
