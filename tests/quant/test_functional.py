from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from quant import references as ref
from quant.references import BITS, agree, leaves, tensors
from torch import Tensor

from qunlearn.quant import functional as F
from qunlearn.quant.limits import SHARPEST, SMALLEST_SCALE, SOFTEST

SCALES = st.sampled_from([0.003, 0.1, 0.25, 1.7])


@given(x=tensors(), bits=BITS, signed=st.booleans(), scale=SCALES, channels=st.booleans())
def test_lsq_has_the_gradients_of_its_straight_through_composition(
    x: Tensor, bits: int, signed: bool, scale: float, channels: bool
) -> None:
    low, high = F.code_range(bits, signed)
    shape = (x.shape[0],) + (1,) * (x.dim() - 1) if channels else ()
    scales = scale * torch.linspace(1, 2, math.prod(shape), dtype=torch.float64).reshape(shape)
    zero = torch.tensor(0.0, dtype=torch.float64)
    one, other = leaves(x, scales), leaves(x, scales)
    agree(F.uniform_quantize(*one, 0, low, high), one, ref.uniform(*other, zero, low, high), other)


@given(x=tensors(), bits=BITS, scale=SCALES, share=st.floats(-1.5, 0.5))
def test_lsq_plus_has_the_gradients_of_its_straight_through_composition(
    x: Tensor, bits: int, scale: float, share: float
) -> None:
    low, high = F.code_range(bits, signed=False)
    offset = share * scale * high

    def ours(x: Tensor, s: Tensor, beta: Tensor) -> Tensor:
        return F.offset_quantize(x, s, beta, low, high)

    def reference(x: Tensor, s: Tensor, beta: Tensor) -> Tensor:
        return ref.uniform(x, s, ref.zero_point(beta, s, low, high), low, high)

    one, other = leaves(x, scale, offset), leaves(x, scale, offset)
    agree(ours(*one), one, reference(*other), other)


@given(x=tensors(), bits=BITS, signed=st.booleans(), scale=SCALES)
def test_lsq_by_the_published_formula_one_number_at_a_time(
    x: Tensor, bits: int, signed: bool, scale: float
) -> None:
    low, high = F.code_range(bits, signed)
    values, s = leaves(x, scale)
    output = F.uniform_quantize(values, s, 0, low, high)
    to_x, to_scale = torch.autograd.grad(output.sum(), (values, s))
    expected = 0.0
    for number, rounded, slope in zip(x.flatten(), output.flatten(), to_x.flatten(), strict=True):
        v = number.item() / scale
        if v < low or v > high:
            code = low if v < low else high
            expected += code
            assert slope == 0
        else:
            code = round(v)
            expected += code - v
            assert slope == 1
        assert rounded.item() == pytest.approx(code * scale)
    assert to_scale.item() == pytest.approx(expected)


def test_lsq_plus_terms_at_the_clips() -> None:
    # Codes 0..3, zero at code 1 (β = -0.9 is snapped to -1): the grid is -1, 0, 1, 2.
    x, s, beta = leaves(torch.tensor([-5.0, 0.3, 5.0]), 1.0, -0.9)
    output = F.offset_quantize(x, s, beta, 0, 3)
    assert output.tolist() == [-1, 0, 2]
    for element, (to_x, to_s, to_beta) in enumerate(
        [
            (0, (0 - 1) - (-0.9), 1),  # k - z, and z itself moves with s by β/s²
            (1, 1 - 1.3, 0),  # round(v) - v
            (0, (3 - 1) - (-0.9), 1),
        ]
    ):
        found = torch.autograd.grad(output[element], (x, s, beta), retain_graph=True)
        assert found[0].sum().item() == to_x
        assert found[1].item() == pytest.approx(to_s)
        assert found[2].item() == to_beta


def test_ties_round_to_even_and_a_value_on_a_clip_is_inside() -> None:
    x, s = leaves(torch.tensor([-1.0, -0.75, 0.25, 0.75, 1.0, 1.5, 1.75]), 0.5)
    output = F.uniform_quantize(x, s, 0, -2, 3)
    assert output.tolist() == [-1, -1, 0, 1, 1, 1.5, 1.5]
    to_x, to_s = torch.autograd.grad(output.sum(), (x, s))
    assert to_x.tolist() == [1, 1, 1, 1, 1, 1, 0]
    # on the grid 0; a tie moves by half a code to the even one; beyond the clip 3
    assert to_s.item() == sum([0, -0.5, -0.5, 0.5, 0, 0, 3])


@given(x=tensors(), bits=BITS, signed=st.booleans(), alpha=st.sampled_from([0.01, 1.3, 6.0]))
def test_pact_has_the_published_gradients(x: Tensor, bits: int, signed: bool, alpha: float) -> None:
    one, other = leaves(x, alpha), leaves(x, alpha)
    agree(F.pact(*one, bits, signed), one, ref.pact(*other, bits, signed), other)


@pytest.mark.parametrize(
    ("x", "signed", "value", "to_x", "to_alpha"),
    [
        (0.0, False, 0, 1, 0),
        (-1e-9, False, 0, 0, 0),
        (6.0, False, 6, 0, 1),  # x ≥ α, as published
        (5.999, False, 6, 1, 0),
        (-6.0, True, -6, 0, -1),
        (-5.999, True, -6, 1, 0),
        (6.0, True, 6, 0, 1),
        (0.0, True, 0, 1, 0),
    ],
)
def test_pact_on_its_clips(
    x: float, signed: bool, value: float, to_x: float, to_alpha: float
) -> None:
    values, alpha = leaves(x, 6.0)
    output = F.pact(values, alpha, 3, signed)
    found = torch.autograd.grad(output, (values, alpha))
    assert (output.item(), *(g.item() for g in found)) == (value, to_x, to_alpha)


@given(weight=tensors(), bits=BITS)
def test_dorefa_by_the_published_formula_one_number_at_a_time(weight: Tensor, bits: int) -> None:
    (w,) = leaves(weight)
    output = F.dorefa(w, bits)
    (slopes,) = torch.autograd.grad(output.sum(), w)
    largest = max(max(abs(math.tanh(v)) for v in weight.flatten().tolist()), SMALLEST_SCALE)
    n = 2**bits - 1
    for v, rounded, slope in zip(weight.flatten(), output.flatten(), slopes.flatten(), strict=True):
        squeezed = math.tanh(v.item())
        # math.tanh and torch.tanh may differ in the last bit, which matters only on a tie
        exact = n * (squeezed / (2 * largest) + 0.5)
        if abs(exact % 1 - 0.5) > 1e-9:
            assert rounded.item() == pytest.approx(2 * round(exact) / n - 1)
        assert slope.item() == pytest.approx((1 - squeezed**2) / largest)


@given(
    x=tensors(),
    bits=BITS,
    lower=st.floats(-3, 0.5),
    width=st.floats(0.1, 40),
    alpha=st.floats(SHARPEST, SOFTEST),
    channels=st.booleans(),
)
def test_dsq_is_hard_forward_and_has_the_soft_curve_s_gradients(
    x: Tensor, bits: int, lower: float, width: float, alpha: float, channels: bool
) -> None:
    shape = (x.shape[0],) + (1,) * (x.dim() - 1) if channels else ()
    spread = torch.linspace(1, 2, math.prod(shape), dtype=torch.float64).reshape(shape)
    ends = F.snap_range(lower * spread, (lower + width) * spread, bits)
    assume(all(((x - end).abs() > 1e-9).all() for end in ends))  # there the last bit decides
    one, other = leaves(x, *ends, alpha), leaves(x, *ends, alpha)
    hard, soft = F.dsq(*one, bits), ref.dsq_soft(*other, bits)
    agree(ref.through(soft, hard), one, soft, other)
    step = (ends[1] - ends[0]) / (2**bits - 1)
    clipped = torch.minimum(torch.maximum(x, ends[0]), ends[1])
    assert ((hard - clipped).abs() <= step * (0.5 + 1e-9)).all()
    codes = (hard - ends[0]) / step
    torch.testing.assert_close(codes, codes.round())


def test_dsq_on_the_ends_of_its_range_is_inside() -> None:
    x, lower, upper, alpha = leaves(torch.tensor([0.0, 3.0]), 0.0, 3.0, 0.2)
    output = F.dsq(x, lower, upper, alpha, 2)
    assert output.tolist() == [0, 3]
    to_x, to_lower, to_upper, to_alpha = torch.autograd.grad(output.sum(), (x, lower, upper, alpha))
    # A level lies half a step from the middle, where the tanh is 1 - α = 0.8 and φ just 1.
    slope = math.log(2 / 0.2 - 1) * (1 - 0.8**2) / (2 * 0.8)
    assert to_x.tolist() == pytest.approx([slope, slope])
    # Both ends move with their level, against the value that stays behind.
    assert (to_lower.item(), to_upper.item()) == pytest.approx((1 - slope, 1 - slope))
    assert to_alpha.item() == pytest.approx(0)


@given(bits=BITS, lower=st.floats(-8, 8), width=st.floats(0.01, 16))
def test_a_snapped_range_has_zero_and_its_width(bits: int, lower: float, width: float) -> None:
    ends = leaves(lower, lower + width)
    low, high = F.snap_range(*ends, bits)
    step = width / (2**bits - 1)
    assert low.item() <= 1e-12
    assert high.item() >= -1e-12
    assert (high - low).item() == pytest.approx(width)
    assert (low.item() / step) == pytest.approx(round(low.item() / step), abs=1e-6)
    if lower <= 0 <= lower + width:
        assert abs(low.item() - lower) <= step * 0.5 + 1e-9
    # straight through: each end hands its gradient on unchanged
    found = torch.autograd.grad(3 * low + 5 * high, ends)
    assert [g.item() for g in found] == [3, 5]


@pytest.mark.parametrize("quantize", [F.uniform_quantize, F.offset_quantize])
def test_a_factor_scales_the_parameters_gradients_and_nothing_else(
    quantize: Callable[..., Tensor],
) -> None:
    x, s, place = leaves(torch.linspace(-5, 5, 40), 0.3, -0.7)
    outputs = [quantize(x, s, place, 0, 15, factor) for factor in (1.0, 0.25, torch.tensor(0.25))]
    assert torch.equal(outputs[0], outputs[1])
    plain, *scaled = (torch.autograd.grad(output.sum(), (x, s, place)) for output in outputs)
    for found in scaled:
        assert torch.equal(found[0], plain[0])
        assert [g.item() for g in found[1:]] == pytest.approx([g.item() / 4 for g in plain[1:]])
        assert all(g.item() for g in plain[1:])


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-30])
def test_a_collapsed_scale_gives_finite_values_and_gradients(scale: float) -> None:
    x = torch.tensor([-1e30, -1.0, 0.0, 1e-12, 3.0, 1e30], requires_grad=True)
    s, alpha, minus = (torch.tensor(v, requires_grad=True) for v in (scale, 0.2, -0.5))
    outputs = {
        "lsq": F.uniform_quantize(x, s, 0, -8, 7),
        "lsq+": F.offset_quantize(x, s, minus, 0, 15),
        "pact": F.pact(x, s, 4),
        "signed pact": F.pact(x, s, 4, signed=True),
        "dsq": F.dsq(x, *F.snap_range(minus, minus + s, 4), alpha, 4),
    }
    for name, output in outputs.items():
        assert torch.isfinite(output).all(), name
        found = torch.autograd.grad(output.sum(), (x, s, minus, alpha), allow_unused=True)
        assert all(torch.isfinite(g).all() for g in found if g is not None), name
        assert output[2] == 0, name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (4, 1)])
def test_other_precisions_come_back_as_they_went_in_and_are_rounded_in_float32(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x = torch.linspace(-1, 1, 404, dtype=torch.float64).reshape(4, 101).to(dtype)
    scale = torch.full(shape, 1 / 255.3)
    low, high = torch.full(shape, -1.0), torch.full(shape, 255 * 2.0)
    functions = {
        "lsq": lambda x: F.uniform_quantize(x, scale, 100.0, 0, 255),
        "pact": lambda x: F.pact(x, scale * 255, 8, signed=True),
        "dorefa": lambda x: F.dorefa(x, 8),
        "dsq": lambda x: F.dsq(x, *F.snap_range(low, high, 8), torch.tensor(0.2), 8),
    }
    for name, function in functions.items():
        assert function(x).dtype == dtype, name
        if dtype != torch.float64:
            assert torch.equal(function(x), function(x.float()).to(dtype)), name


def test_a_clips_gradient_is_summed_in_more_than_half_precision() -> None:
    alpha = torch.tensor(1.0, requires_grad=True)
    x = torch.full((400_000,), 2.0, dtype=torch.float16)
    F.pact(x, alpha, 4).backward(torch.ones_like(x))
    assert float(alpha.grad) == 400_000


# ---- least squares
