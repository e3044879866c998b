"""The target comes from unseen samples; the push goes down to it and no further."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from methods.conftest import fresh
from scipy.stats import ks_2samp, percentileofscore, wasserstein_distance

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods import Job, calibrated, calibration, forget
from qunlearn.methods.calibrated import CalibratedConfig, earlier_samples, unseen_samples
from qunlearn.methods.calibration import (
    Calibration,
    Target,
    TargetEstimator,
    WrongTargets,
    calibration_of,
    difficulties,
    rank,
    state_of,
)
from qunlearn.methods.constants import (
    BELOW,
    EARLIER,
    FEWEST,
    LEARNING,
    PRIOR,
    PUSH,
    RECENT,
    SLACK,
    UNEVEN,
    UNKNOWN,
    WRONG,
)
from qunlearn.methods.push import Push, urgency
from qunlearn.methods.relearn import Relearning
from qunlearn.methods.schedule import Schedule, plan_steps
from qunlearn.metrics import entropy, margin
from qunlearn.report.target import target_words
from qunlearn.store.history import Epoch
from qunlearn.training import checkpoint
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.inference import predict
from qunlearn.training.train import train

NUMBERS = st.lists(st.sampled_from([-2.5, -1.0, 0.0, 0.5, 3.0, 40.0]), min_size=1)
QUICK = {"probe": False, "batch_size": 30, "depth": "shallow"}


def target_of(model, split, seed=0):
    return TargetEstimator(model, split, split.held_out, seed).estimate(model)


def odds_of(model, split, part):
    return margin(predict(model, split.data, part), split.data.labels[part])


@given(NUMBERS, NUMBERS)
def test_a_rank_is_the_share_below_with_ties_by_half(values, others):
    found = rank(torch.tensor(values), torch.tensor(others))
    expected = [percentileofscore(others, value, kind="mean") / 100 for value in values]
    torch.testing.assert_close(found, torch.tensor(expected).float(), rtol=0, atol=1e-6)


def test_ranks_among_ones_own_kind_give_the_reference_distribution():
    rng = np.random.default_rng(0)
    among, values = (torch.tensor(rng.normal(3, 5, 4000)) for _ in range(2))
    reference = torch.tensor(rng.exponential(2, 1000))
    found = torch.quantile(reference, rank(values, among))
    for share in (0.1, 0.5, 0.9):
        wanted = np.quantile(reference.numpy(), share)
        assert np.quantile(found.numpy(), share) == pytest.approx(wanted, rel=0.1)


def test_the_target_is_the_definition(trained, asked):
    labels = asked.data.labels
    target = target_of(trained, asked)
    everyone = torch.cat([asked.retain, asked.forget])
    hard = difficulties(trained, asked, everyone, seed=0)
    unseen = odds_of(trained, asked, asked.held_out)
    kept = asked.retain
    less = len(kept) / len(everyone)
    assert len(kept) <= calibration.MEMBERS
    for row in asked.forget[:10].tolist():
        own, same = kept[labels[kept] == labels[row]], labels[asked.held_out] == labels[row]
        targets, count = [], 0
        for members, reference in ((own, unseen[same]), (kept, unseen)):
            if not len(reference):
                targets.append(0.0)
                continue
            share = percentileofscore(hard[members].numpy(), float(hard[row]), kind="mean") / 100
            expected = calibration.with_less_data(reference, less).numpy()
            targets.append(np.quantile(expected, share))
        count = min(len(own), int(same.sum()))
        wanted = (count * targets[0] + PRIOR * targets[1]) / (count + PRIOR)
        assert float(target.margins[row]) == pytest.approx(float(wanted), abs=1e-4)
    others = torch.ones(len(labels), dtype=torch.bool)
    others[asked.forget] = False
    assert target.margins[others].isnan().all()
    assert target.unseen == len(asked.held_out)
    mean = float(entropy(predict(trained, asked.data, asked.held_out)).mean())
    assert target.entropy == pytest.approx(mean * less**-LEARNING)


def test_ranks_are_of_the_network_before_and_the_reference_of_the_one_now(trained, asked):
    """A target is estimated again after forgetting; the samples' order is not."""
    estimate = TargetEstimator(trained, asked, asked.held_out, seed=0)
    less_confident = copy.deepcopy(trained)
    with torch.no_grad():
        less_confident.fc.weight.mul_(0.5)
        less_confident.fc.bias.mul_(0.5)
    before, now = (estimate.estimate(model).margins for model in (trained, less_confident))
    anew = TargetEstimator(less_confident, asked, asked.held_out, seed=0)
    assert not anew.estimate(less_confident).margins[asked.forget].equal(now[asked.forget])
    anew.ranking = estimate.ranking
    assert anew.estimate(less_confident).margins[asked.forget].equal(now[asked.forget])
    assert now[asked.forget].sigmoid().mean() < before[asked.forget].sigmoid().mean()


def test_no_more_unseen_samples_are_used_than_are_needed(trained, asked, monkeypatch):
    monkeypatch.setattr(calibration, "UNSEEN", 12)
    estimate = TargetEstimator(trained, asked, asked.test, seed=0)
    assert len(estimate.unseen) == estimate.estimate(trained).unseen == 12
    assert torch.isin(estimate.unseen, asked.test).all()


@pytest.mark.parametrize("less", [0.9, 0.7, 0.5])
def test_with_less_data_errors_grow_by_the_power_law(less):
    margins = torch.tensor(np.random.default_rng(0).normal(2, 3, 2000))
    found = calibration.with_less_data(margins, less)
    before, after = (float((m < 0).double().mean()) for m in (margins, found))
    assert after == pytest.approx(before * less**-LEARNING, abs=0.002)
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(found, share) < np.quantile(margins, share)
    assert calibration.with_less_data(margins, 1.0) is margins
    right = margins.abs() + 1
    assert calibration.with_less_data(right, less) is right


def test_of_a_class_that_is_gone_nothing_is_to_be_left(trained, digits):
    split = digits.forget_class(3)
    target = target_of(trained, split)
    assert (target.margins[split.forget] == -torch.inf).all()


def test_a_class_is_gone_only_if_nothing_of_it_is_retained(trained, asked, monkeypatch):
    # Of many classes, a few have nobody among the retained samples that are looked at.
    monkeypatch.setattr(calibration, "MEMBERS", 5)
    assert target_of(trained, asked).margins[asked.forget].isfinite().all()


def push_of(model, split, schedule, target=None, **settings):
    """The objective of a schedule, on a model in training mode."""
    config = CalibratedConfig(batch_size=len(split.retain), **settings)
    job = Job(model, split, make_fabric(ComputeConfig()))
    pushed = torch.cat([split.forget, earlier_samples(split)])
    estimate = TargetEstimator(model, split, split.held_out, config.seed)
    target = target or target_of(model, split)
    return Push(job, config, model, target, schedule, pushed, estimate)


def gradients(model):
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def laid_out(push, batch):
    """A batch's images as the objective lays them out.

    Another layout sums in another order, and a sum that comes out in the last bit otherwise can be
    rounded to the next of 16 levels.
    """
    return batch.images.to(memory_format=push.layout)


ROW = Epoch(epoch=1, seconds=0.5, elapsed=0.5)
PUSHING = Schedule("shallow", pushing=1, pushes=1, repair=0, lr=0.01)
REPAIRING = Schedule("shallow", pushing=0, pushes=0, repair=1, lr=0.01)


def test_a_step_is_the_retain_loss_and_the_push_in_one_pass(trained, asked):
    model = copy.deepcopy(trained).train()
    push = push_of(model, asked, PUSHING)
    reported = push.gradients(0, 0)
    found = gradients(model)
    retained, batch = push.augmented.batch(0, 0), push.loader.batch(0, 0)
    assert set(batch.index.tolist()) == set(asked.forget.tolist())
    assert set(retained.index.tolist()) == set(asked.retain.tolist())
    plain = asked.data.normalise(asked.data.images[batch.index])
    torch.testing.assert_close(batch.images, plain)  # the targets are not of augmented ones either
    logits = model(torch.cat([laid_out(push, retained), laid_out(push, batch)]))
    odds = margin(logits[len(retained.labels) :], batch.labels)
    targets = push.target.margins[batch.index]
    above = odds.detach().sigmoid() - targets.sigmoid()
    weights = torch.tensor(list(map(by_hand, odds.tolist(), targets.tolist())))
    weights *= (1 + above.mean() / BELOW).clamp(0, 1)
    assert 0 < weights.count_nonzero() < len(weights)
    loss = torch.nn.functional.cross_entropy(logits[: len(retained.labels)], retained.labels)
    assert float(reported["loss"]) == pytest.approx(float(loss), rel=1e-5)
    (loss + PUSH * (weights * odds).sum() / len(asked.retain)).backward()
    for a, b in zip(found, gradients(model), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_a_step_of_the_repair_is_the_retain_loss_alone(trained, asked):
    model = copy.deepcopy(trained).train()
    push = push_of(model, asked, REPAIRING)
    push.gradients(0, 0)
    found = gradients(model)
    loader = push.plain if REPAIRING.plain_from == 0 else push.augmented
    retained = loader.batch(0, 0)
    logits = model(laid_out(push, retained))
    torch.nn.functional.cross_entropy(logits, retained.labels).backward()
    for a, b in zip(found, gradients(model), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert push.report(ROW) is ROW


def test_the_last_steps_are_without_augmentation(trained, asked, monkeypatch):
    schedule = Schedule("shallow", pushing=1, pushes=1, repair=9, lr=0.01)
    model = copy.deepcopy(trained).train()
    push = push_of(model, asked, schedule)
    assert 1 < schedule.plain_from < schedule.steps
    assert (push.augmented.augment, push.plain.augment, push.loader.augment) == (True, False, False)
    used = []
    for loader in (push.augmented, push.plain):
        own = loader.batch
        monkeypatch.setattr(
            loader, "batch", lambda *at, own=own, name=loader: used.append(name) or own(*at)
        )
    for step in range(schedule.steps):
        push.gradients(0, step)
    augmented = schedule.plain_from
    assert used == [push.augmented] * augmented + [push.plain] * (schedule.steps - augmented)


def test_at_or_below_its_target_no_sample_is_pushed(trained, asked):
    model = copy.deepcopy(trained).train()
    high = replace(target_of(model, asked), margins=torch.full((len(asked.data),), torch.inf))
    push = push_of(model, asked, PUSHING, high)
    push.gradients(0, 0)
    found = push.report(ROW)
    assert found.pushed == 0
    assert found.above < 0


def by_hand(odds, target):
    """How hard a sample is pushed, one by one."""
    far = [(1 / (1 + math.exp(-odds)) - 1 / (1 + math.exp(min(-target, 700)))) / SLACK]
    if -math.inf < target < 0:
        far.append((odds - target) / WRONG)
    return min(max(0, *far), 1)


ODDS = st.floats(-30, 30)


@given(ODDS, ODDS, ODDS | st.just(-math.inf))
def test_the_farther_above_its_target_the_harder_a_sample_is_pushed(one, other, target):
    low, high = sorted((one, other))
    exactly = partial(torch.tensor, dtype=torch.double)
    found = urgency(exactly([low, high]), exactly([target, target]))
    expected = exactly([by_hand(low, target), by_hand(high, target)])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert found[0] <= found[1]
    assert low > target or found[0] == 0


def test_nothing_is_pushed_once_the_samples_together_are_down(trained, asked):
    push = push_of(copy.deepcopy(trained).train(), asked, PUSHING)
    odds = torch.zeros(len(asked.forget))
    for others, pushed in ((20.0, False), (-20.0, True)):
        margins = torch.full((len(asked.data),), others)  # all below their targets, or above ...
        margins[asked.forget[0]] = -20.0  # ... but for one sample that is far above
        push.target = replace(push.target, margins=margins)
        push.recently = torch.empty(0)
        assert bool(push.weights(odds, asked.forget).any()) == pushed
        for _ in range(RECENT // len(odds) + 1):  # the mean is over the recent ones only
            push.weights(odds, asked.forget)
    assert len(push.recently) == min(RECENT, len(asked.forget))


@pytest.fixture(scope="session")
def twice(asked):
    """A second request after the first."""
    return asked.forget_random(0.1, 5)


def test_samples_of_earlier_requests_are_pushed_if_they_rise_and_not_else(trained, twice):
    (earlier,) = twice.earlier
    assert torch.equal(earlier_samples(twice).sort().values, earlier.sort().values)
    job = Job(copy.deepcopy(trained), twice, make_fabric(ComputeConfig()))
    forgetting = calibrated._Forgetting(job, CalibratedConfig())
    now = odds_of(trained, twice, earlier)
    assert set(forgetting.pushed.tolist()) == {*twice.forget.tolist(), *earlier.tolist()}
    torch.testing.assert_close(forgetting.target.margins[earlier], now)
    push = push_of(copy.deepcopy(trained).train(), twice, PUSHING, forgetting.target)
    assert not push.weights(now, earlier).any()
    push.earlier = torch.empty(0)
    rises = push.weights(now + 3, earlier)
    expected = torch.tensor([by_hand(a + 3, a) for a in now.tolist()])
    together = float(((now + 3).sigmoid() - now.sigmoid()).mean()) / BELOW
    torch.testing.assert_close(rises, expected * min(1, together))
    assert rises.any()
    assert not len(push.recently)  # they do not count for the mean of what is asked now
    assert push.report(ROW) is ROW


def test_an_earlier_request_is_held_as_a_whole_and_not_lowered_by_chance(trained, twice):
    """Single samples rise and fall; to push all that rose would lower their mean each time."""
    (earlier,) = twice.earlier
    now = odds_of(trained, twice, earlier)
    target = target_of(trained, twice)
    margins = target.margins.clone()
    margins[earlier] = now
    push = push_of(copy.deepcopy(trained).train(), twice, PUSHING, replace(target, margins=margins))
    some = torch.arange(len(now)) % 2 == 0
    assert not push.weights(torch.where(some, now + 2, now - 9), earlier).any()
    push.earlier = torch.empty(0)
    risen = push.weights(torch.where(some, now + 9, now - 0.01), earlier)
    assert risen[some].any()
    assert not risen[~some].any()


def test_only_so_many_samples_of_earlier_requests_are_earlier_samples(twice, asked, monkeypatch):
    assert not len(earlier_samples(asked))
    assert len(twice.earlier[0]) <= EARLIER
    monkeypatch.setattr(calibrated, "EARLIER", 7)
    some = earlier_samples(twice)
    assert len(some) == 7
    assert torch.isin(some, twice.earlier[0]).all()


def test_a_later_request_does_not_bring_an_earlier_one_back(trained, asked, twice, monkeypatch):
    """Digits that were pushed far down rise at each step on the others, unless they are held."""
    monkeypatch.setattr("qunlearn.methods.push.PUSH", 20.0)
    monkeypatch.setattr("qunlearn.methods.push.BELOW", 9.0)
    first = forget(trained, asked, **QUICK, steps=16).model
    monkeypatch.undo()
    (earlier,) = twice.earlier
    low = 100 * float(odds_of(first, twice, earlier).sigmoid().mean())
    assert low < 60

    def rise():
        model = forget(first, twice, **QUICK, steps=24).model
        return 100 * float(odds_of(model, twice, earlier).sigmoid().mean()) - low

    held = rise()
    monkeypatch.setattr(calibrated, "EARLIER", 0)
    assert held < rise() - 2


def test_what_steers_it_survives_an_interruption_between_rounds(
    trained, asked, tmp_path, monkeypatch
):
    monkeypatch.setattr("qunlearn.methods.push.PUSH", 20.0)  # goes too far; the mean steers
    # ... never to a halt: each step depends on the mean
    monkeypatch.setattr("qunlearn.methods.push.BELOW", 1.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)  # each round's end is kept
    monkeypatch.setattr("qunlearn.methods.schedule.ROUND", 6)
    settings = {**QUICK, "steps": 24}
    whole = forget(trained, asked, **settings)
    pushing = [row for row in whole.history if row.above is not None]
    assert len(pushing) >= 2
    assert min(row.above for row in pushing) < 0

    def stop(row):
        if row.epoch == 2:
            raise KeyboardInterrupt

    kept = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        forget(trained, asked, checkpoint=kept, on_epoch=stop, **settings)
    again = forget(trained, asked, checkpoint=kept, **settings)
    rows = [[replace(row, seconds=0, elapsed=0) for row in each.history] for each in (again, whole)]
    assert rows[0] == rows[1]
    for name, tensor in whole.model.state_dict().items():
        assert tensor.equal(again.model.state_dict()[name]), name


def ending(monkeypatch, states, falls=()):
    """Has each round of steps end in a state of choice, with a fall of the retained accuracy."""
    states, falls = iter(states), iter(falls)
    monkeypatch.setattr(calibration, "state_of", lambda *figures: next(states))
    measure = calibrated._Forgetting.measure

    def measured(self):
        odds, _ = measure(self)
        return odds, 100.0 - next(falls, 0.0)

    monkeypatch.setattr(calibrated._Forgetting, "measure", measured)


@pytest.mark.parametrize(
    ("depth", "states", "falls", "waited"),
    [
        ("shallow", ["reached"], [], ()),
        ("shallow", ["short", "reached"], [], ("target",)),
        ("shallow", ["reached", "reached"], [0.0, 50.0, 0.0], ("retained",)),
        ("shallow", ["short"] * 9, [0.0, 50.0, 0.0], ("retained",)),  # for one reason only
        ("shallow", ["short"] * 9, [], ("target",)),
        ("shallow", ["too far"], [], ()),
        ("deep", ["reached"], [], ()),
        ("deep", ["short"] * 9, [], ("target",)),
        ("deep", ["reached"], [0.0, 50.0, 0.0], ("retained",)),
        ("deep", ["short"] * 9, [0.0, 50.0, 0.0], ("retained", "target")),
    ],
)
def test_steps_are_added_for_what_is_missed_and_that_is_said(
    trained, asked, monkeypatch, depth, states, falls, waited
):
    plans = {
        "shallow": Schedule("shallow", pushing=2, pushes=1, repair=2, lr=0.01),
        "deep": Schedule("deep", pushing=2, pushes=1, repair=3, lr=0.05, noise=0.5),
    }
    monkeypatch.setattr(calibrated, "plan_steps", lambda samples, depth, *rest: plans[depth])
    monkeypatch.setattr(Calibration, "state", property(lambda found: calibration.state_of()))
    monkeypatch.setattr(calibrated, "rescale_temperature", lambda *request: 1.5)
    ending(monkeypatch, states, falls)
    result = forget(trained, asked, **QUICK | {"depth": depth})
    found = result.findings.calibration
    assert found.waited_for == waited
    assert found.logit_scale == 1.5 ** (1 + len(waited))
    # What is still above its target is pushed at the low rate, whatever the depth.
    steps = {"target": plans["shallow"].steps, "retained": plans[depth].repair}
    taken = plans[depth].steps + sum(steps[each] for each in waited)
    assert found.steps == result.config.steps == taken
    assert [row.epoch for row in result.history] == list(range(1, len(waited) + 2))
    elapsed = [row.elapsed for row in result.history]
    assert elapsed == sorted(elapsed)
    monkeypatch.undo()
    said = target_words(replace(found, distance=None))
    assert ("More steps than planned" in said) == bool(waited)
    assert ("until retained samples recovered" in said) == ("retained" in waited)


DEEP = Relearning(4, 0.05, 70.0, 70.0, 70.0, 70.0, 70.0, chance=1.0)
RETURNED = replace(DEEP, after=90.0)


@pytest.mark.parametrize(
    ("memorised", "probe", "settings", "depth", "probed", "waited"),
    [
        (True, DEEP, {}, "deep", 0, ()),
        (False, DEEP, {}, "shallow", 1, ()),
        (False, None, {}, "shallow", 1, ()),  # too few unseen samples, or it diverged
        (False, RETURNED, {}, "deep", 1, ("depth",)),
        (False, RETURNED, {"steps": 9}, "shallow", 0, ()),  # no step is added to a limited number
        (False, RETURNED, {"depth": "shallow"}, "shallow", 0, ()),
        (False, DEEP, {"depth": "deep"}, "deep", 0, ()),
    ],
)
def test_forgetting_is_as_deep_as_the_network_needs(
    trained, asked, monkeypatch, memorised, probe, settings, depth, probed, waited
):
    plans = {
        "shallow": Schedule("shallow", pushing=1, pushes=1, repair=1, lr=0.01),
        "deep": Schedule("deep", pushing=2, pushes=1, repair=1, lr=0.05, noise=0.5),
    }
    targets = []

    def relearn(model, split, fabric, *, target, seed):
        targets.append(target)
        return probe

    monkeypatch.setattr(calibrated, "MEMORISED", -101.0 if memorised else 101.0)
    monkeypatch.setattr(calibrated, "plan_steps", lambda samples, depth, *limits: plans[depth])
    monkeypatch.setattr(calibrated, "relearn", relearn)
    ending(monkeypatch, ["reached"] * 99)
    result = forget(trained, asked, batch_size=30, probe=False, **settings)
    found = result.findings.calibration
    assert (found.depth, found.waited_for, len(targets)) == (depth, waited, probed)
    assert found.depth_asked == ("depth" in settings)
    taken = {"shallow", "deep"} if waited else {depth}
    assert found.steps == sum(plans[each].steps for each in taken)
    # What was measured last is not measured again.
    assert result.findings.relearning == (probe if probed and not waited else None)
    said = target_words(replace(found, distance=None))
    assert ("deep forgetting followed" in said) == bool(waited)
    assert ("memorised little" in said) == (not memorised and "depth" not in settings)


def test_a_network_that_has_memorised_is_above_its_target_by_much(trained, asked):
    """The rule, by its definition."""
    job = Job(copy.deepcopy(trained), asked, make_fabric(ComputeConfig()))
    before = odds_of(trained, asked, asked.forget).sigmoid().mean()
    target = target_of(trained, asked).margins[asked.forget].sigmoid().mean()
    above = 100 * float(before - target)
    for limit, depth in ((above - 0.01, "deep"), (above + 0.01, "shallow")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calibrated, "MEMORISED", limit)
            assert calibrated._Forgetting(job, CalibratedConfig()).depth_needed == depth


@pytest.mark.parametrize(("requests", "fall", "repeated"), [(1, 0.9, False), (2, 0.6, True)])
def test_a_later_request_may_cost_less_accuracy(
    trained, asked, monkeypatch, requests, fall, repeated
):
    """A second request may cost half a point: the network has paid for the first already."""
    split = asked
    for _ in range(requests - 1):
        split = split.forget_random(0.1)
    plan = Schedule("shallow", pushing=1, pushes=1, repair=1, lr=0.01)
    monkeypatch.setattr(calibrated, "plan_steps", lambda *request: plan)
    ending(monkeypatch, ["reached"] * 99, [0.0, fall, 0.0])
    found = forget(trained, split, **QUICK).findings.calibration
    assert ("retained" in found.waited_for) == repeated
    assert found.recovered


def test_no_step_is_added_to_a_limited_number(trained, asked, monkeypatch):
    for steps in (3, 100):  # fewer than are planned, and more
        ending(monkeypatch, ["short"] * 99, [0.0, 50.0])
        found = forget(trained, asked, **QUICK, steps=steps).findings.calibration
        assert found.steps <= steps
        assert (found.waited_for, found.limited) == ((), steps == 3)
    assert (found.retained_before, found.retained_after) == (100.0, 50.0)


def test_the_distribution_lands_near_its_target_and_the_rest_stays(trained, asked):
    result = forget(trained, asked, **QUICK)
    found = result.findings.calibration
    odds = [odds_of(model, asked, asked.forget).numpy() for model in (trained, result.model)]
    before, after = (1 / (1 + np.exp(-each)) for each in odds)
    assert found.before == pytest.approx(100 * before.mean(), abs=0.01)
    assert found.reached == pytest.approx(100 * after.mean(), abs=0.01)
    assert found.met

    def mean(model):
        return float(odds_of(model, asked, asked.retain).sigmoid().mean())

    assert mean(result.model) > mean(trained) - 0.05
    estimate = TargetEstimator(trained, asked, asked.held_out, 0)
    margins = estimate.estimate(result.model).margins[asked.forget].numpy()
    targets = 1 / (1 + np.exp(-margins))
    assert found.target == pytest.approx(100 * targets.mean(), abs=0.01)
    assert found.distance == pytest.approx(ks_2samp(odds[1], margins).statistic)
    assert found.distance_before == pytest.approx(ks_2samp(odds[0], margins).statistic)
    planned = plan_steps(len(asked.forget), "shallow", -(-len(asked.retain) // 30))
    assert (found.depth, found.lr, found.limited) == ("shallow", planned.lr, False)
    assert found.steps >= planned.steps


def test_the_distribution_as_a_whole_comes_near_its_target(digits):
    """Some labels are wrong: what is memorised is far above what unseen samples get."""
    draw, labels = np.random.default_rng(0), digits.data.labels.clone()
    wrong = draw.permutation(len(labels))[: len(labels) * 2 // 5]
    labels[wrong] = torch.from_numpy(draw.integers(0, 10, len(wrong)))
    split = Split.make(replace(digits.data, labels=labels))
    model = train(fresh(0), split, epochs=40, batch_size=30, lr=0.1, augment=False)
    split = split.forget_random(0.3)
    after = forget(model, split, **QUICK).model
    estimator = TargetEstimator(model, split, split.held_out, 0)
    targets = estimator.estimate(after).margins[split.forget].sigmoid()
    distances = [
        wasserstein_distance(odds_of(each, split, split.forget).sigmoid(), targets)
        for each in (model, after)
    ]
    assert distances[1] < distances[0] / 2


@pytest.mark.parametrize("depth", ["deep", "shallow"])
def test_what_was_done_is_on_record(trained, asked, depth):
    settings = {"depth": depth, "steps": 2, "lr": 0.002, "probe": False}
    result = forget(trained, asked, **settings)
    found = result.findings.calibration
    assert (found.depth, found.steps, found.lr, found.limited) == (depth, 2, 0.002, True)
    assert (result.config.steps, result.config.lr) == (2, 0.002)


def test_a_whole_class_has_no_distribution_to_compare(trained, digits):
    split = digits.forget_class(3)
    found = forget(trained, split, **QUICK, steps=2).findings.calibration
    assert (found.class_wise, found.distance, found.distance_before) == (True, None, None)


def aimed_at(margins, unseen=300, variance=0.15):
    return Target(margins, unseen, variance, entropy=0.5)


@pytest.mark.parametrize(
    ("shift", "state"), [(0.0, "reached"), (0.15, "reached"), (9.0, "short"), (-9.0, "too far")]
)
def test_the_verdict_says_where_it_landed(shift, state, asked):
    margins = torch.full((len(asked.data),), torch.nan)
    margins[asked.forget] = torch.linspace(-3, 3, len(asked.forget))
    wanted = margins[asked.forget]
    target, before = aimed_at(margins), torch.full(asked.forget.shape, 5.0)
    found = calibration_of(target, asked, before, wanted + shift)
    assert found.state == state
    assert (found.samples, found.unseen, found.random) == (len(wanted), 300, True)
    assert calibration_of(target, asked, wanted, wanted).state == "little"


@pytest.mark.parametrize("samples", [10, 40])
def test_the_right_mean_is_not_enough(digits, samples):
    """70 % of samples at log-odds +12 and 30 % at -12 have a mean of 0.7, and no such sample."""
    rows = digits.retain[:samples]
    split = digits.forget_ids([digits.data.ids[row] for row in rows.tolist()])
    margins = torch.full((len(split.data),), torch.nan)
    margins[split.forget] = math.log(0.7 / 0.3)
    target, before = aimed_at(margins, unseen=500), torch.full((samples,), 12.0)
    now = torch.full((samples,), 12.0)
    now[: round(0.3 * samples)] = -12.0
    found = calibration_of(target, split, before, now)
    assert found.reached == pytest.approx(found.target, abs=0.01)
    assert found.distance == pytest.approx(0.7)
    assert (found.state, found.met) == ("uneven", False)
    assert "on average only" in target_words(found)
    evenly = calibration_of(target, split, before, margins[split.forget])
    assert (evenly.state, evenly.met, evenly.distance) == ("reached", True, 0.0)


@pytest.mark.parametrize(
    ("distance", "chance", "state"),
    [
        (UNEVEN - 0.01, 0.0, "reached"),
        (UNEVEN + 0.01, 0.0, "uneven"),
        (UNEVEN + 0.01, UNEVEN + 0.02, "reached"),
        (0.9, 0.5, "uneven"),
        (None, 0.0, "reached"),
    ],
)
def test_a_distance_counts_beyond_chance_and_what_is_always_close(distance, chance, state):
    found = Calibration(75.0, 75.5, 98.0, 1.0, 450, 500, random=True)
    found = replace(found, distance=distance, distance_before=0.9, distance_chance=chance)
    assert found.state == state
    assert replace(found, reached=95.0).state == "short"  # the mean comes first


@pytest.mark.parametrize("below", [12.0, 17.0, 29.0])
def test_far_below_the_target_is_never_reached(below):
    reached = 70.0 - below
    for samples in (2, 5, 10, 1000):
        assert state_of(70.0, reached, 98.0, 60.0, samples) == "too far"
    # One sample alone may be anywhere, as one that was never seen may be.
    assert state_of(70.0, reached, 98.0, 60.0, 1) == "open"
    assert state_of(70.0, reached, 98.0, 11.0, 1) == "too far"
    # What was so before is not to be blamed on the method.
    assert state_of(70.0, reached, reached, 60.0, 10) == "little"


@pytest.mark.parametrize(("left", "state"), [(1.0, "short"), (0.3, "short"), (0.2, "reached")])
def test_chance_excuses_no_push_that_went_but_part_of_the_way(left, state, asked):
    margins = torch.full((len(asked.data),), torch.nan)
    margins[asked.forget] = torch.full((len(asked.forget),), 0.6).logit()
    before = torch.full(asked.forget.shape, 0.9).logit()
    now = torch.full(asked.forget.shape, 0.6 + 0.3 * left).logit()
    found = calibration_of(aimed_at(margins, unseen=10, variance=9.0), asked, before, now)
    assert found.chance > 100
    assert replace(found, distance=None).state == state


@pytest.mark.parametrize(
    ("reached", "known", "remedy"),
    [
        (95.0, {"limited": True, "depth": "shallow"}, "allow more steps"),
        (95.0, {"depth": "shallow"}, "try --depth deep"),
        (95.0, {"depth": "deep"}, "use --method retrain"),
        (95.0, {}, "use --method retrain"),
        (75.5, {"depth": "shallow", "distance": 0.9}, "try --depth deep"),
        (50.0, {"lr": 0.01}, "try --set lr=0.005"),
        (50.0, {}, "use --method retrain"),
    ],
)
def test_a_missed_target_comes_with_a_remedy(reached, known, remedy):
    found = Calibration(75.0, reached, 98.0, 1.0, 450, 5000, random=True, **known)
    assert not found.met
    assert f"; {remedy}." in target_words(found)


def test_the_verdict_has_the_log_odds_of_samples_that_were_to_be_wrong(asked):
    margins = torch.full((len(asked.data),), torch.nan)
    margins[asked.forget] = 1.0
    before = torch.full(asked.forget.shape, 3.0)
    assert calibration_of(aimed_at(margins), asked, before, margins[asked.forget]).wrong is None
    margins[asked.forget[:3]] = torch.tensor([-torch.inf, -4.0, -6.0])
    now = torch.full(asked.forget.shape, -2.0)
    now[2] = -3.0
    found = calibration_of(aimed_at(margins), asked, before, now)
    assert found.wrong == WrongTargets(samples=2, target=-5.0, reached=-2.5)


def test_chance_is_what_the_spread_of_unseen_samples_leaves_open(trained, asked, digits):
    target = target_of(trained, asked)
    unseen = odds_of(trained, asked, asked.held_out).sigmoid()
    # Some of which nothing is known beside them: they may as well be all right as all wrong.
    squares = float(((unseen - unseen.mean()) ** 2).sum() + UNKNOWN / 4)
    spread = (squares / (len(unseen) + UNKNOWN)) ** 0.5
    for count in (1, 10, len(asked.forget)):  # one sample alone leaves everything open
        few = digits.forget_ids([asked.data.ids[i] for i in asked.forget[:count].tolist()])
        wanted = target.margins[few.forget]
        found = calibration_of(target, few, wanted, wanted)
        chance = 196 * spread * (1 / count + 1 / len(unseen)) ** 0.5
        assert found.chance == pytest.approx(chance, rel=1e-4)
        assert not found.random
    gone = digits.forget_class(3)
    target, before = target_of(trained, gone), odds_of(trained, gone, gone.forget)
    found = calibration_of(target, gone, before, torch.full((len(gone.forget),), -9.0))
    assert found.chance == 0
    assert (found.class_wise, found.state) == (True, "reached")


def test_classes_that_are_gone_show_nothing_to_later_requests(digits):
    gone = digits.forget_class(3)
    labels = gone.data.labels
    for split in (gone, gone.forget_random(0.2)):
        for part in ("held_out", "test"):
            rows = getattr(split, part)
            assert torch.equal(unseen_samples(split, part), rows[labels[rows] != 3])
    of_class = labels[gone.test] == 3
    assert of_class.sum() >= FEWEST
    for count in (0, 1, FEWEST - 1):  # those of the class that is gone do not count
        rows = torch.cat([gone.test[of_class], gone.test[~of_class][:count]])
        few = replace(gone, held_out=rows, test=gone.test[of_class])
        with pytest.raises(UserError, match=f"'held_out' has {count} of .*; use --method oeu, or"):
            unseen_samples(few, "held_out")


def test_without_unseen_samples_the_remedy_is_said(trained, digits):
    data = digits.data
    ids = [data.ids[int(row)] for row in digits.train]
    split = Split.make(data, held_out=[], trained_on=ids).forget_random(0.1)
    assert not len(split.held_out)
    with pytest.raises(UserError, match=r"'held_out' has 0 .*; use --set unseen=test:0\.2 or"):
        forget(trained, split, epochs=1)
    for few in ("test:0.01", "test:0.001"):
        with pytest.raises(UserError, match=rf"'{few}' has [40] .*; use --set unseen=test:0\.2 or"):
            forget(trained, split, epochs=1, unseen=few)
    assert forget(trained, split, probe=False, steps=1, unseen="test").findings.calibration
    some = unseen_samples(split, "test:0.2")
    assert len(some) == round(0.2 * len(split.test))
    assert torch.isin(some, split.test).all()
    assert torch.equal(some, unseen_samples(split, "test:0.2"))
    found = forget(trained, split, probe=False, steps=1, unseen="test:0.2").findings.calibration
    assert found.unseen == len(some)
    for wrong in ("test:2", "test:", "train", "test:0.2:0.3"):
        with pytest.raises(UserError, match="choose held_out, test, or a fraction of either"):
            forget(trained, split, unseen=wrong)
    blind = replace(split, test=split.test[:0])
    for unseen in ("held_out", "test"):
        with pytest.raises(UserError, match="use --method oeu, or a run that has more"):
            forget(trained, blind, epochs=1, unseen=unseen)
