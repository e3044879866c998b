"""Models by registered name, or by a user's `package.module:factory`."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from qunlearn.errors import UserError
from qunlearn.importing import import_from_here
from qunlearn.registry import Registry


@dataclass(frozen=True)
class ImageShape:
    """Image shape: number of channels, and pixels along the shorter side."""

    channels: int
    size: int


models: Registry[Callable[[ImageShape, int, float], nn.Module]] = Registry("model")
"""Factories, called with the image shape, the number of classes and a width multiplier."""


MOST = 1_000_000
"""Maximum number of classes, of channels, and of pixels along a side."""


@dataclass(frozen=True)
class ModelSpec:
    """Everything needed to rebuild a model; saved with its weights."""

    name: str
    classes: int
    channels: int
    size: int
    width: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UserError(
                f"The model name {self.name!r} is not a string; give a name such as 'resnet18'."
            )
        for what in ("classes", "channels", "size"):
            number = getattr(self, what)
            if type(number) is not int or not 1 <= number <= MOST:
                raise UserError(
                    f"A model with {what} = {number!r} is invalid: choose 1 to {MOST:,}."
                )
        if type(self.width) not in (int, float) or not 0 < self.width <= 16:
            raise UserError(
                f"The width {self.width!r} is invalid: choose more than 0 and at most 16."
            )

    @property
    def is_factory(self) -> bool:
        """Whether the name is a user's `package.module:factory`."""
        return ":" in self.name

    def build(self, seed: int = 0) -> nn.Module:
        """Build the model with initial weights from `seed`; the global generator is unchanged.

        The model gets this spec as `model_spec`, so that it can be saved.

        Example:
            >>> model = ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
            >>> model(torch.zeros(2, 1, 8, 8)).shape
            torch.Size([2, 10])
        """
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device
            if self.is_factory:
                model = _call_factory(self.name, self.classes)
            else:
                shape = ImageShape(self.channels, self.size)
                model = models[self.name](shape, self.classes, self.width)
        vars(model)["model_spec"] = self
        return model

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, for saving."""
        return asdict(self)


def scaled(channels: int, width: float) -> int:
    """Channels times the width multiplier, rounded to a multiple of four.

    >>> scaled(64, 0.25), scaled(24, 0.5), scaled(16, 0.1)
    (16, 12, 4)
    """
    return max(4, round(channels * width / 4) * 4)


def _call_factory(path: str, classes: int) -> nn.Module:
    """Import and call a user's factory, with `num_classes` if it takes that."""
    module_name, _, attribute = path.partition(":")
    try:
        factory = getattr(import_from_here(module_name), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(
            f"The model factory {path!r} cannot be found: {error}; give an importable "
            "package.module:function."
        ) from None
    except Exception as error:  # whatever a user's module does when it is imported
        raise UserError(
            f"The module of the model factory {path!r} cannot be imported: "
            f"{type(error).__name__}: {error}; fix the module."
        ) from error
    arguments = {"num_classes": classes} if _takes(factory, num_classes=classes) else {}
    if not _takes(factory, **arguments):
        raise UserError(
            f"The model factory {path!r} cannot be called; give a function whose only required "
            "argument, if any, is num_classes."
        )
    try:
        model = factory(**arguments)
    except UserError:
        raise
    except Exception as error:  # whatever a user's factory does
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"The model factory {path!r} raised {type(error).__name__}: {error} "
            f"({Path(at.filename).name}, line {at.lineno}); fix the factory."
        ) from error
    if not isinstance(model, nn.Module):
        raise UserError(
            f"The model factory {path!r} returned {type(model).__name__}; return a torch nn.Module."
        )
    return model


def _takes(factory: object, **arguments: object) -> bool:
    """Whether the signature of a factory accepts these arguments."""
    if not callable(factory):
        return False
    try:
        inspect.signature(factory).bind(**arguments)
    except (TypeError, ValueError):
        return False
    return True
