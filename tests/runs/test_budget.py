"""How deep, at which price: --depth, --budget and --skip-probe."""

import math

import pytest
from conftest import SMALL

from qunlearn.errors import UserError
from qunlearn.runs.forget import forget_run
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.plan import plan_forgetting
from qunlearn.runs.provenance import Recipe
from qunlearn.runs.recipe import retrain_steps
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.run import Run


@pytest.fixture
def planned(run_folder, tmp_path):
    """Plans a request, without carrying it out."""

    def plan(**more):
        asked = {"run": run_folder, "random": 0.1, "threads": 1, **more}
        return plan_forgetting(ForgetConfig.parse(asked), tmp_path / "out")

    return plan


def whole(split):
    """The steps of a Retrain."""
    return SMALL["epochs"] * math.ceil(len(split.retain) / SMALL["batch_size"])


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.999])
def test_a_budget_below_1_is_a_share_of_the_steps_of_a_retrain(planned, share):
    plan = planned(budget=share)
    assert plan.settings.steps == max(1, math.floor(share * whole(plan.split)))
    assert plan.record["settings"]["steps"] == plan.settings.steps  # so that it can be resumed
    assert plan.record["budget"] is None


def test_a_larger_budget_is_a_number_of_steps(planned):
    assert planned(budget=1).settings.steps == 1
    assert planned(budget=70).settings.steps == 70
    assert planned().settings.steps is None


def test_a_budget_and_steps_that_are_set_both_hold(planned):
    assert planned(budget=70, settings={"steps": 5}).settings.steps == 5
    assert planned(budget=4, settings={"steps": 5}).settings.steps == 4


def test_a_method_without_steps_has_no_budget(planned):
    with pytest.raises(UserError, match=r"'oeu' has no number of steps .*; leave --budget out"):
        planned(budget=0.5, method="oeu")


def test_a_share_of_a_retrain_that_nobody_knows_is_refused(planned, monkeypatch):
    split = planned().split
    training = {"epochs": 2, "batch_size": 50, "lr": 0.1}
    assert retrain_steps(Recipe(training=training, from_scratch=True), split) == whole(split)
    adopted = Recipe(training={}, from_scratch=False)
    for unknown in (adopted, Recipe(training=training, from_scratch=False)):
        assert retrain_steps(unknown, split) is None
    monkeypatch.setattr("qunlearn.runs.plan.recipe_of", lambda run: adopted)
    with pytest.raises(UserError, match=r"A budget of 0\.1 of a Retrain .*; give a number"):
        planned(budget=0.1)
    assert planned(budget=10).settings.steps == 10


def test_depth_is_a_setting_and_left_to_the_method_by_default(planned):
    assert planned().settings.depth is None
    assert planned(depth="shallow").settings.depth == "shallow"
    assert planned(depth="deep", settings={"depth": "shallow"}).settings.depth == "deep"
    assert planned(depth="shallow").record["settings"]["depth"] == "shallow"


def test_a_run_keeps_to_its_budget_and_its_probe_can_be_skipped(qunlearn, run_folder, tmp_path):
    words = ("forget", run_folder, "--random", 0.1, "--threads", 1, "--accept", "--budget", 3)
    code, said, _ = qunlearn(*words, "--depth", "shallow", "--skip-probe", "--out", tmp_path / "a")
    assert code == 0
    run = Run.open(tmp_path / "a")
    found = metrics_of(run)
    assert (found.calibration.steps, found.calibration.limited) == (3, True)
    assert found.calibration.depth == run.config["settings"]["depth"] == "shallow"
    assert found.relearning is None
    assert "probe" not in run.info.seconds
    assert "fine-tuning on retained" not in said

    code, said, _ = qunlearn(*words, "--depth", "deep", "--out", tmp_path / "b")
    probed = metrics_of(Run.open(tmp_path / "b"))
    assert (probed.calibration.depth, probed.calibration.depth_asked) == ("deep", True)
    assert probed.relearning.target == probed.calibration.target
    assert Run.open(tmp_path / "b").info.seconds["probe"] > 0
    assert f"{probed.relearning.steps} steps of fine-tuning on retained samples" in said


def test_the_probe_changes_no_weight(run_folder, tmp_path):
    asked = {"run": run_folder, "random": 0.1, "threads": 1, "method": "ft", "epochs": 1}
    runs = [
        forget_run(ForgetConfig.parse({**asked, "skip_probe": skip}), tmp_path / str(skip))
        for skip in (True, False)
    ]
    assert runs[0].info.model_sha256 == runs[1].info.model_sha256
    assert [metrics_of(run).relearning is None for run in runs] == [True, False]
