"""What a run has on record, also as earlier versions wrote it."""

from qunlearn.runs.provenance import separated
from qunlearn.runs.request import ForgetConfig

OLD = {
    "run": "runs/original",
    "random": 0.1,
    "method": "oeu",
    "settings": {"unseen": "held_out", "seed": 0},
    "origin_digest": "ab",
    "asked": "cd",
    "data": {"dataset": "digits", "subset": 200},
    "recipe": {"epochs": 2, "lr": 0.1, "from_scratch": True, "network": "ab"},
}


def test_an_older_configuration_is_read_by_the_present_names():
    config = ForgetConfig.parse(ForgetConfig.modernised(OLD))
    assert config.method == "calibrated"
    assert (config.record.origin, config.record.request) == ("ab", "cd")
    assert config.record.data.subset == 200
    assert config.record.recipe.training == {"epochs": 2, "lr": 0.1}


def test_a_configuration_of_now_keeps_its_names():
    now = {"run": "runs/original", "method": "oeu", "provenance": {"request": "cd"}}
    assert separated(now) == now
    assert separated({"method": "oeu"}) == {"method": "oeu"}
