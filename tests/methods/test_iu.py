import copy
import weakref

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from qunlearn.errors import UserError
from qunlearn.methods import Job, forget, iu
from qunlearn.methods.base import MethodConfig
from qunlearn.methods.iu import continuous, inverse_fisher_product, per_sample
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3), nn.Linear(3, 10)).eval()


def job_of(model, split):
    return Job(model, split, make_fabric(ComputeConfig()))


def explicit(model, split, samples, v, damping):
    """F written out as a matrix from one-sample gradients, and inverted."""
    data = split.data
    rows = []
    for i in samples.tolist():
        loss = cross_entropy(model(data.normalise(data.images[i : i + 1])), data.labels[i : i + 1])
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        rows.append(torch.cat([g.flatten() for g in gradient]).double())
    g = torch.stack(rows)
    fisher = g.T @ g / len(g) + damping * torch.eye(g.shape[1], dtype=torch.float64)
    return torch.linalg.inv(fisher) @ v


@pytest.mark.parametrize("damping", [1e-2, 1.0])
def test_woodfisher_is_the_explicit_inverse(asked, tiny, damping):
    samples = asked.retain[:20]
    v = [torch.randn_like(p) for p in tiny.parameters()]
    flat = torch.cat([part.flatten() for part in v]).double()
    product = inverse_fisher_product(job_of(tiny, asked), continuous(tiny), samples, v, damping)
    found = torch.cat([part.flatten() for part in product]).double()
    expected = explicit(tiny, asked, samples, flat, damping)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-4 * expected.abs().max())


def test_no_more_than_two_blocks_of_gradients_are_held(asked, tiny, monkeypatch):
    samples, v = asked.retain[:20], [torch.randn_like(p) for p in tiny.parameters()]
    job = job_of(tiny, asked)
    whole = inverse_fisher_product(job, continuous(tiny), samples, v, 0.1)
    alive, most = weakref.WeakSet(), []

    def counted(model, weights, data, index):
        rows = per_sample(model, weights, data, index)
        alive.add(rows)
        most.append(sum(len(block) for block in alive))
        return rows

    monkeypatch.setattr(iu, "per_sample", counted)
    size = sum(p.numel() for p in tiny.parameters()) * 4
    monkeypatch.setattr(iu, "BLOCK_BYTES", 3 * size)
    blocks = inverse_fisher_product(job, continuous(tiny), samples, v, 0.1)
    assert max(most) <= 3 * 3  # two blocks, and the one that is being replaced
    for a, b in zip(whole, blocks, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_step_is_the_definitions(asked, tiny):
    before = torch.cat([p.detach().flatten() for p in tiny.parameters()]).double()
    result = forget(tiny, asked, "iu", alpha=2.0, damping=0.5, samples=10_000)
    after = torch.cat([p.detach().flatten() for p in result.model.parameters()]).double()

    data, (f, r) = asked.data, (asked.forget, asked.retain)
    n = len(f) + len(r)

    def total(index):
        logits = tiny(data.normalise(data.images[index]))
        loss = cross_entropy(logits, data.labels[index], reduction="sum")
        gradient = torch.autograd.grad(loss, list(tiny.parameters()))
        return torch.cat([g.flatten() for g in gradient]).double()

    v = total(f) / n - len(f) / (n * len(r)) * total(r)
    expected = 2.0 * explicit(tiny, asked, r, v, 0.5)
    assert torch.allclose(after - before, expected, rtol=1e-2, atol=1e-3 * expected.abs().max())


def test_quantizers_and_running_averages_stay(trained, asked):
    before = copy.deepcopy(trained.state_dict())
    after = forget(trained, asked, "iu", samples=5).model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert "fc.weight" in moved
    assert not any("quantizer" in name or "running" in name for name in moved)


def test_it_has_no_settings_of_training(trained, asked):
    assert issubclass(iu.IuConfig, MethodConfig)
    with pytest.raises(UserError, match=r"Method 'iu' has no setting 'lr'\. Its settings are seed"):
        forget(trained, asked, "iu", lr=0.1)
