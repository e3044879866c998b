"""The aim comes from unseen samples; the push goes down to it and no further."""

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
from scipy.stats import wasserstein_distance

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods import Job, calibrated, calibration, forget
from qunlearn.methods.calibrated import (
    CalibratedConfig,
    Push,
    never_seen,
    passes_per_epoch,
    urgency,
)
from qunlearn.methods.calibration import (
    Calibration,
    Target,
    WrongTargets,
    calibration_of,
    difficulties,
    find_target,
    state_of,
)
from qunlearn.methods.constants import (
    BELOW,
    EPOCHS,
    FEWEST,
    LEARNING,
    LEAST,
    LR,
    ONE_TURN,
    PRIOR,
    PUSH,
    PUSHES,
    RECENT,
    SLACK,
    TURNS,
    WRONG,
)
from qunlearn.metrics import margin
from qunlearn.report.target import target_words
from qunlearn.training import checkpoint
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.inference import predict

numbers = st.floats(-50, 50, width=32)


@given(st.lists(numbers, min_size=1), st.lists(numbers, min_size=1), st.lists(numbers, min_size=1))
def test_matching_keeps_order_and_stays_within_the_target(values, among, target):
    found = calibration.quantile_map(*map(torch.tensor, (sorted(values), among, target)))
    assert (found.diff() >= 0).all()
    assert min(target) <= float(found.min()) <= float(found.max()) <= max(target)


def test_matching_a_sample_among_its_own_kind_gives_the_targets_distribution():
    rng = np.random.default_rng(0)
    among, values = (torch.tensor(rng.normal(3, 5, 4000)) for _ in range(2))
    target = torch.tensor(rng.exponential(2, 1000))
    found = calibration.quantile_map(values, among, target)
    for share in (0.1, 0.5, 0.9):
        wanted = np.quantile(target.numpy(), share)
        assert np.quantile(found.numpy(), share) == pytest.approx(wanted, rel=0.1)


def test_the_aim_is_the_definition(trained, asked):
    labels = asked.data.labels
    aim = find_target(trained, asked, asked.held_out, seed=0)
    everyone = torch.cat([asked.retain, asked.forget])
    hard = difficulties(trained, asked, everyone, seed=0)
    unseen = margin(predict(trained, asked.data, asked.held_out), labels[asked.held_out])
    kept = asked.retain
    less = len(kept) / len(everyone)
    assert len(kept) <= calibration.MEMBERS
    for row in asked.forget[:10].tolist():
        own, same = kept[labels[kept] == labels[row]], labels[asked.held_out] == labels[row]
        aims = []
        for members, reference in ((own, unseen[same]), (kept, unseen)):
            share = ((hard[members] < hard[row]).sum() + (hard[members] <= hard[row]).sum()) / 2
            expected = calibration.with_less_data(reference, less).numpy()
            aims.append(np.quantile(expected, float(share / len(members))))
        count = min(len(own), int(same.sum()))
        wanted = (count * aims[0] + PRIOR * aims[1]) / (count + PRIOR)
        assert float(aim.margins[row]) == pytest.approx(float(wanted), abs=1e-4)
    others = torch.ones(len(labels), dtype=torch.bool)
    others[asked.forget] = False
    assert aim.margins[others].isnan().all()
    assert (aim.random, aim.unseen) == (True, len(asked.held_out))


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
    aim = find_target(trained, split, split.held_out, seed=0)
    assert (aim.margins[split.forget] == -torch.inf).all()
    assert not aim.random


def test_a_class_is_gone_only_if_nothing_of_it_is_retained(trained, asked, monkeypatch):
    # Of many classes, a few have nobody among the retained samples that are looked at.
    monkeypatch.setattr(calibration, "MEMBERS", 5)
    aim = find_target(trained, asked, asked.held_out, seed=0)
    assert aim.margins[asked.forget].isfinite().all()


def test_the_push_is_on_samples_above_their_aim_alone(trained, asked):
    model = copy.deepcopy(trained).train()
    job = Job(model, asked, make_fabric(ComputeConfig()))
    config = CalibratedConfig(batch_size=2 * len(asked.forget))
    push = Push(job, config, model, find_target(model, asked, asked.held_out, config.seed))
    push.forget([(0, 0)])
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    batch, others = push.loader.batch(0, 0), push.others.batch(0, 0)
    assert set(others.index.tolist()) <= set(asked.retain.tolist())
    model.zero_grad()
    logits = model(torch.cat([batch.images, others.images]))
    odds = margin(logits[: len(batch.labels)], batch.labels)
    aims = push.target.margins[batch.index]
    above = odds.detach().sigmoid() - aims.sigmoid()
    weights = torch.tensor(list(map(by_hand, odds.tolist(), aims.tolist())))
    weights *= (1 + above.mean() / BELOW).clamp(0, 1)
    assert 0 < weights.count_nonzero() < len(weights)
    (PUSH * (weights * odds).sum() / config.batch_size).backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    push.target = replace(push.target, margins=torch.full_like(push.target.margins, torch.inf))
    model.zero_grad()
    push.forget([(0, 0)])
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def by_hand(odds, aim):
    """How hard a sample is pushed, one by one."""
    far = [(1 / (1 + math.exp(-odds)) - 1 / (1 + math.exp(min(-aim, 700)))) / SLACK]
    if -math.inf < aim < 0:
        far.append((odds - aim) / WRONG)
    return min(max(0, *far), 1)


ODDS = st.floats(-30, 30)


@given(ODDS, ODDS, ODDS | st.just(-math.inf))
def test_the_farther_above_its_aim_the_harder_a_sample_is_pushed(one, other, aim):
    low, high = sorted((one, other))
    exactly = partial(torch.tensor, dtype=torch.double)
    found = urgency(exactly([low, high]), exactly([aim, aim]))
    expected = exactly([by_hand(low, aim), by_hand(high, aim)])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert found[0] <= found[1]
    assert low > aim or found[0] == 0


def test_a_small_request_takes_smaller_steps(trained, digits):
    for fraction, rate in ((0.02, LR * LEAST), (0.2, LR)):
        split = digits.forget_random(fraction)
        result = forget(trained, split, epochs=1)
        assert result.config.lr == pytest.approx(rate)
        assert forget(trained, split, epochs=1, lr=0.002).config.lr == 0.002


def test_more_epochs_bring_more_turns_and_fewer_bring_no_fewer(trained, asked):
    """Without one of these, raising --epochs would be no remedy."""

    def turns(epochs):
        pushes = []
        backward = Push.forget

        def counting(self, batches):
            pushes.extend(batches)
            return backward(self, batches)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Push, "forget", counting)
            forget(trained, asked, epochs=epochs)
        return len(pushes)

    usual = turns(EPOCHS)
    assert turns(3 * EPOCHS) == 3 * usual
    assert turns(1) >= usual / 2


def test_nothing_is_pushed_once_the_samples_together_are_down(trained, asked):
    model = copy.deepcopy(trained).train()
    with torch.no_grad():  # so that it is unsure of all samples alike
        model.fc.weight.zero_()
        model.fc.bias.zero_()
    config = CalibratedConfig(batch_size=2 * len(asked.forget))
    job = Job(model, asked, make_fabric(ComputeConfig()))
    push = Push(job, config, model, find_target(model, asked, asked.held_out, config.seed))
    above = torch.full((len(asked.data),), 0.0)  # one sample far above its aim, ...
    above[asked.forget[0]] = -20.0
    for others, pushed in ((20.0, False), (-20.0, True)):  # ... the others below theirs, or above
        margins = above.clone()
        margins[asked.forget[1:]] = others
        push.target = replace(push.target, margins=margins)
        push.recently = torch.empty(0)
        model.zero_grad()
        push.forget([(0, 0)])
        assert any(p.grad.any() for p in model.parameters() if p.grad is not None) == pushed
    assert len(push.recently) == min(RECENT, len(asked.forget))


def test_what_steers_it_survives_an_interruption_between_epochs(
    trained, asked, tmp_path, monkeypatch
):
    monkeypatch.setattr(calibrated, "PUSH", 20.0)  # so that it goes too far, and the mean steers,
    monkeypatch.setattr(calibrated, "BELOW", 1.0)  # never to a halt: each step depends on the mean
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)  # each epoch's end is kept
    settings = {"batch_size": 30, "epochs": 3}
    whole = forget(trained, asked, **settings)
    assert min(row["above"] for row in whole.history) < 0

    def stop(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    kept = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        forget(trained, asked, checkpoint=kept, on_epoch=stop, **settings)
    again = forget(trained, asked, checkpoint=kept, **settings)
    assert [row["above"] for row in again.history] == [row["above"] for row in whole.history]
    for name, tensor in whole.model.state_dict().items():
        assert tensor.equal(again.model.state_dict()[name]), name


@given(st.integers(1, 400), st.integers(1, 40))
def test_each_sample_has_its_turn_and_few_samples_have_more(forget_steps, epochs):
    rounds = passes_per_epoch(forget_steps, epochs, LR, 0.0)
    assert rounds >= 1
    if rounds > 1:
        assert rounds * epochs <= TURNS
        assert rounds * forget_steps * epochs <= 1.5 * PUSHES
    more = rounds + 1
    assert more * forget_steps * epochs > PUSHES / 1.5 or more * epochs > TURNS
    # Turns of a third of the size: no fewer, at most three times as many, still as many batches.
    small = passes_per_epoch(forget_steps, epochs, LR / 3, 0.0)
    assert rounds <= small <= max(1, 3 * TURNS / epochs)
    assert small == 1 or small * forget_steps * epochs <= 1.5 * PUSHES


@given(st.integers(1, 400), st.integers(1, 40), st.floats(0, 1))
def test_samples_that_have_far_to_go_have_more_turns(forget_steps, epochs, distance):
    usual, rounds = (passes_per_epoch(forget_steps, epochs, LR, far) for far in (0.0, distance))
    assert rounds >= usual
    assert rounds == usual or abs(rounds * ONE_TURN - distance) <= ONE_TURN / 2 + 1e-9


def test_the_way_to_go_leaves_out_classes_that_go_as_a_whole():
    margins = torch.tensor([0.0, torch.nan, -torch.inf, -100.0])
    aim = Target(margins, 10, 0.1, before=torch.tensor([0.9, 0.8, 1.0]), random=True)
    assert aim.distance(torch.tensor([3, 2, 0])) == pytest.approx((0.9 + 0.5) / 2)
    assert replace(aim, before=torch.ones(1)).distance(torch.tensor([2])) == 0.0


def test_the_distribution_lands_near_its_aim_and_the_rest_stays(trained, asked):
    result = forget(trained, asked, batch_size=30, epochs=8)
    found = result.findings.calibration
    labels = asked.data.labels

    def sure(model, part):
        return 100 * float(margin(predict(model, asked.data, part), labels[part]).sigmoid().mean())

    assert found.reached == pytest.approx(sure(result.model, asked.forget), abs=0.01)
    assert found.state == "reached"
    assert sure(result.model, asked.retain) > sure(trained, asked.retain) - 5

    def confidences(model):
        forget = asked.forget
        return margin(predict(model, asked.data, forget), labels[forget]).sigmoid().numpy()

    # The distribution as a whole: easy samples stay sure, hard ones become unsure.
    aims = find_target(trained, asked, asked.held_out, 0).confidences[asked.forget].numpy()
    assert found.target == pytest.approx(100 * aims.mean(), abs=0.01)
    before, after = confidences(trained), confidences(result.model)
    alike = wasserstein_distance([aims.mean()], aims)  # all samples at the mean of their aims
    distances = [wasserstein_distance(found, aims) for found in (before, after)]
    assert distances[1] < min(distances[0], alike) / 2
    assert abs(after - aims).mean() < abs(before - aims).mean() / 2  # each at its own


def aimed_at(margins, asked):
    before = torch.full(asked.forget.shape, 0.99)
    return Target(margins, 300, variance=0.15, before=before, random=False)


@pytest.mark.parametrize(
    ("shift", "state"), [(0.0, "reached"), (0.15, "reached"), (9.0, "short"), (-9.0, "too far")]
)
def test_the_verdict_says_where_it_landed(shift, state, asked):
    margins = torch.full((len(asked.data),), torch.nan)
    margins[asked.forget] = torch.linspace(-3, 3, len(asked.forget))
    aim = aimed_at(margins, asked)
    found = calibration_of(aim, asked, margins[asked.forget] + shift, [30.0, 1.9, 2.1], 1.0)
    assert found.state == state
    assert (found.reached_in_epoch, found.epochs) == (2, 3)
    never = calibration_of(aim, asked, margins[asked.forget], [30.0, 9.0], 1.234)
    assert (never.reached_in_epoch, never.logit_scale) == (None, 1.234)
    unlearned = replace(aim, before=aim.confidences[asked.forget])
    assert calibration_of(unlearned, asked, margins[asked.forget], [0.0], 1.0).state == "little"


@pytest.mark.parametrize("below", [12.0, 17.0, 29.0])
def test_far_below_the_aim_is_never_reached(below):
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
    aim = Target(margins, 10, variance=9.0, before=torch.full(asked.forget.shape, 0.9), random=True)
    now = torch.full(asked.forget.shape, 0.6 + 0.3 * left).logit()
    found = calibration_of(aim, asked, now, [0.0], 1.0)
    assert found.chance > 100
    assert found.state == state


@pytest.mark.parametrize(
    ("settings", "lowered", "raised"),
    [
        ({"epochs": 1, "lr": 1e-5}, ("epochs", "lr"), ()),
        ({"lr": 0.05, "epochs": 1}, ("epochs",), ("lr",)),
        ({"epochs": 6}, (), ("epochs",)),
        ({"epochs": None}, (), ()),
    ],
)
def test_settings_that_differ_from_the_methods_own_are_on_record(
    trained, asked, settings, lowered, raised
):
    found = forget(trained, asked, **settings).findings.calibration
    assert (found.lowered, found.raised) == (lowered, raised)
    assert found.lr == settings.get("lr", 0.01)


@pytest.mark.parametrize(
    ("reached", "known", "remedy"),
    [
        (95.0, {"lowered": ("epochs", "lr")}, "leave epochs and lr out"),
        (95.0, {"lowered": ("lr",)}, "leave lr out"),
        (95.0, {"epochs": 6}, "try --epochs 18"),
        (95.0, {"epochs": 6, "reached_in_epoch": 2}, "use --method retrain"),
        (50.0, {"lr": 0.05, "raised": ("lr",)}, "leave lr out"),
        (50.0, {"lr": 0.01}, "try --set lr=0.005"),
    ],
)
def test_a_missed_target_comes_with_a_remedy(reached, known, remedy):
    found = Calibration(75.0, reached, 98.0, 1.0, 450, 5000, random=True, **known)
    assert f"; {remedy}." in target_words(found)


def test_the_verdict_has_the_log_odds_of_samples_that_were_to_be_wrong(asked):
    margins = torch.full((len(asked.data),), torch.nan)
    margins[asked.forget] = 1.0
    aim = aimed_at(margins, asked)
    assert calibration_of(aim, asked, margins[asked.forget], [0.0], 1.0).wrong is None
    margins[asked.forget[:3]] = torch.tensor([-torch.inf, -4.0, -6.0])
    now = torch.full(asked.forget.shape, -2.0)
    now[2] = -3.0
    found = calibration_of(aimed_at(margins, asked), asked, now, [0.0], 1.0)
    assert found.wrong == WrongTargets(samples=2, target=-5.0, reached=-2.5)


def test_chance_is_what_the_spread_of_unseen_samples_leaves_open(trained, asked, digits):
    aim = find_target(trained, asked, asked.held_out, seed=0)
    labels = asked.data.labels
    unseen = margin(predict(trained, asked.data, asked.held_out), labels[asked.held_out]).sigmoid()
    # Two of which nothing is known beside them: they may as well be all right as all wrong.
    spread = (float(((unseen - unseen.mean()) ** 2).sum() + 2 / 4) / (len(unseen) + 2)) ** 0.5
    for count in (1, 10, len(asked.forget)):  # one sample alone leaves everything open
        few = digits.forget_ids([asked.data.ids[i] for i in asked.forget[:count].tolist()])
        found = calibration_of(aim, few, aim.margins[few.forget], [0.0], 1.0)
        wanted = 196 * spread * (1 / count + 1 / len(unseen)) ** 0.5
        assert found.chance == pytest.approx(wanted, rel=1e-4)
    gone = digits.forget_class(3)
    aim = find_target(trained, gone, gone.held_out, seed=0)
    found = calibration_of(aim, gone, torch.full((len(gone.forget),), -9.0), [0.0], 1.0)
    assert found.chance == 0
    assert (found.class_wise, found.state) == (True, "reached")


def test_classes_that_are_gone_show_nothing_to_later_requests(digits):
    gone = digits.forget_class(3)
    labels = gone.data.labels
    for split in (gone, gone.forget_random(0.2)):
        for part in ("held_out", "test"):
            rows = getattr(split, part)
            assert torch.equal(never_seen(split, part), rows[labels[rows] != 3])
    of_class = labels[gone.test] == 3
    assert of_class.sum() >= FEWEST
    for count in (0, 1, FEWEST - 1):  # those of the class that is gone do not count
        rows = torch.cat([gone.test[of_class], gone.test[~of_class][:count]])
        few = replace(gone, held_out=rows, test=gone.test[of_class])
        with pytest.raises(UserError, match=f"'held_out' has {count} of .*; use --method oeu, or"):
            never_seen(few, "held_out")


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
    assert forget(trained, split, epochs=1, batch_size=60, unseen="test").findings.calibration
    some = never_seen(split, "test:0.2")
    assert len(some) == round(0.2 * len(split.test))
    assert torch.isin(some, split.test).all()
    assert torch.equal(some, never_seen(split, "test:0.2"))
    found = forget(trained, split, epochs=1, batch_size=60, unseen="test:0.2").findings.calibration
    assert found.unseen == len(some)
    for wrong in ("test:2", "test:", "train", "test:0.2:0.3"):
        with pytest.raises(UserError, match="choose held_out, test, or a share of either"):
            forget(trained, split, unseen=wrong)
    blind = replace(split, test=split.test[:0])
    for unseen in ("held_out", "test"):
        with pytest.raises(UserError, match="use --method oeu, or a run that has more"):
            forget(trained, blind, epochs=1, unseen=unseen)
