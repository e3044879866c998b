"""The pool: its plan, known answers on made-up margins, and a small one from end to end."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from conftest import flags
from quick_pool import SIZE, audited_runs, config, weights, weights_made_here
from scipy.stats import binom

from qunlearn.audit.pool_attacks import (
    PoolMargins,
    exposed,
    lira_pair,
    lira_scores,
    network_auc,
    request_auc,
    rmia_pair,
)
from qunlearn.audit.pool_figures import ALL, EXPOSED, REQUEST, judged, method_figures, run_figures
from qunlearn.audit.pool_folder import PoolConfig, pool_of
from qunlearn.audit.pool_plan import IN, OUT, UNLEARNED, half_of, states_of
from qunlearn.errors import Failure, UserError
from qunlearn.metrics import auc, mia_efficacy
from qunlearn.store.parcel import unpack_run
from qunlearn.store.place import named_folders
from qunlearn.store.run import Run
from qunlearn.study import pool as study
from qunlearn.study.executors.base import Finished
from qunlearn.study.executors.needs import pack
from qunlearn.study.executors.node import Task, delete_sent, node_versions, run_task
from qunlearn.study.pool import make_pool
from qunlearn.study.pool_network import Training


def made_up(seed, networks=24, samples=300, left=0.0, noise=0.0):
    """Margins of a pool: difficulty, a network's own shift, and what training on a sample adds.

    `left` is the share of that which unlearning leaves; `noise` is added to unlearned outputs.
    """
    chance = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    states = states_of(range(samples), networks, seed)
    hard, gain = 2 * normal(samples), 4 * torch.rand(samples, generator=chance)
    never = 2 * normal(samples)
    shift, later = 0.3 * normal(networks, 1), 0.3 * normal(networks, 1)
    trained = hard + shift + normal(networks, samples) + gain * (states != OUT)
    kept = (states == IN) + left * (states == UNLEARNED)
    unlearned = hard + later + normal(networks, samples) + gain * kept
    unlearned += noise * normal(networks, samples) * (states == UNLEARNED)
    return PoolMargins(
        states,
        trained,
        unlearned,
        never + shift + normal(networks, samples),
        never + later + normal(networks, samples),
    )


def by_name(figures):
    return {(figure.attack, figure.samples): figure for figure in figures}


def test_every_sample_has_as_many_networks_of_each_state():
    states = states_of(range(50), 18, seed=3)
    for state in (IN, OUT, UNLEARNED):
        assert ((states == state).sum(0) == 6).all()
    assert (states != states_of(range(50), 18, seed=4)).any()


def test_a_larger_pool_begins_with_the_smaller_one():
    assert torch.equal(states_of(range(40), 16)[:7], states_of(range(40), 7))


def test_a_group_has_one_state_in_a_network():
    states = states_of([0, 1, -1, -1, -1], 9)
    assert (states[:, 2:] == states[:, 2:3]).all()
    assert (states[:, 0] != states[:, 2]).any()


def test_an_untouched_original_fails():
    figures = by_name(method_figures(made_up(0, left=1.0)))
    for attack in ("U-LiRA", "RMIA", "KLoM"):
        for samples in (ALL, EXPOSED):
            assert figures[attack, samples].verdict == "fail", (attack, samples)
    assert figures["U-LiRA", EXPOSED].value > figures["U-LiRA", ALL].value


def test_false_alarms_are_as_rare_as_the_level_says():
    """A Retrain is a draw in which nothing is left; at most 5 % of pools may fail."""
    draws, level = 20, 0.05
    failed = 0
    for seed in range(draws):
        pool = made_up(seed, networks=9, samples=60)
        failed += any(figure.verdict == "fail" for figure in method_figures(pool, level=level))
    assert failed <= binom.ppf(0.999, draws, level)


def test_a_retrain_passes_where_the_pool_is_large_enough():
    pool = made_up(1, networks=36, samples=500)
    figures = by_name(method_figures(pool))
    for attack in ("U-LiRA", "RMIA", "KLoM"):
        assert figures[attack, ALL].verdict == "pass", figures[attack, ALL]


def test_noise_on_the_outputs_fools_the_usual_attack_and_fails_here():
    """Outputs of forgotten samples are those of other, unseen samples: as a crowd they fit."""
    pool = made_up(2)
    swapped = pool.unlearned.clone()
    chance = torch.Generator().manual_seed(0)
    for states, row in zip(pool.states, swapped, strict=True):
        gone, unseen = states == UNLEARNED, row[states == OUT]
        row[gone] = unseen[torch.randint(len(unseen), (int(gone.sum()),), generator=chance)]
    fooled = PoolMargins(
        pool.states, pool.trained, swapped, pool.unseen_trained, pool.unseen_unlearned
    )
    first, retrain = (p.unlearned[0].sigmoid() for p in (fooled, pool))
    state = pool.states[0]
    usual = [
        mia_efficacy(row[state == IN], row[state == OUT], row[state == UNLEARNED])
        for row in (first, retrain)
    ]
    assert usual[0] == pytest.approx(usual[1], abs=10)
    assert by_name(method_figures(fooled))["KLoM", ALL].verdict == "fail"


def test_a_network_is_not_its_own_reference():
    pool = made_up(3, networks=9, samples=60)
    scores = lira_scores(pool)
    moved = pool.unlearned.clone()
    moved[0, 5] += 1.0
    changed = lira_scores(
        PoolMargins(pool.states, pool.trained, moved, pool.unseen_trained, pool.unseen_unlearned)
    )
    means = [pool.where(pool.unlearned, state, 0)[:, 5].nanmean() for state in (UNLEARNED, OUT)]
    assert torch.isfinite(torch.tensor(means)).all()
    assert (changed[0] != scores[0]).sum() == 1


def test_the_most_exposed_are_chosen_by_the_other_half():
    pool = made_up(4, networks=12, samples=100)
    mask, half = exposed(pool), half_of(12)
    assert (mask.sum(1) == 10).all()
    trained = pool.trained.clone()
    trained[half == 0] += 9 * torch.randn(trained[half == 0].shape).double()
    other = exposed(
        PoolMargins(
            pool.states, trained, pool.unlearned, pool.unseen_trained, pool.unseen_unlearned
        )
    )
    assert torch.equal(mask[half == 0], other[half == 0])
    assert not torch.equal(mask[half == 1], other[half == 1])


def request_pool(seed, networks=24, samples=15, left=0.0):
    """Margins on a coherent request: what a network does to all its samples is one draw."""
    chance = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    states = states_of([-1] * samples, networks, seed)
    hard, gain = 2 * normal(samples), 3 + 3 * torch.rand(samples, generator=chance)
    level, never = hard + 0.6 * normal(networks, 1), 2 * normal(100)
    unlearned = level + normal(networks, samples)
    unlearned += gain * ((states == IN) + left * (states == UNLEARNED))
    return PoolMargins(
        states,
        level + normal(networks, samples) + gain * (states != OUT),
        unlearned,
        never + normal(networks, 100),
        never + normal(networks, 100),
    )


@pytest.mark.parametrize("score", [lira_pair, rmia_pair])
def test_a_request_is_told_by_networks_and_not_by_chance(score):
    verdicts = {}
    for left, draws in ((0.0, 10), (1.0, 2)):
        estimates = [request_auc(request_pool(seed, left=left), score) for seed in range(draws)]
        figures = [judged("U-LiRA", REQUEST, each, 24, tests=9) for each in estimates]
        verdicts[left] = [figure.verdict for figure in figures]
        assert sum(e.value for e in estimates) / draws == pytest.approx(0.5 + 0.45 * left, abs=0.1)
    assert "fail" not in verdicts[0.0]
    assert verdicts[1.0] == ["fail"] * 2


def test_the_auc_of_a_request_is_the_mean_over_its_samples():
    pool = request_pool(3, networks=17)
    found = request_auc(pool, lambda p, gone, other: (p.unlearned[gone], p.unlearned[other]))
    gone, out = ((pool.states[:, 0] == state) for state in (UNLEARNED, OUT))
    each = [auc(column[gone], column[out]) for column in pool.unlearned.T]
    assert found.value == pytest.approx(sum(each) / len(each))
    assert found.freedom == min(int(gone.sum()), int(out.sum())) - 1
    few = judged("U-LiRA", REQUEST, request_auc(request_pool(3, 12), lira_pair), 12, 9)
    assert (few.verdict, few.value) == ("cannot be told", None)


def test_auc_in_a_network_is_of_unlearned_against_unseen():
    states = torch.tensor([[IN, OUT, OUT, UNLEARNED, UNLEARNED]])
    scores = torch.tensor([[9.0, 1.0, 3.0, 2.0, 4.0]])
    everything = torch.ones_like(states, dtype=torch.bool)
    reached = network_auc(scores, states, everything).item()
    assert reached == auc(torch.tensor([2.0, 4.0]), torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize(("left", "verdict"), [(0.0, ("pass", "cannot be told")), (1.0, ("fail",))])
def test_a_single_run_is_judged_against_the_pool(left, verdict):
    pool = made_up(5, networks=18, samples=400)
    chance = torch.Generator().manual_seed(9)
    truth = torch.where(pool.states == OUT, pool.trained, torch.nan).nanmean(0)
    seen = torch.where(pool.states != OUT, pool.trained, torch.nan).nanmean(0)
    run = truth + left * (seen - truth) + torch.randn(400, generator=chance)
    unseen = pool.unseen_trained.mean(0) + torch.randn(400, generator=chance)
    # Confident as a larger network: what it does to all samples cancels.
    figures = run_figures(pool, run + 3, torch.arange(400), unseen + 3)
    assert all(figure.verdict in verdict for figure in figures), figures


def test_too_few_networks_say_how_many_would_do():
    from qunlearn.audit.pool_attacks import Estimate

    figure = judged("U-LiRA", ALL, Estimate(0.5, 0.04), models=10, tests=1)
    assert figure.verdict == "cannot be told"
    assert figure.needed is not None
    enough = judged("U-LiRA", ALL, Estimate(0.5, 0.04 * (10 / figure.needed) ** 0.5), 10, 1)
    assert enough.verdict == "pass"


def test_more_networks_than_a_pool_may_have_are_not_asked_for():
    from qunlearn.audit.pool_attacks import Estimate

    figure = judged("U-LiRA", ALL, Estimate(0.54999, 0.04), models=10, tests=1)
    assert (figure.verdict, figure.needed) == ("cannot be told", None)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A run that has forgotten, whose original is small enough for a pool."""

    return audited_runs(tmp_path_factory)


WORDS = flags(SIZE)


def test_a_pool_is_made_once_and_shared_by_methods(audited, qunlearn):
    code, out, err = qunlearn("audit", "pool", audited / "ft", *WORDS, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["models"] == 6
    assert found["smaller"] == {"epochs": 1.0}
    assert found["tested"] == 27  # a random request is among the candidates
    assert found["row"]["verdict"] in ("pass", "fail", "cannot be told")
    (folder,) = (audited / "original-pool").iterdir()
    before = {path: path.stat().st_mtime_ns for path in (folder / "trained").rglob("run.json")}
    assert len(before) == 6
    code, out, err = qunlearn("audit", "pool", audited / "rl", *WORDS)
    assert code == 0, err
    assert "Median ε of the unlearning challenge" in out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list((folder / "unlearned").iterdir())) == 2
    again = json.loads(qunlearn("audit", "pool", audited / "ft", *WORDS, "--json")[1])
    assert again["figures"] == found["figures"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return weights_made_here(tmp_path_factory)


@pytest.mark.usefixtures("quick_children")
def test_workers_make_the_same_networks(here, tmp_path_factory):
    runs = audited_runs(tmp_path_factory)
    pool = make_pool(runs / "ft", config(workers=2))
    assert len(here) == 12
    assert weights(pool.folder) == here


def test_a_network_that_fails_does_not_end_the_others(here, tmp_path_factory, monkeypatch):
    runs, real = audited_runs(tmp_path_factory), Training.make_at

    def make_at(job, *about):
        if job.number == 2:
            raise Failure("The loss became nan.")
        real(job, *about)

    monkeypatch.setattr(Training, "make_at", make_at)
    says = r"^1 of 6 networks were not made; seed 2: The loss became nan\. What the pool has so far"
    with pytest.raises(Failure, match=says):
        make_pool(runs / "ft", config())
    made = {path: path.stat().st_mtime_ns for path in runs.rglob("trained/*/run.json")}
    assert len(made) == 5
    monkeypatch.undo()
    assert weights(make_pool(runs / "ft", config()).folder) == here
    assert made == {path: path.stat().st_mtime_ns for path in made}


def test_a_pool_that_is_interrupted_resumes(here, tmp_path_factory, monkeypatch):
    runs, real = audited_runs(tmp_path_factory), Run.finish

    def finish(run, info):
        if run.path.parts[-2:] == ("trained", "003"):
            raise KeyboardInterrupt
        real(run, info)

    monkeypatch.setattr(Run, "finish", finish)
    with pytest.raises(KeyboardInterrupt):
        make_pool(runs / "ft", config())
    monkeypatch.undo()
    (interrupted,) = runs.glob("original-pool/*/trained/003")
    assert not Run.is_complete(interrupted)
    assert weights(make_pool(runs / "ft", config()).folder) == here


def test_a_finished_run_of_another_pool_is_refused(tmp_path_factory):
    runs = audited_runs(tmp_path_factory)
    pool = pool_of(runs / "original", config())
    Run.open(runs / "original").copy_to(pool.trained(0))
    with pytest.raises(UserError, match="belongs to another pool"):
        make_pool(runs / "ft", config())
    assert not pool.trained(1).exists()


class Elsewhere:
    """Makes jobs as a node does that sees none of the files of this machine."""

    out_of_process = True

    def __init__(self, nowhere):
        self.nowhere, self.sent, self.waiting = nowhere, {}, []

    def submit(self, jobs):
        self.waiting += jobs

    def events(self):
        job = self.waiting.pop(0)
        needs = {need.folder: need for need in job.needs()}
        moved = tuple(replace(n, path=self.nowhere / n.field) for n in needs.values())
        task = Task(
            job,
            named_folders(),
            node_versions(),
            marker=self.nowhere,
            needs=moved,
            data=job.place(),
            study="pool",
            working_folder=self.nowhere,
        )
        while (result := run_task(task, lambda need: self.sent.get(need.folder))).missing:
            for need in result.missing:
                self.sent[need.folder] = pack(needs[need.folder], job.place())
        assert not job.path.exists()
        unpack_run(job.path, result.files)
        yield Finished(job, "node-3")


def test_a_node_without_the_folder_makes_the_same_networks(
    here, audited, tmp_path_factory, monkeypatch
):
    """Weights and records; of the data, which all networks share, one copy is sent."""
    runs, executor = audited_runs(tmp_path_factory), Elsewhere(tmp_path_factory.getbasetemp() / "-")
    monkeypatch.setattr(study, "opened_executor", lambda *about: nullcontext(executor))
    pool = make_pool(runs / "ft", config())
    delete_sent("pool")
    assert weights(pool.folder) == here
    assert sorted(name.split("-")[0] for name in executor.sent) == ["data_path"] + 6 * [
        "ids"
    ] + 7 * ["run"]
    monkeypatch.undo()
    again = make_pool(audited / "ft", config())
    for path in pool.folder.rglob("config.toml"):
        name = path.parent.relative_to(pool.folder)
        text = json.dumps(Run.open(again.folder / name).config).replace(str(audited), str(runs))
        assert Run.open(path.parent).config == json.loads(text)
        assert Run.open(path.parent).metrics == Run.open(again.folder / name).metrics


def test_the_networks_are_trained_on_what_the_plan_says(audited):
    config = PoolConfig.parse({"models": 6, "epochs": 1, "threads": 1, "candidates": 0.5})
    pool = pool_of(audited / "original", config)
    for number in range(6):
        split = pool.plan.split_of(number)
        seen, unseen = set(split.train.tolist()), set(split.test.tolist())
        assert not seen & unseen
        assert not (seen | unseen) & set(pool.plan.split.held_out.tolist())
        assert seen | unseen == set(pool.plan.split.retain.tolist())


def test_what_is_asked_wrongly_writes_nothing(audited, qunlearn):
    for words, message in (
        ((audited / "original",), "has forgotten nothing"),
        ((audited / "ft", "--models", 3), "choose 6 or more"),
        ((audited / "ft", "--subset", 10_000), "leave it out"),
        ((audited / "ft", "--candidates", 0.01), "--candidates"),
        ((audited / "ft", "--executor", "dask"), "Unknown executor 'dask'"),
        ((audited / "ft", "--address", "auto"), "--address auto needs --executor ray"),
        ((audited / "ft", "--executor", "slurm", "--workers", 2), "leave it out: --cpus-per-cell"),
    ):
        folder = audited / f"elsewhere-{len(message)}"
        code, _, err = qunlearn("audit", "pool", *words, "--pool", folder)
        assert code == 2
        assert message in err
        assert not folder.exists()


def test_a_file_does_not_decide_where_networks_are_made(audited, qunlearn, tmp_path):
    file = tmp_path / "pool.toml"
    file.write_text('executor = "ray"\n')
    code, _, err = qunlearn("audit", "pool", audited / "ft", "--config", file)
    assert code == 2
    assert "asks to make cells elsewhere" in err


def test_a_coherent_request_joins_the_candidates_as_one_group(audited):
    config = PoolConfig.parse({"models": 9, "candidates": 0.2})
    usual = pool_of(audited / "original", config)
    split = usual.plan.split
    rows = split.retain[-15:]
    request = tuple(split.data.ids[row] for row in rows.tolist())
    pool = pool_of(audited / "original", config, request)
    assert pool.folder != usual.folder
    mine = torch.isin(pool.plan.candidates, rows)
    assert mine.sum() == 15
    states = pool.plan.states[:, mine]
    assert (states == states[:, :1]).all()
    assert (pool.plan.states[:, ~mine] != states[:, :1]).any()
    margins = made_up(6, networks=9, samples=len(pool.plan.candidates), left=1.0)
    assert by_name(method_figures(margins, mine))["KLoM", REQUEST].value > 0.05
