"""Two processes with half of each batch make the update of one process with the whole."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
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
        with projector.forget():
            p = model(xf).softmax(1)
            (p * p.log()).sum(1).mean().backward()
        with projector.retain():
            nn.functional.cross_entropy(model(xr), yr).backward()
        projector.project()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def process(rank: int, folder: str, granularity: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = network()
    updated(DistributedDataParallel(model), slice(4 * rank, 4 * rank + 4), granularity)
    torch.save(model.state_dict(), os.path.join(folder, f"{rank}.pt"))  # noqa: PTH118
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_make_the_update_of_one():
    start = network().state_dict()
    for granularity in ("layer", "global"):
        whole = network()
        updated(whole, slice(0, 8), granularity)
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(process, (folder, granularity), nprocs=2)
            for rank in (0, 1):
                shared = torch.load(f"{folder}/{rank}.pt", weights_only=True)
                for name, value in whole.state_dict().items():
                    moved = value - start[name]
                    error = (shared[name] - start[name] - moved).norm() / moved.norm()
                    assert error < 1e-5, (name, float(error))
