"""Steps are planned from the size of the request, and its pushes are spread over them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from qunlearn.errors import UserError
from qunlearn.methods.calibrated import CalibratedConfig
from qunlearn.methods.constants import FORGET_BATCH, PASSES
from qunlearn.methods.schedule import Schedule, plan_steps

DEPTHS = st.sampled_from(["deep", "shallow"])
SAMPLES = st.integers(1, 200_000)
MOST = st.none() | st.integers(1, 5000)
LARGE = 10**6
"""Steps of an epoch over so large a data set that it limits nothing."""

ROUNDING = 1.02
"""Of all steps, so many are left out at most, for all rounds to be equally long."""


def pushing_steps(schedule):
    """The steps that push a forget batch, and its number."""
    numbers = [schedule.push_at(step) for step in range(schedule.steps)]
    return {step: number for step, number in enumerate(numbers) if number is not None}


@st.composite
def schedules(draw):
    pushing, repair = draw(st.integers(1, 400)), draw(st.integers(0, 400))
    return Schedule("deep", pushing, draw(st.integers(0, pushing)), repair, lr=0.05)


@given(schedules())
def test_pushes_are_all_there_in_order_and_evenly_spread_over_the_first_phase(schedule):
    pushed = pushing_steps(schedule)
    assert list(pushed.values()) == list(range(schedule.pushes))
    assert all(step < schedule.pushing for step in pushed)
    for end in range(schedule.pushing + 1):  # up to any step there is the share, but for one push
        count = sum(step < end for step in pushed)
        assert count == math.floor(schedule.pushes * end / schedule.pushing + 1e-9)


@given(SAMPLES, DEPTHS, MOST)
@example(samples=1, depth="deep", most=1)
@example(samples=4500, depth="shallow", most=97)
@example(samples=34337, depth="shallow", most=None)  # rounds were once fewer than planned here
@example(samples=150_000, depth="shallow", most=None)  # and the repair once shorter than nothing
def test_a_plan_is_consistent(samples, depth, most):
    plan = plan_steps(samples, depth, LARGE, most)
    assert plan.steps >= 1
    assert most is None or plan.steps <= most
    assert plan.steps % plan.rounds == 0
    assert min(plan.pushing, plan.pushes) >= 1
    assert min(plan.repair, plan.pushing - plan.pushes) >= 0
    assert plan.pushing <= plan.plain_from <= plan.steps
    assert plan.depth == depth


@given(SAMPLES, DEPTHS, st.integers(1, 5000))
def test_a_limit_above_the_plan_changes_nothing_and_another_is_used_up(samples, depth, most):
    free, plan = plan_steps(samples, depth, LARGE), plan_steps(samples, depth, LARGE, most)
    if most >= ROUNDING * free.steps:
        assert plan == free
    elif most <= free.steps:
        assert most / ROUNDING - 1 <= plan.steps <= most
        share = free.pushing / free.steps
        assert plan.pushing / most == pytest.approx(share, abs=0.02 + 1 / most)
        assert plan.lr == free.lr


@given(SAMPLES, SAMPLES, DEPTHS)
def test_a_larger_request_takes_no_fewer_steps(one, other, depth):
    fewer, more = (plan_steps(samples, depth, LARGE).steps for samples in sorted((one, other)))
    assert fewer <= ROUNDING * more
    assert plan_steps(1, depth, LARGE).steps <= ROUNDING * fewer


@pytest.mark.parametrize("depth", ["deep", "shallow"])
def test_steps_grow_with_a_large_request_but_no_faster_than_it(depth):
    steps = [plan_steps(samples, depth, LARGE).steps for samples in (1, 10_000, 100_000, 1_000_000)]
    assert steps == sorted(set(steps))
    assert all(more <= 10 * ROUNDING * fewer for fewer, more in pairwise(steps[1:]))


@given(SAMPLES, DEPTHS)
def test_every_sample_is_pushed_once_at_least(samples, depth):
    assert plan_steps(samples, depth, LARGE).pushes >= math.ceil(samples / FORGET_BATCH)


@given(SAMPLES, DEPTHS, MOST)
def test_a_repair_alone_has_no_push_and_whole_rounds(samples, depth, most):
    plan = plan_steps(samples, depth, LARGE, most)
    assume(plan.repair)
    alone = plan.repair_alone()
    assert not any(alone.push_at(step) is not None for step in (0, alone.steps - 1))
    assert alone.steps % alone.rounds == 0
    assert plan.repair / ROUNDING <= alone.steps <= plan.repair
    assert alone.lr < plan.lr


def test_deep_takes_more_steps_and_a_higher_rate():
    for samples in (1, 500):
        deep, shallow = (plan_steps(samples, depth, LARGE) for depth in ("deep", "shallow"))
        assert deep.steps > shallow.steps
        assert deep.lr > shallow.lr


@given(st.integers(1, 5000), DEPTHS, st.integers(1, 10_000))
def test_the_size_of_the_data_set_does_not_count_unless_it_is_small(samples, depth, epoch):
    free, plan = plan_steps(samples, depth, LARGE), plan_steps(samples, depth, epoch)
    most = PASSES * epoch
    assert plan == (
        free if most >= ROUNDING * free.steps else plan_steps(samples, depth, epoch, most)
    )
    assert plan.steps <= most


@given(st.integers(1, 5000), st.none() | st.integers(1, 2000), st.none() | st.integers(1, 20))
def test_the_limit_is_the_smaller_of_steps_and_epochs(retained, steps, epochs):
    config = CalibratedConfig(steps=steps, epochs=epochs, batch_size=64)
    limits = [] if steps is None else [steps]
    limits += [] if epochs is None else [epochs * math.ceil(retained / 64)]
    assert config.max_steps(retained) == (min(limits) if limits else None)
    plan = config.schedule(450, retained)
    assert not limits or plan.steps <= min(limits)
    assert plan.steps <= ROUNDING * config.schedule(450, retained, limited=False).steps
    given_lr = CalibratedConfig(steps=steps, epochs=epochs, lr=0.003)
    assert given_lr.schedule(450, retained) == replace(plan, lr=0.003)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"depth": "abyssal"}, {"epochs": 0}])
def test_what_cannot_be_planned_is_refused(wrong):
    with pytest.raises(UserError, match=f"^{next(iter(wrong))} = .* is invalid"):
        CalibratedConfig.parse(wrong)
