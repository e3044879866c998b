"""Compiled kernels compute what is written, whatever the shape, the layout and the precision."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from qunlearn.quant import QuantSpec, functional, fuse, fused, quantize, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason="no compiler here")


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is worth a compiled kernel."""
    monkeypatch.setattr(fuse, "WORTH_IT", 1)


def network(quantizer: str, per_channel: bool) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.Flatten(),
        nn.Linear(16 * 9, 5),
    )
    spec = QuantSpec(3, 4, quantizer, per_channel=per_channel, first_last_bits=4)
    return quantize(net, spec).double().train()  # so that no sum's rounding hides an error


def gradients(net: nn.Module, x: Tensor, on: bool) -> tuple[Tensor, dict[str, Tensor]]:
    net.zero_grad()
    x = x.detach().requires_grad_()
    with fused(on):
        out = net(x)
    out.square().sum().backward()  # outside of the block: backward remembers how forward was made
    found = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
    assert x.grad is not None
    return out.detach(), found | {"input": x.grad.clone()}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("quantizer", ["lsq+", "lsq", "pact", "dsq"])
def test_a_step_has_the_same_gradients(quantizer: str, per_channel: bool) -> None:
    net = network(quantizer, per_channel)
    for layout in (torch.contiguous_format, torch.channels_last):
        for batch in (6, 1):
            x = torch.randn(batch, 3, 8, 8).double().contiguous(memory_format=layout)
            net(torch.randn(8, 3, 8, 8).double())
            net.eval()
            plain, expected = gradients(net, x, on=False)
            quick, found = gradients(net, x, on=True)
            torch.testing.assert_close(quick, plain, rtol=1e-9, atol=1e-10)
            assert found.keys() == expected.keys()
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-10)
            net.train()


def test_the_kernel_is_really_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    plain: list[tuple[int, ...]] = []

    def double(x: Tensor, by: Tensor) -> Tensor:
        plain.append(tuple(x.shape))
        return x * by

    def compiled(
        function: object, tensors: Sequence[Tensor], numbers: object, example: fuse.Shape
    ) -> tuple[fuse.Holds, fuse.Made]:
        holds, made = compile_(double, tensors, (), example)
        plain.clear()  # it was traced

        def noted(flat: list[Tensor]) -> Sequence[Tensor]:
            seen.append(tuple(flat[0].shape))
            found: Sequence[Tensor] = made(flat)
            return found

        return holds, noted

    compile_ = fuse._compile
    monkeypatch.setattr(fuse, "_compile", compiled)
    kernel = fuse.kernel(dense=1)(double)
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    with fused():
        torch.testing.assert_close(kernel(x, torch.tensor(2.0)), 2 * x)
        rows = torch.tensor([2.0, 3.0]).reshape(2, 1, 1, 1)
        found = kernel(x, rows)
    torch.testing.assert_close(found, x * rows)
    assert found.is_contiguous(memory_format=torch.channels_last)
    with fused():
        kernel(x[:, ::2], torch.tensor(2.0))  # not dense: as it is written
    monkeypatch.setattr(fuse, "WORTH_IT", 121)
    with fused():
        kernel(x[..., :4, :4].contiguous(), torch.tensor(2.0))  # too small
    assert seen == [(120,), (2, 60)]
    assert plain == [(2, 2, 4, 5), (2, 3, 4, 4)]


def test_what_hinders_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("\nno C++ compiler\nat all")

    monkeypatch.setattr(fuse, "_compile", broken)
    why_not.cache_clear()
    try:
        assert why_not() == "no C++ compiler"
    finally:
        why_not.cache_clear()


@pytest.mark.parametrize("shape", [(4, 1, 1, 1), (1, 6, 1, 1), (1, 1, 5, 1), (4, 6, 1, 1), ()])
def test_scales_may_lie_along_any_axis(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5, 5).double()
    scale, offset = torch.rand(shape).double() / 5 + 0.1, -torch.rand(shape).double()
    found = []
    for on in (False, True):
        inputs = [t.clone().requires_grad_() for t in (x, scale, offset)]
        with fused(on):
            out = functional.offset_quantize(*inputs, 0, 15)
        out.backward(torch.arange(out.numel()).reshape(out.shape).double())
        found.append((out, *(t.grad for t in inputs)))
    for plain, quick in zip(*found, strict=True):
        torch.testing.assert_close(quick, plain, rtol=1e-9, atol=1e-9)


def test_transforms_of_functions_go_past_the_compiler() -> None:
    x, scale = torch.randn(6, 5), torch.tensor(0.2)

    def total(x: Tensor, scale: Tensor) -> Tensor:
        return functional.uniform_quantize(x, scale, 0, -8, 7).square().sum()

    each = torch.func.vmap(torch.func.grad(total, argnums=1), in_dims=(0, None))
    plain = each(x, scale)
    with fused():
        torch.testing.assert_close(each(x, scale), plain)


def test_many_versions_of_a_kernel_can_be_had() -> None:
    threads = torch.get_num_threads()
    x, scale = torch.randn(64, requires_grad=True), torch.tensor(0.1, requires_grad=True)
    try:
        for count in range(1, 7):  # each has a version of its own
            torch.set_num_threads(count)
            for kind in (torch.float32, torch.float64):
                with fused():
                    rounded = functional.uniform_quantize(x.to(kind), scale.to(kind), 0, -8, 7)
                rounded.sum().backward()
    finally:
        torch.set_num_threads(threads)


def test_one_version_serves_all_sizes_of_a_kind() -> None:
    scaled = fuse.kernel(dense=1)(lambda x, by: x * by)
    with fused():
        for shape in [(64,), (9, 9), (3, 1000), (8, 8, 8, 8), (2, 5), (2, 5000), (7, 9000)]:
            x, rows = torch.randn(shape), torch.rand(shape[0], *[1] * (len(shape) - 1))
            torch.testing.assert_close(scaled(x, rows[0].reshape(())), x * rows[0])
            torch.testing.assert_close(scaled(x, rows), x * rows)
    assert {example for example, _ in scaled.versions} == {
        *[(1009,), (8209,), (1048573,)],  # rows of one element are not compiled
        *[(31, 37), (31, 8209), (1021, 8209)],
    }


def test_what_was_computed_before_does_not_change_a_bit() -> None:
    x, gradient = torch.randn(1 << 17), torch.randn(1 << 17)
    given = (torch.tensor(0.15), torch.tensor(0.0), torch.tensor(1.0), -8, 7, True, False)
    threads, found = torch.get_num_threads(), []
    try:
        torch.set_num_threads(16)  # so many that sizes decide who computes what
        for first in (300, 5000, 1 << 17):
            kernel = fuse.kernel(dense=2)(functional._round_back.plain)
            kernel(x[:first].clone(), gradient[:first].clone(), *given, fused=True)
            found.append(kernel(x, gradient, *given, fused=True)[1])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_several_threads_may_compile_at_once() -> None:
    def rounded(bits: int) -> Tensor:
        kernel = fuse.kernel(dense=1)(functional._round.plain)
        return kernel(x, torch.tensor(0.1), torch.tensor(0.0), 0, 2**bits - 1, fused=True)

    x = torch.randn(400)
    with ThreadPoolExecutor(4) as pool:
        for bits, found in zip(range(2, 6), pool.map(rounded, range(2, 6)), strict=True):
            torch.testing.assert_close(found, (10 * x).clamp(0, 2**bits - 1).round() / 10)


def test_what_is_no_plain_memory_is_computed_as_written() -> None:
    x, zero, step = torch.randn(600), torch.zeros(()), torch.tensor(0.2)
    expected = functional._round(x, step, zero, -8, 7)
    with fused():
        functional._round(x, step, zero, -8, 7)
        with pytest.raises((RuntimeError, NotImplementedError)):
            functional._round(x, torch.tensor(0.2, device="meta"), zero, -8, 7)
        each = torch.func.vmap(lambda s: functional.uniform_quantize(x, s, 0, -8, 7))
        torch.testing.assert_close(each(step.expand(3)), expected.expand(3, -1))
        turned = functional._round(torch._neg_view(x), step, zero, -8, 8)
        torch.testing.assert_close(turned, functional._round(-x, step, zero, -8, 8))
        shaped = functional._round(x, step.reshape(1, 1), zero, -8, 7)
        torch.testing.assert_close(shaped, expected.reshape(1, -1))
        graph = make_fx(lambda x: functional._round(x, step, zero, -8, 7))(torch.ones(600))
    torch.testing.assert_close(graph(x), expected)
