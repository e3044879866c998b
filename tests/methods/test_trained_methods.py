"""FT, GA, ℓ1-sparse and Retrain against loops written by hand."""

import copy

import pytest
import torch
from methods.conftest import fresh
from torch import nn
from torch.nn.functional import cross_entropy

from qunlearn.data import Loader
from qunlearn.errors import UserError
from qunlearn.methods import forget
from qunlearn.methods.l1_sparse import decayed
from qunlearn.quant import QuantSpec, quantize
from qunlearn.training.train import train


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def by_hand(model, split, index, loss_of, epochs, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    loader = Loader(split.data, index, 60)
    steps = len(loader)
    for epoch in range(epochs):
        for step in range(steps):
            done = torch.tensor((epoch + step / steps) / epochs)
            optimizer.param_groups[0]["lr"] = lr * (1 + torch.cos(torch.pi * done).item()) / 2
            batch = loader.batch(epoch, step)
            optimizer.zero_grad()
            loss = cross_entropy(model(batch.images), batch.labels)
            loss_of(loss, done.item()).backward()
            optimizer.step()


def same(a, b):
    return all(torch.allclose(p, q, atol=1e-6) for p, q in zip(a.parameters(), b.parameters()))  # noqa: B905


def test_ft_descends_on_what_is_retained(asked):
    model = small()
    result = forget(model, asked, "ft", epochs=2, batch_size=60, lr=0.1).model
    by_hand(model, asked, asked.retain, lambda loss, done: loss, 2, 0.1)
    assert same(result, model)


def test_ga_climbs_on_what_is_to_be_forgotten(asked):
    model = small()
    result = forget(model, asked, "ga", epochs=2, batch_size=60, lr=0.1).model
    by_hand(model, asked, asked.forget, lambda loss, done: -loss, 2, 0.1)
    assert same(result, model)


def test_l1_sparse_is_ft_under_a_norm_that_fades_linearly(asked):
    model = small()
    settings = {"epochs": 3, "batch_size": 60, "lr": 0.1}
    result = forget(model, asked, "l1-sparse", gamma=0.01, **settings).model
    plain = forget(model, asked, "ft", **settings).model

    def penalised(loss, done):
        return loss + 0.01 * (1 - done) * sum(p.abs().sum() for p in model.parameters())

    by_hand(model, asked, asked.retain, penalised, 3, 0.1)
    assert same(result, model)
    assert not same(result, plain)
    assert [decayed(1e-4, 10, done) for done in (0, 5, 10)] == pytest.approx([1e-4, 5e-5, 0])


def test_l1_leaves_quantizers_out(trained, asked):
    """Where nothing but the norm pulls, scales stay and weights shrink."""
    model = copy.deepcopy(trained)
    settings = {"epochs": 1, "batch_size": 60, "weight_decay": 0.0}
    pulled = forget(model, asked, "l1-sparse", gamma=1e4, lr=1e-9, **settings).model
    plain = forget(model, asked, "ft", lr=1e-9, **settings).model
    for (name, a), b in zip(pulled.named_parameters(), plain.parameters(), strict=True):
        assert ("quantizer" in name) == torch.equal(a, b), name


def test_retrain_is_training_from_scratch_without_the_forget_set(trained, asked):
    settings = {"epochs": 2, "batch_size": 60, "lr": 0.05, "warmup": 1, "seed": 3}
    result = forget(trained, asked, "retrain", fresh=fresh, **settings).model
    expected = train(fresh(3), asked, part="retain", **settings)
    for (name, a), b in zip(
        result.state_dict().items(), expected.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name


def test_retrain_without_a_builder_says_what_it_lacks(trained, asked):
    with pytest.raises(UserError, match="fresh="):
        forget(trained, asked, "retrain", epochs=1)


def test_retrain_keeps_nothing_of_the_original(asked):
    outcomes = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        original = quantize(small(), QuantSpec())
        builder = lambda s: quantize(small(), QuantSpec())  # noqa: E731
        train(original, asked, epochs=1, batch_size=60, seed=seed)
        model = forget(original, asked, "retrain", fresh=builder, epochs=1, batch_size=60).model
        outcomes.append(model.state_dict())
    assert all(torch.equal(outcomes[0][name], outcomes[1][name]) for name in outcomes[0])
