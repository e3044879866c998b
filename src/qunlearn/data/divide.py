"""Dividing a data set into training, held-out and test part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qunlearn.data.choose import draw_held_out, resolve
from qunlearn.data.dataset import ImageData
from qunlearn.errors import UserError

_NONE, _TRAIN, _HELD_OUT, _TEST = 0, 1, 2, 3
"""The part of a sample; samples that a model trained elsewhere did not see are in none."""


def divide(
    data: ImageData,
    held_out: float | Sequence[str],
    trained_on: Sequence[str] | None,
    seed: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The indices of the training, the held-out and the test part; see `Split.make`."""
    part = torch.where(data.is_test, _TEST, _TRAIN)
    if isinstance(held_out, (int, float, np.floating)):
        if trained_on is not None:
            raise UserError(
                "The held-out samples of a model trained elsewhere cannot be drawn at random: "
                "with trained_on=, give held_out= the ids of samples that it never saw "
                "(--held-out FILE)."
            )
        unseen = draw_held_out(data, float(held_out), seed)
    else:
        unseen = resolve(data, held_out, "held_out")
    if trained_on is not None:
        seen = resolve(data, trained_on, "trained_on")
        part[part == _TRAIN] = _NONE
        part[seen] = _TRAIN
        both = unseen[part[unseen] == _TRAIN]
        if len(both):
            raise UserError(
                f"The sample {data.ids[int(both[0])]!r} is listed both as trained on and as "
                "held out; remove it from one of the two lists."
            )
    part[unseen] = _HELD_OUT
    train, held, test = ((part == p).nonzero().flatten() for p in (_TRAIN, _HELD_OUT, _TEST))
    if not len(train):
        raise UserError(f"No training sample of {data.name} is left; hold out fewer.")
    return train, held, test
