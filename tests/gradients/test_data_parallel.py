"""Two processes with half of each batch make the update of one process with the whole."""

import tempfile

import pytest
import torch
import torch.multiprocessing as mp
from gradients.two_processes import network, process, updated


@pytest.mark.usefixtures("quick_children")
def test_two_processes_make_the_update_of_one():
    start = network().state_dict()
    for granularity, views in (("layer", False), ("global", True)):
        whole = network()
        updated(whole, slice(0, 8), granularity)
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(process, (folder, granularity, views), nprocs=2)
            for rank in (0, 1):
                shared = torch.load(f"{folder}/{rank}.pt", weights_only=True)
                for name, value in whole.state_dict().items():
                    moved = value - start[name]
                    error = (shared[name] - start[name] - moved).norm() / moved.norm()
                    assert error < 1e-5, (name, float(error))
