r"""IU: one step along the influence function of removing the forget samples.

$\theta + \alpha F^{-1} v$, with
$v = \frac1N \sum_f \nabla\ell - \frac{N_f}{N N_r} \sum_r \nabla\ell$ and the
damped Fisher matrix $F = \lambda I + \frac1m \sum_i g_i g_i^\top$ of m retained samples'
gradients. With $G = [g_1 \dots g_m]$ Woodbury's identity gives

$F^{-1} v = \frac1\lambda \left[ v - G (m \lambda I + G^\top G)^{-1} G^\top v \right]$,

which needs $G$ only through the m×m matrix $G^\top G$, m products $G^\top v$, and one weighted
gradient $G a$. So no more than a few gradients are ever held at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from qunlearn.data import ImageData
from qunlearn.data.draw import generator
from qunlearn.errors import Failure
from qunlearn.methods.base import Job, MethodConfig, Range, method
from qunlearn.methods.whole_gradient import continuous, whole_gradient
from qunlearn.store.history import Epoch
from qunlearn.training.progress import Progress

BLOCK_BYTES = 1 << 28
"""How much memory a block of per-sample gradients may take; two are held at once."""


class IuConfig(MethodConfig):
    """IU's settings."""

    alpha: float = Field(4.0, gt=0, description="The length of the step.")
    damping: float = Field(10.0, gt=0, description="λ, added to the Fisher matrix's diagonal.")
    samples: int = Field(
        256, ge=1, description="m, the retained samples whose gradients make the Fisher matrix."
    )
    search = {"alpha": Range(1.0, 20.0)}


@method("iu", config=IuConfig, source="Izzo et al. 2021; WoodFisher: Singh and Alistarh 2020")
def iu(job: Job, config: IuConfig) -> None:
    """Take one influence step, with the inverse Fisher matrix of the retained samples."""
    data, forget, retain = job.split.data, job.split.forget, job.split.retain
    job.model.to(job.fabric.device)
    # Without the quantizers' own: a step that suits the weights may carry a scale through zero.
    weights = continuous(job.model)
    started = time.perf_counter()
    total = len(forget) + len(retain)
    shares = torch.cat(
        [
            torch.full((len(forget),), 1 / total, dtype=torch.float64),
            torch.full((len(retain),), -len(forget) / (total * len(retain)), dtype=torch.float64),
        ]
    )
    everything = torch.cat([forget, retain])
    v = whole_gradient(job.model, data, everything, shares, parameters=weights)
    order = generator("fisher", config.seed).permutation(len(retain))
    some = retain[torch.from_numpy(order)[: config.samples]]
    step = inverse_fisher_product(job, weights, some, v, config.damping)
    if not all(torch.isfinite(part).all() for part in step):
        raise Failure(
            f"The influence step is not finite with a damping of {config.damping:g}; raise it "
            "with --set damping=. Nothing is kept."
        )
    with torch.no_grad():
        torch._foreach_add_([p.data for p in weights], step, alpha=config.alpha)
    seconds = round(time.perf_counter() - started, 3)
    if job.fabric.is_global_zero:
        job.on_epoch(Epoch(epoch=1, scalars=job.watch(), seconds=seconds, elapsed=seconds))


def inverse_fisher_product(
    job: Job, weights: Sequence[nn.Parameter], samples: Tensor, v: list[Tensor], damping: float
) -> list[Tensor]:
    """`F⁻¹v`, with the Fisher matrix of the samples' gradients."""
    data, count = job.split.data, len(samples)
    flat = torch.cat([part.flatten() for part in v])
    rows = max(1, min(count, BLOCK_BYTES // (flat.numel() * flat.element_size())))
    blocks = torch.split(torch.arange(count), rows)
    gram = torch.zeros(count, count, dtype=torch.float64)
    products = torch.zeros(count, dtype=torch.float64)
    pairs = len(blocks) * (len(blocks) + 1) // 2
    with Progress("influence", pairs, job.fabric.is_global_zero) as progress:
        for i, block in enumerate(blocks):
            mine = per_sample(job.model, weights, data, samples[block])
            products[block] = (mine @ flat).double().cpu()
            for column in blocks[i:]:
                # Computed again for each pair: time for memory.
                theirs = (
                    mine
                    if column is block
                    else per_sample(job.model, weights, data, samples[column])
                )
                part = (mine @ theirs.T).double().cpu()
                gram[block[:, None], column] = part
                gram[column[:, None], block] = part.T
                progress.advance()
    damped = gram + count * damping * torch.eye(count, dtype=torch.float64)
    amounts = torch.linalg.solve(damped, products)
    combined = whole_gradient(job.model, data, samples, amounts, parameters=weights)
    return [(part - correction) / damping for part, correction in zip(v, combined, strict=True)]


def per_sample(
    model: nn.Module, weights: Sequence[nn.Parameter], data: ImageData, index: Tensor
) -> Tensor:
    """Each sample's gradient as a row."""
    rows = torch.empty(len(index), sum(p.numel() for p in weights), device=weights[0].device)
    for row, gradient in zip(rows, _each(model, weights, data, index), strict=True):
        torch.cat([part.flatten() for part in gradient], out=row)
    return rows


def _each(
    model: nn.Module, weights: Sequence[nn.Parameter], data: ImageData, index: Tensor
) -> Iterator[list[Tensor]]:
    for row in torch.split(index, 1):
        yield whole_gradient(model, data, row, torch.ones(1), parameters=weights)
