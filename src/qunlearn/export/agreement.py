"""Comparison of an exported file with the original model on the same samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BATCH = 250


@dataclass(frozen=True)
class Agreement:
    """Agreement of two models' outputs.

    Attributes:
        samples: Number of samples that both were run on.
        top1: The percentage of samples for which both predict the same class.
        largest_difference: Maximum absolute difference of two logits.
        largest_logit: Maximum absolute logit, for comparison.
    """

    samples: int
    top1: float
    largest_difference: float
    largest_logit: float

    @classmethod
    def of(cls, ours: Tensor, theirs: Tensor) -> Agreement:
        """Compare two models' logits.

        >>> Agreement.of(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[0.5, 0.0]] * 2))
        Agreement(samples=2, top1=50.0, largest_difference=2.0, largest_logit=2.0)
        """
        same = (ours.argmax(1) == theirs.argmax(1)).double()
        return cls(
            samples=len(ours),
            top1=100 * float(same.mean()),
            largest_difference=float((ours - theirs).abs().max()),
            largest_logit=float(ours.abs().max()),
        )

    def __str__(self) -> str:
        return (
            f"{self.top1:.2f} % of {self.samples:,} samples get the same class; logits differ by "
            f"at most {self.largest_difference:.2g} (the largest is {self.largest_logit:.2g})"
        )


@torch.inference_mode()
def outputs(network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """A network's outputs; the first sample runs alone, to test the dynamic batch size."""
    parts = [inputs[:1], *torch.split(inputs[1:], BATCH)]
    return torch.cat([network(part) for part in parts if len(part)])
