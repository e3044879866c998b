"""The kernels in C compute what is written in torch, whatever the shape, layout and precision."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from qunlearn.models import ModelSpec
from qunlearn.quant import (
    QuantSpec,
    functional,
    fuse,
    fused,
    kernels,
    operators,
    quantize,
    why_not,
)
from qunlearn.quant.operators import Kernel

pytestmark = pytest.mark.skipif(bool(why_not()), reason="no compiler here")

KERNELS = [kernel for kernel in vars(kernels).values() if isinstance(kernel, Kernel)]


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


@pytest.mark.parametrize("quantizer", ["lsq+", "lsq", "pact", "dsq"])
def test_a_float_step_of_resnet_agrees_layer_by_layer(quantizer: str) -> None:
    torch.manual_seed(0)
    net = quantize(ModelSpec("resnet18", 10, 3, 32, 0.125).build(), QuantSpec(4, 4, quantizer))
    x, y = torch.randn(8, 3, 32, 32), torch.arange(8)
    net.train()(x)  # starts the quantizers
    found = []
    for on in (False, True):
        net.zero_grad()
        with fused(on):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        found.append((loss, {n: p.grad for n, p in net.named_parameters()}))
    (plain, expected), (quick, ours) = found
    assert torch.equal(quick, plain)
    layers = {name.split("_quantizer")[0].rpartition(".")[0] for name in expected}
    for layer in layers:
        names = [name for name in expected if name.startswith(layer)]
        size = torch.cat([expected[name].flatten() for name in names]).norm()
        error = torch.cat([(ours[name] - expected[name]).flatten() for name in names]).norm()
        assert error <= 1e-5 * size, layer


def examples(x: Tensor, shape: tuple[int, ...]) -> dict[Kernel, tuple[Any, ...]]:
    """What each kernel may be given for `x`, with shared numbers of a shape."""
    kind = kernels.wide(x).dtype

    def shared(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(shape, dtype=kind)

    gradient, step, offset = torch.randn(x.shape).to(x.dtype), shared(0.1, 0.6), shared(-9, 1)
    return {
        kernels.round_forward: (x, step, offset, 0, 15, True),
        kernels.round_back: (x, gradient, step, offset, 0, 15, 0.3, True),
        kernels.pact_back: (x, gradient, 2 * step, True),
        kernels.soft_back: (x, gradient, -step, step, shared(1, 7.6), shared(0.5, 1), 15),
    }


def several(found: Any) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else found


LARGE = (64, 16, 32, 32)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("shape", [(7,), (3, 1000), (5, 8209), LARGE, (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_each_kernel_computes_what_is_written(
    kind: torch.dtype, shape: tuple[int, ...], rows: bool
) -> None:
    torch.manual_seed(0)
    x = (2 * torch.randn(shape)).to(kind)
    own = (shape[0], *[1] * (len(shape) - 1)) if rows else ()
    assert examples(x, own).keys() == set(KERNELS)
    exact = {"rtol": 1e-9, "atol": 1e-9} if kind is torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for kernel, words in examples(x, own).items():
        ours, expected = several(kernel(*words, fused=True)), several(kernel.plain(*words))
        each, *sums = zip(ours, expected, strict=True)
        if kernel is kernels.soft_back:  # its tanh is not torch's
            near = {} if kind in operators.NARROW else exact
            torch.testing.assert_close(*each, **near)
        else:
            assert torch.equal(*each)
        for mine, sum_ in sums:
            error = (mine.reshape(sum_.shape) - sum_).abs()
            allowed = exact["atol"] * (1 + x.numel() ** 0.5 * 10)
            assert (error <= allowed + exact["rtol"] * sum_.abs()).all()


@example(x=[float("nan"), float("inf"), -float("inf"), 0.0], scale=0.3, place=4.0, from_offset=True)
@given(
    x=st.lists(st.floats(width=32), min_size=1, max_size=40),
    scale=st.sampled_from([0.0, -1.0, 1e-12, 0.3, 7.0, 1e30, float("nan")]),
    place=st.floats(-1e6, 1e6, width=32),
    from_offset=st.booleans(),
)
def test_values_out_of_any_range_agree_too(
    x: list[float], scale: float, place: float, from_offset: bool
) -> None:
    values, *grid = torch.tensor(x), torch.tensor(scale), torch.tensor(place), 0, 15
    ours, expected = (
        kernels.round_forward(values, *grid, from_offset, fused=on) for on in (True, False)
    )
    torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)
    words = (values, torch.ones(len(x)), *grid, 0.5, from_offset)
    ours, expected = (kernels.round_back(*words, fused=on)[0] for on in (True, False))
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


@pytest.mark.parametrize("signed", [False, True])
def test_the_edges_of_pact_are_the_same(signed: bool) -> None:
    x = torch.tensor([-2.1, -2.0, -1.9, -0.1, 0.0, 0.1, 1.9, 2.0, 2.1])
    words = (x, torch.arange(1.0, 10.0), torch.tensor(2.0), signed)
    for ours, expected in zip(
        kernels.pact_back(*words, fused=True), kernels.pact_back(*words), strict=True
    ):
        assert torch.equal(ours, expected)


def test_which_tensors_c_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    call_c = Kernel.call_c

    def noted(self: Kernel, dense: operators.Tensors, *others: Any) -> list[Tensor]:
        seen.append((*dense[0].shape, others[-1]))
        return call_c(self, dense, *others)

    monkeypatch.setattr(Kernel, "call_c", noted)
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    rows, one = torch.tensor([0.2, 0.3]).reshape(2, 1, 1, 1), torch.tensor(0.2)

    def rounded(x: Tensor, scale: Tensor) -> Tensor:
        found: Tensor = kernels.round_forward(x, scale, torch.tensor(0.0), -8, 7, False, fused=True)
        torch.testing.assert_close(found, (x / scale).round().clamp(-8, 7) * scale)
        return found

    assert rounded(x, one).is_contiguous(memory_format=torch.channels_last)
    assert rounded(x, rows).is_contiguous(memory_format=torch.channels_last)
    assert seen == [(2, 3, 4, 5, 1), (2, 3, 4, 5, 2)]
    rounded(x[:, ::2], one)  # not a run of memory
    rounded(x, torch.rand(3, 1, 1) + 0.1)  # not by rows
    rounded(x, one.double())
    rounded(x[:0], one)
    assert len(seen) == 2
    back = (one, torch.tensor(0.0), -8, 7, 1.0, False)
    kernels.round_back(x, x.contiguous(), *back, fused=True)  # not in the same order
    assert len(seen) == 2


def test_sums_do_not_depend_on_the_threads() -> None:
    x = torch.randn(1 << 17)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            torch.manual_seed(0)
            given = examples(x, ()).items()
            found.append([each for k, a in given for each in several(k(*a, fused=True))])
    finally:
        torch.set_num_threads(threads)
    for one, two, five in zip(*found, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, five)


@pytest.fixture
def anew() -> Iterator[None]:
    """Nothing is compiled before the test, nor kept after it."""

    def forget() -> None:
        fuse.library.cache_clear()
        why_not.cache_clear()
        for kernel in KERNELS:
            kernel.c_functions.clear()

    forget()
    yield
    forget()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("way", fuse.FLAG_SETS)
def test_each_way_to_compile_makes_the_same(
    way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(3, 5000)
    given = examples(x, (3, 1))
    monkeypatch.setattr(fuse, "FLAG_SETS", (way,))
    try:
        fuse.library(torch.float32)
    except RuntimeError as problem:
        pytest.skip(str(problem))
    for kernel, words in given.items():
        ours, expected = several(kernel(*words, fused=True)), several(kernel.plain(*words))
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", fuse.C_TYPES.values())
def test_the_compiler_has_nothing_to_say(kind: str, tmp_path: Any) -> None:
    strict = ("-Wall", "-Wextra", "-Werror", f"-DREAL={kind}", "-fopenmp")
    try:
        fuse._build(["cc"], strict, str(tmp_path))
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("compiler", "says"),
    [
        ("no-such-compiler -O9", "there is no C compiler 'no-such-compiler -O9'"),
        ('"', "there is no C compiler"),
        (f"{shlex.quote(sys.executable)} -c 1/0", "cannot compile or load .*division by zero"),
        ("false", "cannot compile or load kernels.c"),
        ("true", "cannot compile or load kernels.c.*cannot open shared object"),
    ],
)
def test_what_hinders_it_is_said(compiler: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    reason = why_not()
    assert reason is not None
    assert "\n" not in reason
    assert reason.endswith(".")
    assert re.search(says, reason)


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("compiler", "says"),
    [
        # The shell waits for its child, which outlives it unless both are ended.
        ("sh -c 'sleep 60 & wait'", "did not compile kernels.c within 0.3 seconds; name another"),
        ("sh -c 'exec sleep 60'", "did not compile kernels.c within 0.3 seconds; name another"),
    ],
)
def test_a_compiler_that_hangs_is_ended(
    compiler: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(fuse, "COMPILE_TIMEOUT", 0.3)
    started = time.monotonic()
    assert says in str(why_not())
    assert time.monotonic() - started < 10


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("makes", "says"),
    [
        (
            "echo 'int other;' | cc -shared -fPIC -x c - -o kernels.so",
            "no function 'round_forward'",
        ),
        ("echo 'no library' > kernels.so", "cannot compile or load kernels.c: .*kernels.so"),
    ],
)
def test_a_compiler_that_makes_another_library(
    makes: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", shlex.join(["sh", "-c", makes]))
    reason = why_not()
    assert reason is not None
    assert re.search(says, reason)
    assert "\n" not in reason


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


def test_scales_by_row_may_share_a_zero_point() -> None:
    torch.manual_seed(0)
    x, scale = torch.randn(4, 30).double(), torch.rand(4, 1).double() / 5 + 0.1
    found = []
    for on in (False, True):
        zero = torch.tensor(3.0).double().requires_grad_()
        with fused(on):
            functional.uniform_quantize(x, scale, zero, 0, 7, torch.tensor(0.5)).sum().backward()
        found.append(zero.grad)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("by_row", [0, 1])
def test_only_one_of_scale_and_offset_may_be_by_row(by_row: int, on: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 30).double()
    learned = [torch.tensor(0.2).double(), torch.tensor(-0.7).double()]
    learned[by_row] = learned[by_row] * (1 + torch.rand(4, 1).double() / 5)
    mixed = [each.clone().requires_grad_() for each in learned]
    alike = [each.expand(4, 1).clone().requires_grad_() for each in learned]
    with fused(on):
        functional.offset_quantize(x, *mixed, 0, 7).square().sum().backward()
        functional.offset_quantize(x, *alike, 0, 7).square().sum().backward()
    for one, each in zip(mixed, alike, strict=True):
        torch.testing.assert_close(one.grad, each.grad.sum_to_size(one.shape))


def test_another_device_without_a_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> object:
        raise torch._dynamo.exc.TorchDynamoException("\nCannot find a working triton\nat all")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: missing)
    kernel = kernels.round_forward
    monkeypatch.setattr(kernel, "compiled_plain", None)
    words = (torch.randn(9), torch.tensor(0.2), torch.tensor(0.0), 0, 7, False)
    with pytest.warns(UserWarning, match="not compiled.*Cannot find a working triton"):
        torch.testing.assert_close(kernel.on_other_device(*words, True), kernel.plain(*words))
    again = kernel.on_other_device(*words, True)  # it is told once
    torch.testing.assert_close(again, kernel.plain(*words))


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("quantizer", ["lsq+", "lsq", "pact", "dsq"])
def test_gradients_of_each_sample_are_those_of_one_at_a_time(quantizer: str, on: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    net = quantize(net, QuantSpec(3, 3, quantizer, per_channel=True)).double()
    x = torch.randn(5, 1, 6, 6).double()
    net(x)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(net, parameters, (x[None],))
        return out.square().sum()

    with fused(on):
        found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for i, one in enumerate(x):
        net.zero_grad()
        net(one[None]).square().sum().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            torch.testing.assert_close(found[name][i], parameter.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("axes", [(0, None, None), (1, 0, None), (None, 0, 0), (None, None, 0)])
def test_vmap_is_one_at_a_time(axes: tuple[int | None, ...], on: bool) -> None:
    torch.manual_seed(0)
    one = (torch.randn(4, 6), torch.rand(4, 1) / 5 + 0.1, -torch.rand(()))
    given = [
        each if axis is None else torch.stack([each, 2 * each, 3 * each], axis)
        for each, axis in zip(one, axes, strict=True)
    ]
    rest = (0, 7, True)

    def both(x: Tensor, scale: Tensor, place: Tensor) -> tuple[Tensor, ...]:
        back = kernels.round_back(x, x.square(), scale, place, 0, 7, 0.5, True, fused=on)
        return (kernels.round_forward(x, scale, place, *rest, fused=on), *back)

    found = torch.func.vmap(both, axes)(*given)
    for i in range(3):
        own = (e if a is None else e.select(a, i) for e, a in zip(given, axes, strict=True))
        for mine, expected in zip(found, both(*own), strict=True):
            torch.testing.assert_close(mine[i], expected)


@pytest.mark.parametrize("name", ["round_forward", "round_back", "pact_back", "soft_back"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [False, True])
def test_operators_keep_what_torch_asks_of_them(name: str, kind: torch.dtype, rows: bool) -> None:
    x = torch.randn(4, 3, 5).to(kind)
    words = examples(x, (4, 1, 1) if rows else ())[getattr(kernels, name)]
    operator = getattr(torch.ops.qunlearn, name)
    for on in (False, True):
        torch.library.opcheck(operator, (*words, on))


def test_no_private_flag_of_torch_decides_what_is_computed() -> None:
    for path in Path(kernels.__file__).parent.glob("*.py"):
        assert "torch._C" not in path.read_text(), path.name


@pytest.mark.parametrize("on", [False, True])
def test_second_derivatives_are_refused(on: bool) -> None:
    x, step = torch.randn(9, requires_grad=True), torch.tensor(0.2, requires_grad=True)
    with fused(on):
        value = functional.uniform_quantize(x, step, 0, -8, 7).square().sum()
        (slope,) = torch.autograd.grad(value, step, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            slope.backward()


def test_torch_compile_and_export_see_plain_operations() -> None:
    class Rounds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.uniform_quantize(x, torch.tensor(0.5), 3, 0, 15)

    x = torch.randn(40)
    with fused():
        exported = torch.export.export(Rounds(), (x,))
    assert not any("qunlearn" in str(node.target) for node in exported.graph.nodes)
    assert torch.equal(exported.module()(x), Rounds()(x))


@pytest.mark.usefixtures("anew")
def test_several_threads_may_compile_at_once() -> None:
    def rounded(bits: int) -> Tensor:
        found: Tensor = kernels.round_forward(x, step, zero, 0, 2**bits - 1, False, fused=True)
        return found

    x, step, zero = torch.randn(400), torch.tensor(0.1), torch.tensor(0.0)
    with ThreadPoolExecutor(4) as pool:
        for bits, found in zip(range(2, 6), pool.map(rounded, range(2, 6)), strict=True):
            torch.testing.assert_close(found, (10 * x).clamp(0, 2**bits - 1).round() / 10)


def test_what_is_no_plain_memory_comes_out_the_same() -> None:
    x, zero, step = torch.randn(600), torch.zeros(()), torch.tensor(0.2)
    grid = (step, zero, -8, 7, False)
    expected = kernels.round_forward(x, *grid)
    with fused():
        with pytest.raises((RuntimeError, NotImplementedError)):
            kernels.round_forward(x, torch.tensor(0.2, device="meta"), zero, -8, 7, False)
        each = torch.func.vmap(lambda s: functional.uniform_quantize(x, s, 0, -8, 7))
        torch.testing.assert_close(each(step.expand(3)), expected.expand(3, -1))
        scale = torch._neg_view(-step)
        assert torch.equal(kernels.round_forward(x, scale, zero, -8, 7, False), expected)
        nothing = kernels.round_forward(torch._efficientzerotensor(600), *grid)
        assert torch.equal(nothing, torch.zeros(600))
        turned = kernels.round_forward(torch._neg_view(x), step, zero, -8, 8, False)
        assert torch.equal(turned, kernels.round_forward(-x, step, zero, -8, 8, False))
        shaped = kernels.round_forward(x, step.reshape(1, 1), zero, -8, 7, False)
        assert torch.equal(shaped, expected.reshape(1, -1))
        meta = kernels.round_forward(
            x.to("meta"), *(each.to("meta") for each in grid[:2]), *grid[2:]
        )
        assert (meta.shape, meta.dtype, meta.is_meta) == (x.shape, x.dtype, True)
        for early in (False, True):
            written = make_fx(lambda x: kernels.round_forward(x, *grid), pre_dispatch=early)
            assert torch.equal(written(torch.ones(600))(x), expected)
