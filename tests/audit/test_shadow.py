"""The shadow pair: who is in it, what is learned from it, and that it is made once."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import SMALL, made_once
from scipy.special import logit
from scipy.stats import norm

from qunlearn.audit.differ import LEARNED, Attack, DifferAudit, separations
from qunlearn.audit.row import PASS, Judgement
from qunlearn.audit.shadow import (
    NUMBER,
    TOP,
    ShadowConfig,
    _parts,
    classifier,
    features,
    shadow_of,
    shadow_seed,
)
from qunlearn.metrics.bootstrap import Interval
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import split_of
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.run import Run


def slow_features(before, after, label):
    """One sample's features, entry by entry."""
    old, new = (np.exp(row) / np.exp(row).sum() for row in (before, after))
    order = sorted(range(len(old)), key=lambda at: -old[at])[:TOP]
    then, now = logit(old[label]), logit(new[label])
    rest = [then, now, abs(now - then), np.log(old[label]) - np.log(new[label])]
    return [*old[order], *new[order], *np.abs(new[order] - old[order]), *rest]


def test_features_are_the_slow_ones():
    chance = np.random.default_rng(0)
    before, after = chance.normal(size=(2, 7, 12))
    labels = chance.integers(0, 12, 7)
    slow = [slow_features(*row) for row in zip(before, after, labels, strict=True)]
    fast = features(*map(torch.from_numpy, (before, after, labels)))
    assert np.allclose(fast.numpy(), slow)


def answers(chance, fall, count):
    """Two networks' answers: log-odds alike before, and lower by `fall` after, normal around it."""
    before = torch.zeros(count, 2, dtype=torch.float64)
    odds = torch.from_numpy(chance.normal(-fall, 1.0, count))
    return before, torch.stack([odds, torch.zeros(count)], 1), torch.zeros(count).long()


@pytest.mark.parametrize("fall", [0.0, 1.5])
def test_what_it_learns_tells_as_much_as_the_best_attack(fall):
    chance = np.random.default_rng(1)
    known = [features(*answers(chance, each, 600)) for each in (fall, 0.0)]
    score = classifier(*known)
    fresh = {"forgotten": answers(chance, fall, 300), "unseen": answers(chance, 0.0, 900)}
    before, after, labels = ({name: row[at] for name, row in fresh.items()} for at in range(3))
    attack = Attack(LEARNED, "unseen", score, score)
    (row,) = separations(before, after, None, labels, [attack])
    best = norm.cdf(fall / np.sqrt(2))  # Neyman and Pearson's, for normal log-odds
    assert row.interval.contains(best)
    assert (row.interval.low > 0.5) == bool(fall)
    assert row.tpr[0] is not None
    assert row.tpr[1] is None


def test_an_attacker_who_learned_less_does_not_fail_a_network():
    """A Retrain is told by the learned score, the network is not; and the other way around."""
    chance = np.random.default_rng(2)
    told, alike = answers(chance, 3.0, 200), answers(chance, 0.0, 200)
    others, labels = answers(chance, 0.0, 200), torch.zeros(200).long()

    def fall(before, after, labels):
        return -after[:, 0]

    def judged(ours, retrain):
        sides = [{"forgotten": each[1], "unseen": others[1]} for each in (ours, retrain)]
        truth = {"forgotten": labels, "unseen": labels}
        before = {"forgotten": ours[0], "unseen": others[0]}
        rows = separations(before, *sides, truth, [Attack(LEARNED, "unseen", fall, fall)])
        return DifferAudit(rows, Interval(0.6, 0.7), None, None, {}, shadow=200).judged()

    assert judged(alike, told) == PASS
    detail = {"score": "shadow classifier", "against": "unseen"}
    assert judged(told, alike) == Judgement("fail", "separates more", detail)


@pytest.fixture
def runs(tmp_path_factory, tmp_path):
    """An original and what was made from it by two methods, and by a request for a class."""

    def make(base):
        asked = {**SMALL, "model": "cnn", "subset": 300, "epochs": 1}
        train_run(TrainConfig.parse(asked), base / "original")
        requests = {"ft": {"random": 0.1}, "rl": {"random": 0.1}, "class": {"classes": ("3",)}}
        for name, request in requests.items():
            words = {"run": base / "original", **request, "epochs": 1, "threads": 1}
            method = "ft" if name == "class" else name
            forget_run(ForgetConfig.parse({**words, "method": method}), base / name)

    return shutil.copytree(made_once(tmp_path_factory, "shadowed", make), tmp_path / "runs")


def test_the_shadow_knows_nothing_of_what_was_forgotten(runs):
    run = Run.open(runs / "ft")
    split = split_of(run)
    pool = shadow_of(run, split, ShadowConfig())
    parts = {name: set(rows.tolist()) for name, rows in _parts(pool).items()}
    assert set.union(*parts.values()) == set(split.retain.tolist())
    assert sum(map(len, parts.values())) == len(split.retain)
    assert len(parts["forgotten"]) == pytest.approx(len(split.forget), rel=0.5)
    trained = pool.plan.split_of(NUMBER)
    known = {*trained.train.tolist(), *trained.test.tolist()}
    assert not known & {*split.forget.tolist(), *split.held_out.tolist()}
    assert set(trained.train.tolist()) == parts["forgotten"] | parts["retained"]
    assert shadow_seed(pool) != SMALL.get("seed", 0)


def test_it_is_made_once_for_all_methods(qunlearn, runs):
    before = json.loads(qunlearn("audit", "differ", runs / "ft", "--json", "--threads", 1)[1])
    assert "shadow" not in before
    code, out, err = qunlearn("audit", "differ", runs / "ft", "--shadow", "--json", "--threads", 1)
    assert code == 0, err
    found = json.loads(out)
    assert found["shadow"] > 20
    rows = [row for row in found["separations"] if row["score"] == LEARNED]
    assert [row["against"] for row in rows] == ["unseen", "retained"]
    assert "shadow pair" in found["row"]["needs"]
    (folder,) = (runs / "original-pool").iterdir()
    made = folder / "trained" / "000" / "run.json"
    when = made.stat().st_mtime_ns
    again = json.loads(qunlearn("audit", "differ", runs / "ft", "--json", "--threads", 1)[1])
    assert again["separations"] == found["separations"]  # what is there is used
    code, out, err = qunlearn("audit", "differ", runs / "rl", "--shadow", "--threads", 1)
    assert code == 0, err
    assert "shadow network that forgot" in out
    assert made.stat().st_mtime_ns == when
    assert sorted(p.name[:2] for p in (folder / "unlearned").iterdir()) == ["ft", "rl"]


def test_what_has_no_shadow_is_refused_and_nothing_is_written(qunlearn, runs):
    code, _, err = qunlearn("audit", "differ", runs / "class", "--shadow")
    assert code == 2
    assert "says little of a whole class" in err
    asked = ("--shadow", "--reference", runs / "rl")
    assert qunlearn("audit", "differ", runs / "ft", *asked)[0] == 2  # it is no Retrain
    assert not (runs / "original-pool").exists()
