"""No method trains on a sample that it must not: those samples are NaN, and nothing becomes NaN."""

import pytest
import torch
from methods.conftest import fresh, poisoned

from qunlearn.methods import all_methods, forget

NAMES = [method.name for method in all_methods()]
USES_FORGET = {"ga", "iu", "rl", "salun", "qmul", "regun", "oeu", "calibrated"}
USES_RETAIN = set(NAMES) - {"ga"}


def finite(model):
    return all(torch.isfinite(value).all() for value in model.state_dict().values())


def run(model, split, name, **settings):
    """By the method alone: the probe after it trains on what is retained."""
    fast = {"samples": 8} if name == "iu" else {"epochs": 2, "batch_size": 60}
    return forget(model, split, name, fresh=fresh, probe=False, **fast, **settings).model


@pytest.mark.parametrize("name", [n for n in NAMES if n not in USES_FORGET])
def test_methods_that_need_no_forget_sample_see_none(name, trained, float_images):
    split = float_images.forget_random(0.1)
    assert finite(run(trained, poisoned(split, split.forget), name))


@pytest.mark.parametrize("name", ["ga"])
def test_ga_sees_no_retained_sample(name, trained, float_images):
    split = float_images.forget_random(0.1)
    assert finite(run(trained, poisoned(split, split.retain), name))


@pytest.mark.parametrize("name", NAMES)
def test_the_poison_works(name, trained, float_images):
    """Otherwise the tests above could not fail."""
    split = float_images.forget_random(0.1)
    part = split.retain if name in USES_RETAIN else split.forget
    with pytest.raises(Exception, match=r"nan|finite"):
        run(trained, poisoned(split, part), name)
