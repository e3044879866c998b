import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from qunlearn.data import Loader
from qunlearn.gradients import GradientProjector, LayerConflict
from qunlearn.methods import Job, forget, negative_entropy, projected
from qunlearn.methods.conflict import PER_EPOCH, ConflictLog
from qunlearn.methods.losses import negative_entropies
from qunlearn.methods.oeu import OeuConfig, OrthogonalEntropy, paired
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric

FAST = {"epochs": 1, "batch_size": 60}


def test_negative_entropy_is_the_definition():
    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [100.0, 0.0, -100.0]])
    p = logits.double().softmax(1)
    expected = [sum(q * q.log() if q > 0 else 0.0 for q in row) for row in p]
    assert negative_entropies(logits).tolist() == pytest.approx([float(e) for e in expected])
    assert negative_entropy(logits).item() == pytest.approx(sum(map(float, expected)) / 3)


LAYERS, TOGETHER = (slice(0, 2), slice(2, 4)), (slice(0, 4),)
ABLATIONS = {  # the settings, the projection's strength, its groups, and whether entropy is raised
    "whole": ({}, 1.0, LAYERS, True),
    "w/o GOP": ({"alpha": 0}, 0.0, LAYERS, True),
    "GOP_global": ({"granularity": "global"}, 1.0, TOGETHER, True),
    "w/o EGU": ({"forget_loss": "random-label"}, 1.0, LAYERS, False),
}


@pytest.mark.parametrize(
    ("settings", "alpha", "groups", "entropy"), ABLATIONS.values(), ids=ABLATIONS
)
def test_two_steps_are_those_of_a_hand_written_loop(asked, settings, alpha, groups, entropy):
    """Full precision without BatchNorm; the batches' order is the loaders', as are wrong labels."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
    twin = copy.deepcopy(model)
    fixed = {"epochs": 1, "batch_size": 100, "lr": 0.1}
    result = forget(model, asked, "oeu", **fixed, **settings)

    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    forget_loader = Loader(asked.data, asked.forget, 100, stream="forget")
    retain_loader = Loader(asked.data, asked.retain, 100)
    assert (len(forget_loader), len(retain_loader)) == (1, 2)
    job = Job(twin, asked, make_fabric(ComputeConfig()))
    wrong = OrthogonalEntropy(job, OeuConfig(**fixed, **settings), twin).wrong_labels
    for step in range(2):
        optimizer.param_groups[0]["lr"] = [0.1, 0.05][step]
        f, r = forget_loader.batch(step, 0), retain_loader.batch(0, step)
        logits = twin(f.images)
        p = logits.softmax(1)
        loss = (p * p.log()).sum(1).mean()
        if not entropy:
            loss = cross_entropy(logits, wrong(step)[f.index])
        parameters = list(twin.parameters())
        g_f = torch.autograd.grad(loss, parameters)
        g_r = torch.autograd.grad(cross_entropy(twin(r.images), r.labels), parameters)
        for group in groups:
            a, b = (torch.cat([g.flatten() for g in gs[group]]) for gs in (g_f, g_r))
            share = alpha * a.dot(b) / b.dot(b)
            for parameter, gf, gr in zip(parameters[group], g_f[group], g_r[group], strict=True):
                parameter.grad = gf - share * gr + gr
        optimizer.step()
    for a, b in zip(result.model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_loop_of_ones_own_with_batchnorm_gives_the_network_that_ours_gives(asked, momentum):
    """Weights and running averages; the two differ only in who wrote the loop."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.Flatten(), nn.Linear(144, 10)
    )
    twin = copy.deepcopy(model).train()
    ours = forget(model, asked, "oeu", epochs=1, batch_size=100, lr=0.1).model

    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    projector = GradientProjector(twin)
    forget_loader = Loader(asked.data, asked.forget, 100, stream="forget")
    retain_loader = Loader(asked.data, asked.retain, 100)
    for step in range(2):
        optimizer.param_groups[0]["lr"] = [0.1, 0.05][step]
        f, r = forget_loader.batch(step, 0), retain_loader.batch(0, step)
        optimizer.zero_grad()
        with projector.forget():
            negative_entropy(twin(f.images)).backward()
        with projector.retain():
            cross_entropy(twin(r.images), r.labels).backward()
        projector.project()
        optimizer.step()
    theirs = twin.state_dict()
    assert int(theirs["1.num_batches_tracked"]) == 2
    for name, tensor in ours.state_dict().items():
        assert torch.allclose(tensor, theirs[name], atol=1e-5), name


def test_a_whole_run_records_the_retain_batches_alone(asked, trained):
    """With a learning rate of almost nothing, OEU's running averages are FT's."""
    after = [
        dict(forget(trained, asked, name, **FAST, lr=1e-12).model.named_buffers())
        for name in ("oeu", "ft")
    ]
    for name, value in after[0].items():
        assert torch.allclose(value.float(), after[1][name].float(), rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("forget_steps", [1, 3, 4, 7])
@pytest.mark.parametrize("steps", [3, 4, 10])
def test_once_shows_each_forget_batch_once_per_epoch(steps, forget_steps):
    for epoch in (0, 5):
        shown = [b for s in range(steps) for b in paired("once", epoch, s, steps, forget_steps)]
        assert shown == [(epoch, number) for number in range(forget_steps)]


def test_cycle_shows_one_forget_batch_at_every_step_all_equally_often():
    shown = [paired("cycle", e, s, 4, 3) for e in range(3) for s in range(4)]
    assert [batch for (batch,) in shown] == [(n // 3, n % 3) for n in range(12)]


def test_switches_reach_the_projector(monkeypatch, trained, asked):
    seen = []

    class Spy(GradientProjector):
        def __init__(self, model, *settings):
            seen.append(settings)
            super().__init__(model, *settings)

    monkeypatch.setattr(projected, "GradientProjector", Spy)
    settings = {"alpha": 0.5, "beta": 2.0, "granularity": "tensor", "when": "conflict"}
    forget(trained, asked, "oeu", **FAST, **settings)
    assert seen == [(0.5, 2.0, "tensor", "conflict")]


def test_random_label_loss_never_teaches_the_true_label_and_redraws(trained, asked):
    job = Job(copy.deepcopy(trained), asked, make_fabric(ComputeConfig()))
    config = OeuConfig(**FAST, forget_loss="random-label")
    passing = OrthogonalEntropy(job, config, job.model)
    first, second = passing.wrong_labels(0), passing.wrong_labels(1)
    for labels in (first, second):
        assert not (labels == asked.data.labels).any()
    assert not torch.equal(first, second)
    assert torch.equal(first, passing.wrong_labels(0))
    logits = torch.randn(len(asked.forget), 10)
    expected = cross_entropy(logits, first[asked.forget], reduction="none")
    assert torch.equal(passing.losses(logits, 0, asked.forget), expected)


def test_the_history_records_conflict_by_layer_and_step(trained, asked):
    result = forget(trained, asked, "oeu", epochs=2, batch_size=20)
    for row in result.history:
        record = row.conflict
        layers, steps = len(record.layers), len(record.steps)
        assert layers == 41
        assert 2 <= steps <= PER_EPOCH
        for name in ("cosine", "forget_norm", "projected_norm", "retain_norm"):
            table = getattr(record, name)
            assert len(table) == steps
            assert all(len(values) == layers for values in table)
        for i in range(layers):
            below = [values[i] < 0 for values in record.cosine]
            assert record.share_in_conflict[i] == pytest.approx(sum(below) / steps, abs=1e-3)
        for cosines, before, after in zip(
            record.cosine, record.forget_norm, record.projected_norm, strict=True
        ):
            for c, f, p in zip(cosines, before, after, strict=True):
                assert p == pytest.approx(f * (1 - c * c) ** 0.5, rel=2e-2, abs=1e-4 * f)


@pytest.mark.parametrize("steps", [1, 5, 8, 9, 100])
def test_steps_are_sampled_over_the_whole_epoch(steps):
    met = LayerConflict(("a",), *(torch.zeros(1) for _ in range(4)))
    log = ConflictLog(steps)
    for _ in range(2):  # every epoch alike
        for step in range(steps):
            if log.wants(step):
                log.add(step, met)
        sampled = log.report().steps
        assert min(steps, PER_EPOCH / 2) <= len(sampled) <= PER_EPOCH
        assert sampled[0] == 0
        assert sampled[-1] >= steps * 3 / 4 - 1
    assert log.report() is None
