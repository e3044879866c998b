"""Initial scales: the grid that rounds a tensor with the least squared error."""

from __future__ import annotations

import torch
from torch import Tensor

from qunlearn.quant.limits import SMALLEST_SCALE


def least_squares_scale(
    x: Tensor, zero_point: Tensor | float, low: int, high: int, candidates: int = 80
) -> Tensor:
    """The scale that rounds `x` with the least squared error, one for each row of `x`.

    `x` is rows by elements. A grid search over clipping ranges finds the basin. The closed form for
    fixed codes, `s = ⟨x, k - z⟩/⟨k - z, k - z⟩`, is then iterated to the local minimum.
    """
    zero = torch.as_tensor(zero_point, dtype=x.dtype, device=x.device)
    below, above = (zero - low).clamp_min(0.5), (high - zero).clamp_min(0.5)
    widest = torch.maximum(
        -x.amin(dim=1, keepdim=True) / below, x.amax(dim=1, keepdim=True) / above
    )
    widest = torch.where(widest > 0, widest, x.abs().amax(dim=1, keepdim=True) / max(high, 1))

    best = widest
    least = torch.full_like(widest, torch.inf)
    for share in torch.linspace(1.2, 0.02, candidates).tolist():
        scale = widest * share
        error = _squared_error(x, scale, zero, low, high)
        best = torch.where(error < least, scale, best)
        least = torch.minimum(error, least)
    for _ in range(20):
        codes = _steps(x, best, zero, low, high)
        scale = (x * codes).sum(1, keepdim=True) / codes.square().sum(1, keepdim=True).clamp_min(1)
        error = _squared_error(x, scale, zero, low, high)
        better = (error < least) & (scale > 0)
        if not better.any():
            break
        best = torch.where(better, scale, best)
        least = torch.where(better, error, least)
    # Zeros only: any grid is exact, so use the one that spans [-1, 1].
    return torch.where(best > 0, best, torch.full_like(best, 1 / max(high, 1)))


def least_squares_range(x: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    """The `(scale, offset)` of the grid with a code for zero that rounds `x` with least error.

    The two ends of the range are searched alternately. The scale is then refined by
    `least_squares_scale`.
    """
    x = x.reshape(1, -1)
    ends = [x.amin().clamp_max(0), x.amax().clamp_min(0)]
    if ends[0] == ends[1]:
        return x.new_tensor(1 / max(high, 1)), x.new_zeros(())
    shares = torch.linspace(1, 0.05, 39).tolist()
    for _ in range(2):
        for end in (1, 0):
            trials = []
            for share in shares:
                trial = [*ends]
                trial[end] = ends[end] * share
                scale, zero = _grid(trial[0], trial[1], low, high)
                trials.append((_squared_error(x, scale, zero, low, high).item(), trial[end]))
            ends[end] = min(trials, key=lambda pair: pair[0])[1]
    _, zero = _grid(ends[0], ends[1], low, high)
    scale = least_squares_scale(x, zero, low, high).squeeze()
    return scale, (low - zero) * scale


def _grid(bottom: Tensor, top: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    scale = ((top - bottom) / (high - low)).clamp_min(SMALLEST_SCALE)
    return scale, (low - bottom / scale).round().clamp(low, high)


def _squared_error(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> Tensor:
    return (x - scale * _steps(x, scale, zero, low, high)).square().sum(dim=1, keepdim=True)


def _steps(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> Tensor:
    """The code of `x` without the zero point, `k - z`."""
    return (x / scale.clamp_min(SMALLEST_SCALE)).round().clamp(low - zero, high - zero)
