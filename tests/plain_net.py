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


def too_few(num_classes: int) -> nn.Module:
    return make(num_classes - 1)


def for_larger_images() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, 10))


def with_dropout(num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, num_classes)
    )


def with_module() -> nn.Module:
    model = nn.Module()
    model.module = nn.Linear(64, 10)
    return model
