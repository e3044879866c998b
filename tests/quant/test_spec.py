from __future__ import annotations

import json
from typing import Any

import pytest

from qunlearn.errors import UserError
from qunlearn.quant import QuantSpec, known_quantizers


@pytest.mark.parametrize("field", ["weights", "activations", "first_last_bits"])
@pytest.mark.parametrize("bits", [1, 9, 0, -4, 16, True, False, "4", 4.0, 2.5])
def test_impossible_bits_are_refused(field: str, bits: Any) -> None:
    with pytest.raises(UserError, match=rf"{field} = {bits!r} .* 2 to 8"):
        QuantSpec(**{field: bits})


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, None])
def test_possible_bits(bits: int | None) -> None:
    spec = QuantSpec(weights=bits, activations=bits, first_last_bits=bits)
    assert (spec.weights, spec.activations, spec.first_last_bits) == (bits, bits, bits)


def test_32_bits_are_full_precision() -> None:
    assert QuantSpec(32, 32, first_last_bits=32) == QuantSpec(None, None, first_last_bits=None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantizer": "lqs+"}, "quantizer 'lqs[+]': did you mean 'lsq[+]'"),
        ({"quantizer": "what"}, "; known are .*lsq[+].*none"),
        ({"init": "msee"}, "did you mean 'mse'"),
        ({"overrides": {"fc": {"weight": 4}}}, "'fc'.*did you mean 'weights'"),
        ({"overrides": {"fc": {"weights": 9}}}, "weights = 9"),
        ({"overrides": {"fc": {"quantizer": "lqs"}}}, "did you mean 'lsq'"),
        ({"overrides": {"fc": 8}}, "'fc' is 8.*'weights': 8"),
    ],
)
def test_mistakes_are_refused_with_the_nearest_right_word(settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        QuantSpec(**settings)


def test_the_default_is_lsq_plus_at_four_bits() -> None:
    spec = QuantSpec()
    assert (spec.quantizer, spec.weights, spec.activations, spec.first_last_bits) == (
        "lsq+",
        4,
        4,
        8,
    )
    assert set(known_quantizers()) == {"lsq+", "lsq", "pact", "dsq", "none"}


def test_it_goes_through_a_file() -> None:
    spec = QuantSpec(2, None, "dsq", True, None, "mse", {"fc": None, "a.*": {"weights": 3}})
    again = QuantSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert list(again.overrides) == ["fc", "a.*"]  # the later ones win, so their order counts


def test_an_unknown_key_in_a_file_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'per_channel'"):
        QuantSpec.from_dict({"perchannel": True})


@pytest.mark.parametrize(
    ("spec", "full"),
    [
        (QuantSpec(), False),
        (QuantSpec(quantizer="none"), True),
        (QuantSpec(None, None), True),
        (QuantSpec(None, None, overrides={"fc": None}), True),
        (QuantSpec(None, 4), False),
        (QuantSpec(4, None), False),
        (QuantSpec(None, None, overrides={"fc": {"weights": 4}}), False),
        (QuantSpec(quantizer="none", overrides={"fc": {"quantizer": "lsq"}}), False),
    ],
)
def test_full_precision(spec: QuantSpec, full: bool) -> None:
    assert spec.full_precision is full


def test_an_override_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"'0' does nothing.*'quantizer': 'lsq\+'"):
        QuantSpec(quantizer="none", overrides={"0": {"weights": 8}})
