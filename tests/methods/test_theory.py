"""The paper's theory: what the optima are, and what a projected step does to first order."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from qunlearn.gradients import GradientProjector, parameter_layers
from qunlearn.methods import negative_entropy
from qunlearn.methods.base import other_labels


def optimum(loss, classes: int, samples: int = 3) -> torch.Tensor:
    """The probabilities that a loss, minimised freely over the logits, ends at."""
    torch.manual_seed(0)
    logits = torch.randn(samples, classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], lr=1, max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(logits)
        value.backward()
        return value

    optimizer.step(closure)
    return logits.detach().softmax(1)


def entropy(p: torch.Tensor) -> torch.Tensor:
    return -torch.xlogy(p, p).sum(1)


def kl_to_uniform(p: torch.Tensor) -> torch.Tensor:
    return math.log(p.shape[1]) - entropy(p)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_optimum_of_entropy_is_uniform(classes):
    p = optimum(negative_entropy, classes)
    assert torch.allclose(entropy(p), torch.tensor(math.log(classes), dtype=p.dtype), atol=1e-6)
    assert kl_to_uniform(p).max() < 1e-6


@pytest.mark.parametrize("classes", [2, 10])
def test_the_optimum_of_a_label_is_certainty(classes):
    labels = torch.tensor([1, 0, 1])
    p = optimum(lambda logits: cross_entropy(logits, labels), classes)
    assert entropy(p).max() < 1e-3
    assert kl_to_uniform(p).min() > math.log(classes) - 1e-3


@pytest.mark.parametrize("classes", [3, 10])
def test_random_labels_are_expected_to_be_almost_uniform(classes):
    draws = other_labels(torch.zeros(60_000, dtype=torch.int64), classes, "draws")
    p = draws.bincount(minlength=classes).double()[None] / len(draws)
    assert p[0, 0] == 0
    expected = math.log(classes / (classes - 1))
    assert kl_to_uniform(p).item() == pytest.approx(expected, abs=2e-3)


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_the_identities_hold_on_random_gradients(seed, size):
    generator = torch.Generator().manual_seed(seed)
    weight = nn.Parameter(torch.zeros(size, dtype=torch.float64))
    holder = nn.ParameterList([weight])
    f, r = (torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2))
    projector = GradientProjector(holder, alpha=1.0, beta=0.0)
    with projector.forget():
        (weight * f).sum().backward()
    with projector.retain():
        (weight * r).sum().backward()
    projector.project()
    projected = weight.grad
    sine = 1 - (f @ r) ** 2 / ((f @ f) * (r @ r))
    assert abs(projected @ r) < 1e-12 * f.norm() * r.norm()
    assert (f @ projected).item() == pytest.approx(((f @ f) * sine).item(), rel=1e-9, abs=1e-12)


def test_a_small_step_along_the_projected_gradient_forgets_and_does_not_unlearn():
    """On a smooth network in float64 with BatchNorm in eval mode, as the claim supposes."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Softplus(), nn.Flatten(), nn.Linear(144, 5)
    )
    model = model.double()
    model(torch.randn(50, 1, 8, 8, dtype=torch.float64))  # for the running averages
    model.eval()
    xf, xr = torch.randn(2, 16, 1, 8, 8, dtype=torch.float64)
    yr = torch.arange(16) % 5
    projector = GradientProjector(model, alpha=1.0, beta=0.0)
    with projector.forget():
        negative_entropy(model(xf)).backward()
    with projector.retain():
        cross_entropy(model(xr), yr).backward()
    retain_gradient = [p.grad.clone() for p in model.parameters()]
    projector.project()
    gradient = [p.grad.clone() for p in model.parameters()]
    assert any(not torch.allclose(a, b) for a, b in zip(gradient, retain_gradient, strict=True))

    def changes(step: float) -> tuple[float, float]:
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for parameter, g in zip(moved.parameters(), gradient, strict=True):
                parameter -= step * g
            forget = negative_entropy(moved(xf)) - negative_entropy(model(xf))
            retain = cross_entropy(moved(xr), yr) - cross_entropy(model(xr), yr)
        return forget.item(), retain.item()

    square = sum((g * g).sum().item() for g in gradient)
    for step in (1e-3, 1e-4):
        forget, retain = changes(step)
        assert forget == pytest.approx(-step * square, rel=0.05)  # falls, as its gradient says
        assert abs(retain) < 0.05 * abs(forget)
    # First order is gone: a tenth of the step leaves a hundredth of the change.
    assert changes(1e-3)[1] == pytest.approx(100 * changes(1e-4)[1], rel=0.1)


def test_the_layers_of_a_quantized_network_are_orthogonal_one_by_one(trained, asked):
    model = copy.deepcopy(trained).train()
    data = asked.data
    projector = GradientProjector(model, alpha=1.0, beta=0.0)
    xf, xr = (data.normalise(data.images[i[:18]]) for i in (asked.forget, asked.retain))
    with projector.forget():
        negative_entropy(model(xf)).backward()
    with projector.retain():
        cross_entropy(model(xr), data.labels[asked.retain[:18]]).backward()
    retain = {name: p.grad.clone() for name, p in model.named_parameters()}
    projector.project()
    layers: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for layer, name, parameter in parameter_layers(model):
        layers.setdefault(layer, []).append((parameter.grad, retain[name]))
    assert len(layers) == 41
    for pairs in layers.values():
        f, r = (torch.cat([pair[i].double().flatten() for pair in pairs]) for i in (0, 1))
        assert abs(f @ r) <= 1e-5 * f.norm() * r.norm()
