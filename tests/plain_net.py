"""A user's own network without BatchNorm, for tests that name it as `plain_net:make`."""

from torch import nn


def make(num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, num_classes),
    )
