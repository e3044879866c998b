"""Every method refuses the same impossible learning rates and numbers of epochs."""

from __future__ import annotations

import pytest

from qunlearn.errors import UserError
from qunlearn.methods.base import methods
from qunlearn.training.config import OptimizerConfig

IMPOSSIBLE = {
    "lr": [0.0, -0.1, 1e39, float("inf"), float("nan")],
    "epochs": [0, -1, 10**6 + 1],
}


@pytest.mark.parametrize("name", sorted(methods))
def test_every_method_has_the_bounds_of_the_optimizer(name: str) -> None:
    config = methods[name].config
    for setting, values in IMPOSSIBLE.items():
        if setting not in config.model_fields:
            assert not issubclass(config, OptimizerConfig)
            continue
        for value in values:
            with pytest.raises(UserError, match=f"^{setting} = .* is not possible: "):
                config.parse({setting: value})
        for value in (1e38, 1e-30) if setting == "lr" else (1, 10**6):
            assert getattr(config.parse({setting: value}), setting) == value
