import copy

import pytest
import torch
from torch import nn

from qunlearn.errors import UserError
from qunlearn.gradients import GradientProjector, parameter_layers
from qunlearn.quant import QuantSpec, calibrate, quantize


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )
    model = quantize(model, QuantSpec(first_last_bits=4))
    calibrate(model, torch.randn(8, 1, 8, 8))
    return model


def batches(seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(8, 1, 8, 8, generator=generator) for _ in range(2)]


def forget_loss(model, x):
    p = model(x).softmax(1)
    return (p * p.log()).sum(1).mean()


def retain_loss(model, x):
    return nn.functional.cross_entropy(model(x), torch.arange(8) % 5)


def both_gradients(model, xf, xr):
    parameters = list(model.parameters())
    f = torch.autograd.grad(forget_loss(model, xf), parameters)
    r = torch.autograd.grad(retain_loss(model, xr), parameters)
    return [g.double() for g in f], [g.double() for g in r]


def by_hand(model, f, r, alpha, beta, granularity, when):
    """The definition, one group at a time, on concatenated vectors."""
    names = [(layer, name) for layer, name, _ in parameter_layers(model)]
    if granularity == "global":
        groups = [list(range(len(names)))]
    elif granularity == "layer":
        groups = [
            [i for i, (home, _) in enumerate(names) if home == layer]
            for layer in dict.fromkeys(name for name, _ in names)
        ]
    else:
        groups = []
        for layer in dict.fromkeys(name for name, _ in names):
            of_layer = [i for i, (home, _) in enumerate(names) if home == layer]
            singles = [i for i in of_layer if f[i].numel() == 1]
            others = [i for i in of_layer if f[i].numel() > 1]
            largest = max(others, key=lambda i: f[i].numel())
            groups += [[i, *singles] if i == largest else [i] for i in others]
    result = [None] * len(f)
    for group in groups:
        gf = torch.cat([f[i].flatten() for i in group])
        gr = torch.cat([r[i].flatten() for i in group])
        share = torch.dot(gf, gr) / torch.dot(gr, gr) if gr.any() else 0.0
        if when == "conflict" and share > 0:
            share = 0.0
        combined = gf - alpha * share * gr + beta * gr
        for i, part in zip(group, combined.split([f[i].numel() for i in group]), strict=True):
            result[i] = part.reshape(f[i].shape)
    return result


@pytest.mark.parametrize("when", ["always", "conflict"])
@pytest.mark.parametrize("granularity", ["layer", "tensor", "global"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (0.0, 1.0)])
def test_the_combined_gradient_is_the_definitions(granularity, when, alpha, beta):
    model, (xf, xr) = network(), batches()
    order = [p for _, _, p in parameter_layers(model)]
    assert {id(p) for p in order} == {id(p) for p in model.parameters()}
    f, r = both_gradients(model, xf, xr)
    position = {id(p): i for i, p in enumerate(model.parameters())}
    f, r = ([g[position[id(p)]] for p in order] for g in (f, r))
    expected = by_hand(model, f, r, alpha, beta, granularity, when)

    projector = GradientProjector(model, alpha, beta, granularity, when)
    with projector.forget():
        forget_loss(model, xf).backward()
    with projector.retain():
        retain_loss(model, xr).backward()
    projector.project()
    for parameter, value in zip(order, expected, strict=True):
        assert torch.allclose(parameter.grad.double(), value, rtol=1e-4, atol=1e-7)


def test_the_projected_gradient_is_orthogonal_and_has_the_length_of_the_theory():
    model, (xf, xr) = network(), batches()
    f, r = both_gradients(model, xf, xr)
    projector = GradientProjector(model, alpha=1.0, beta=0.0)
    with projector.forget():
        forget_loss(model, xf).backward()
    with projector.retain():
        retain_loss(model, xr).backward()
    met = projector.project_and_measure()
    position = {id(p): i for i, p in enumerate(model.parameters())}
    for k, layer in enumerate(met.names):
        group = [p for name, _, p in parameter_layers(model) if name == layer]
        gf, gr, gp = (
            torch.cat([v.flatten() for v in values])
            for values in (
                [f[position[id(p)]] for p in group],
                [r[position[id(p)]] for p in group],
                [p.grad.double() for p in group],
            )
        )
        assert abs(torch.dot(gp, gr)) < 1e-5 * gf.norm() * gr.norm()
        cosine = torch.dot(gf, gr) / (gf.norm() * gr.norm())
        assert torch.dot(gf, gp) == pytest.approx(
            (gf.norm() ** 2 * (1 - cosine**2)).item(), rel=1e-4
        )
        assert met.cosine[k].item() == pytest.approx(cosine.item(), abs=1e-5)
        assert met.forget_norm[k].item() == pytest.approx(gf.norm().item(), rel=1e-4)
        assert met.retain_norm[k].item() == pytest.approx(gr.norm().item(), rel=1e-4)
        assert met.projected_norm[k].item() == pytest.approx(gp.norm().item(), rel=1e-3)


def test_accumulating_halves_gives_the_whole():
    model, (xf, xr) = network(), batches()
    model.eval()  # BatchNorm would see halves
    twin = copy.deepcopy(model)
    projectors = [GradientProjector(m) for m in (model, twin)]
    with projectors[0].forget():
        forget_loss(model, xf).backward()
    with projectors[0].retain():
        retain_loss(model, xr).backward()
    labels = torch.arange(8) % 5
    for half in (slice(0, 4), slice(4, 8)):  # the two passes interleaved
        with projectors[1].forget():
            (forget_loss(twin, xf[half]) / 2).backward()
        with projectors[1].retain():
            (nn.functional.cross_entropy(twin(xr[half]), labels[half]) / 2).backward()
    for projector in projectors:
        projector.project()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-6)


def test_parameters_that_are_frozen_or_get_one_gradient_only():
    model = nn.ModuleDict({k: nn.Linear(3, 3) for k in ("frozen", "forget", "retain", "neither")})
    model["frozen"].requires_grad_(False)
    projector = GradientProjector(model, beta=2.0)
    x = torch.ones(1, 3)
    with projector.forget():
        model["forget"](x).sum().backward()
    with projector.retain():
        model["retain"](x).sum().backward()
    projector.project()
    assert model["frozen"].weight.grad is None
    assert model["neither"].weight.grad is None
    assert torch.equal(model["forget"].weight.grad, torch.ones(3, 3))
    assert torch.equal(model["retain"].weight.grad, 2 * torch.ones(3, 3))


def test_a_retain_gradient_of_zero_leaves_the_forget_gradient_unchanged():
    layer = nn.Linear(2, 2)
    projector = GradientProjector(layer)
    with projector.forget():
        layer(torch.ones(1, 2)).sum().backward()
    with projector.retain():
        (0 * layer(torch.ones(1, 2)).sum()).backward()
    projector.project()
    assert torch.equal(layer.weight.grad, torch.ones(2, 2))


def test_a_shared_parameter_counts_once_and_with_its_first_layer():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    assert [(layer, name) for layer, name, _ in parameter_layers(model)] == [
        ("0", "0.weight"),
        ("0", "0.bias"),
        ("1", "1.bias"),
    ]


def test_each_step_starts_anew():
    model, (xf, xr) = network(), batches()
    projector = GradientProjector(model)
    seen = []
    for _ in range(2):
        model.zero_grad()
        with projector.forget():
            forget_loss(model, xf).backward()
        with projector.retain():
            retain_loss(model, xr).backward()
        projector.project()
        seen.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_wrong_settings_are_named():
    for settings, says in (
        ({"alpha": 1.5}, "alpha = 1.5"),
        ({"beta": -1}, "beta = -1"),
        ({"beta": float("nan")}, "beta = nan"),
        ({"granularity": "layers"}, "did you mean 'layer'"),
        ({"when": "never"}, "never"),
    ):
        with pytest.raises(UserError, match=says):
            GradientProjector(nn.Linear(2, 2), **settings)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_any_optimizer_steps_on_the_combined_gradient_clipped(optimizer):
    model, (xf, xr) = network(), batches()
    twin = copy.deepcopy(model)
    order = [p for _, _, p in parameter_layers(twin)]
    position = {id(p): i for i, p in enumerate(twin.parameters())}
    f, r = ([g[position[id(p)]] for p in order] for g in both_gradients(twin, xf, xr))
    expected = by_hand(twin, f, r, 1.0, 1.0, "layer", "always")
    for parameter, value in zip(order, expected, strict=True):
        parameter.grad = value.float()

    projector = GradientProjector(model)
    with projector.forget():
        forget_loss(model, xf).backward()
    with projector.retain():
        retain_loss(model, xr).backward()
    projector.project()
    for net in (model, twin):
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        settings = {"eps": 1e-3} if optimizer is not torch.optim.SGD else {}
        optimizer(net.parameters(), lr=0.1, **settings).step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-3)


def test_the_groups_of_a_quantized_network_written_out():
    names = {}
    for layer, name, _ in parameter_layers(network()):
        names.setdefault(layer, set()).add(name)
    conv = {"weight", "bias", "weight_quantizer.scale", "activation_quantizer.scale"}
    conv.add("activation_quantizer.offset")
    assert names == {
        "0": {f"0.{name}" for name in conv},
        "1": {"1.weight", "1.bias"},
        "4": {f"4.{name}" for name in conv},
    }


def test_a_layer_of_one_number_goes_with_the_one_before_it():
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.Linear(3, 2))
    projector = GradientProjector(model, beta=0.0)
    x = torch.randn(4, 3)
    with projector.forget():
        model(x).square().mean().backward()
    with projector.retain():
        model(-x).logsumexp(1).mean().backward()
    projector.project()
    assert projector.names == ("0", "2")
    assert model[1].weight.grad.abs() > 0
    alone = GradientProjector(nn.PReLU())
    assert alone.names == ("",)


@pytest.mark.parametrize("granularity", ["layer", "tensor", "global"])
@pytest.mark.parametrize("missing", ["forget", "retain"])
def test_a_gradient_that_is_missing_counts_as_zero(granularity, missing):
    """A layer's bias that one of the two losses does not reach."""

    def combined(fill):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        projector = GradientProjector(model, granularity=granularity)
        x = torch.randn(4, 3)

        def loss(name):
            bias = model.bias.detach() if name == missing else model.bias
            value = nn.functional.linear(x, model.weight, bias).logsumexp(1).mean()
            return value + (0 * model.bias.sum() if fill and name == missing else 0)

        with projector.forget():
            (loss("forget") * 2 - model.weight.square().sum()).backward()
        with projector.retain():
            loss("retain").backward()
        met = projector.project_and_measure()
        return [model.weight.grad, model.bias.grad, met.forget_norm, met.retain_norm]

    for a, b in zip(combined(False), combined(True), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [5.0, 1e-4])
def test_half_precision_neither_overflows_nor_vanishes(dtype, size):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(10_000, dtype=dtype))
    f, r = ((size * torch.randn(10_000)).to(dtype) for _ in range(2))
    f = f + r
    projector = GradientProjector(nn.ParameterList([weight]), beta=0.0)
    with projector.forget():
        weight.backward(f)
    with projector.retain():
        weight.backward(r)
    projector.project()
    assert torch.isfinite(weight.grad).all()
    assert torch.cosine_similarity(weight.grad.double(), r.double(), dim=0).abs() < 0.01


@pytest.fixture
def one_process(tmp_path):
    """A group of one process, which is enough to shard a model."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["fully_shard", "FSDP", "FSDP, original parameters"])
def test_shards_are_refused(one_process, kind):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    if kind == "fully_shard":
        fully_shard(model)
    else:
        original = kind != "FSDP"
        model = FullyShardedDataParallel(
            model, use_orig_params=original, device_id=torch.device("cpu")
        )
    with pytest.raises(UserError, match=r"sharded .FSDP.*DDP"):
        GradientProjector(model)


def test_misuse_is_named():
    layer = nn.Linear(2, 2)
    projector = GradientProjector(layer)
    x = torch.ones(1, 2)
    with pytest.raises(RuntimeError, match="before both blocks"):
        projector.project()
    nested = pytest.raises(RuntimeError, match=r"retain\(\) was entered inside forget")
    with nested, projector.forget(), projector.retain():
        pass
    with projector.forget():
        layer(x).sum().backward()
        with pytest.raises(RuntimeError, match=r"project\(\) within forget"):
            projector.project()
    with projector.retain():
        layer(x).square().sum().backward()
    projector.project()
    with pytest.raises(RuntimeError, match="zero_grad"), projector.forget():
        pass
    layer.zero_grad(set_to_none=False)
    with projector.forget():
        layer(x).sum().backward()
    layer.zero_grad()


@pytest.mark.parametrize("momentum", [0.1, None])
def test_forgetting_does_not_move_batchnorms_averages(momentum):
    """In a loop of one's own, they become what the retained batches alone would make them."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.Flatten(), nn.Linear(144, 5)
    )
    alone = copy.deepcopy(model)
    projector = GradientProjector(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # so that both see the same batches
    for seed in range(3):
        xf, xr = batches(seed)
        optimizer.zero_grad()
        with projector.forget():
            forget_loss(model, 5 + 3 * xf).backward()
        with projector.retain():
            retain_loss(model, xr).backward()
        projector.project()
        optimizer.step()
        alone(xr)
    now, expected = model.state_dict(), alone.state_dict()
    assert int(now["1.num_batches_tracked"]) == 3
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(now[name], expected[name])


def test_batchnorm_normalises_by_the_batch_to_be_forgotten_and_backward_may_come_late():
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    twin, x = copy.deepcopy(model), 7 + torch.randn(16, 3)
    projector = GradientProjector(model)
    with projector.forget():
        loss = model(x).square().sum()
    before = copy.deepcopy(model[0].state_dict())
    with projector.forget():
        loss.backward()
    with projector.retain():
        model(x).sum().backward()
    assert before["num_batches_tracked"] == 0
    assert torch.equal(before["running_mean"], torch.zeros(3))
    assert model[0].num_batches_tracked == 1
    twin(x).square().sum().backward()
    assert torch.equal(projector._forget[0], twin[1].weight.grad)
