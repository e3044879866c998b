"""What each of two processes does; in a module of its own, which child processes can import."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from qunlearn.gradients import GradientProjector


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 16), nn.Tanh(), nn.Linear(16, 5)
    )


def batches() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(1)
    xf, xr = (torch.randn(8, 1, 8, 8, generator=chance) for _ in range(2))
    return xf, xr, torch.arange(8) % 5


def updated(model: nn.Module, rows: slice, granularity: str) -> None:
    """Three steps of OEU on these rows of the batches, clipped after projection."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    projector = GradientProjector(plain, granularity=granularity)
    xf, xr, yr = (each[rows] for each in batches())
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):  # accumulated, the two losses by turns
            with projector.retain():
                nn.functional.cross_entropy(model(xr), yr).backward()
            with projector.forget():
                p = model(xf).softmax(1)
                (p * p.log()).sum(1).mean().backward()
        projector.project()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def process(rank: int, folder: str, granularity: str, views: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = network()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=views)
    updated(parallel, slice(4 * rank, 4 * rank + 4), granularity)
    torch.save(model.state_dict(), os.path.join(folder, f"{rank}.pt"))  # noqa: PTH118
    dist.barrier()
    dist.destroy_process_group()
