"""Networks as other people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Branches(nn.Module):
    """Containers, a None, a buffer, a gain, group norm, functional calls, several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding="same", bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.extra = None
        self.paths = nn.ModuleDict(
            {
                "wide": nn.Sequential(nn.Conv2d(8, 8, 5, padding=2, groups=8), nn.GroupNorm(2, 8)),
                "far": nn.ModuleList([nn.Conv2d(8, 8, 3, padding=2, dilation=2)]),
            }
        )
        self.gain = nn.Parameter(torch.ones(1, 8, 1, 1))
        self.register_buffer("shift", torch.tensor(0.5))
        self.heads = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 2)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = nn.functional.relu(self.norm(self.stem(x)))
        x = self.paths["wide"](x) + self.gain * self.paths["far"][0](x) + self.shift
        x = x.mean((2, 3))
        return self.heads[0](x), self.heads[1](x)


class Twins(nn.Module):
    """One encoder under two names, and two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5))
        self.mirror = self.encoder
        self.again = self.encoder[0]
        self.up = nn.Linear(5, 5, bias=False)
        self.down = nn.Linear(5, 5)
        self.down.weight = self.up.weight
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x) * self.mirror(-x) + self.again(x)
        return self.head(self.down(self.up(x)))


class Sound(nn.Module):
    """One-dimensional, with a linear layer over a sequence and a norm over two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.listen = nn.Conv1d(1, 4, 5, stride=2, padding=2, padding_mode="circular")
        self.mix = nn.Linear(4, 4)
        self.norm = nn.LayerNorm([8, 4])
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.mix(torch.relu(self.listen(x)).transpose(1, 2)))
        return self.head(x.flatten(1))


class Volume(nn.Sequential):
    """Three-dimensional, a Sequential by inheritance."""

    def __init__(self) -> None:
        super().__init__(nn.Conv3d(1, 2, 3), nn.PReLU(), nn.Flatten(), nn.Linear(16, 2))


ODD: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "branches": (Branches, (4, 3, 6, 6)),
    "twins": (Twins, (4, 6)),
    "sound": (Sound, (4, 1, 16)),
    "volume": (Volume, (4, 1, 4, 4, 4)),
}


def build(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    make, shape = ODD[name]
    return make(), torch.randn(shape)
