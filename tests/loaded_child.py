"""What the process loads that quick child processes are forked from; see `quick_children`."""

import torch
from conftest import FEW_STEPS

import qunlearn.study.cells  # noqa: F401
from qunlearn.methods import relearn

torch.set_num_threads(1)  # more would not survive a fork
relearn.PROBE_STEPS = FEW_STEPS
