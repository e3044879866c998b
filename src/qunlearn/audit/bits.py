"""Whether forgetting outlasts a change of bits.

A weight that unlearning has moved by less than a step keeps its code, and one that has just crossed
a border goes back over it on another grid. So the weights are rounded anew, to more bits and to
fewer, and what was forgotten is asked for again. Retrain, which has nothing to recover, is treated
the same: what changes there too is the rounding's doing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.metrics.gap import SCORES, average_gap, half_width
from qunlearn.metrics.membership import least_accuracy, weakest_attack
from qunlearn.quant import Quantizer, QuantSpec, families
from qunlearn.quant.convert import edge_layers
from qunlearn.quant.layers import QuantLayer
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import evaluate
from qunlearn.runs.model_file import Header, load
from qunlearn.runs.origin import origin_of
from qunlearn.runs.reference import check_present, check_reference, check_test, declared
from qunlearn.store.run import Run

FLOAT = 32
DAMAGED = 30.0
"""A network that loses so many points of RA by the rounding says nothing of what it remembers."""
UNTOLD = 10.0
"""If so many points may be chance, nothing can be told."""
SMALLEST = 2.0
"""Recoveries of so many points are not spoken of."""

Row = dict[str, float]


def audit_bits(
    path: Path,
    *,
    reference: Path | None = None,
    data: Path | None = None,
    factory: str | None = None,
    bits: Sequence[int] = (2, 3, 4, 5, 6, 7, 8, FLOAT),
) -> dict[str, Any]:
    """Look at a run that has forgotten in other bit widths; keeps what is found in its folder.

    Args:
        path: The run.
        reference: The run of Retrain on the same request, to be treated the same.
        data: Where the data is now, if it was moved: a folder or an .npz file.
        factory: The `package.module:factory` of a model that is not qunlearn's own.
        bits: The widths to round the weights to; 32 leaves them in full precision.

    Returns:
        `changed`: in percent, how many codes forgetting changed, of all weights (`all`) and of each
        of the `layers`; None if the run before is not at hand. `trained` and `rows`: FA, RA, TA and
        MIA with the trained bits, and by width; `attack_samples`: how many retained, and as many
        test samples MIA's attack learned from; `reference` the same of Retrain, with AG in the
        rows then. `verdict`: one sentence; `declared`: another, if Retrain was not made here.
    """
    run = Run.open(path)
    split = split_of(run, data)
    if split.last is None:
        raise UserError(
            f"The run {str(path)!r} has forgotten nothing; name one that `qunlearn forget` wrote."
        )
    quant = Header.read(run.model_path).quant
    if quant.full_precision:
        raise UserError(
            f"The run {str(path)!r} is in full precision, so that it has no bits to change; name "
            "a quantized one."
        )
    check_test(split)
    check_present(run, split)
    if reference is not None:
        check_reference(run, split, Run.open(reference))
        if Header.read(Run.open(reference).model_path).quant != quant:
            raise UserError(
                f"The reference {str(reference)!r} has other bits or another quantizer than the "
                "run, and cannot be treated the same; leave --reference out, or name a Retrain "
                "with the run's."
            )
    model = load(path, factory)
    if not codes_of(model):
        raise UserError(
            f"The weights of {str(path)!r} are in full precision, so that they have no bits to "
            "change; name a run with few-bit weights."
        )
    origin = origin_of(run)
    found: dict[str, Any] = {
        "changed": None if origin is None else changed_codes(load(origin.path, factory), model),
        "trained": {name: run.metrics[name] for name in SCORES},
        "rows": by_width(model, quant, split, bits),
        "attack_samples": min(len(split.retain), len(split.test)),
    }
    if reference is not None:
        mark = {
            "trained": {name: Run.open(reference).metrics[name] for name in SCORES},
            "rows": by_width(load(reference, factory), quant, split, bits),
        }
        found["reference"] = mark
        for width, row in found["rows"].items():
            row["AG"] = average_gap(row, mark["rows"][width])
        found["trained"]["AG"] = average_gap(found["trained"], mark["trained"])
        found |= declared(Run.open(reference))
    found["verdict"] = verdict(found, len(split.forget))
    run.write_audit("bits", found)
    return found


@torch.no_grad()
def changed_codes(before: nn.Module, after: nn.Module) -> dict[str, Any]:
    """The percentage of integer codes that differ between two models, in all and layer by layer."""
    then, now = codes_of(before), codes_of(after)
    moved = {name: int((now[name] != then[name]).sum()) for name in now}
    layers = {name: 100 * moved[name] / codes.numel() for name, codes in now.items()}
    total = sum(codes.numel() for codes in now.values())
    return {"all": 100 * sum(moved.values()) / total, "layers": layers}


def codes_of(model: nn.Module) -> dict[str, Tensor]:
    """The integer codes of each quantized weight, by the layer's name."""
    return {
        name: layer.weight_quantizer.grid(layer.weight).codes(layer.rounded())
        for name, layer in model.named_modules()
        if isinstance(layer, QuantLayer) and isinstance(layer.weight_quantizer, Quantizer)
    }


def by_width(
    model: nn.Module, quant: QuantSpec, split: Split, bits: Sequence[int]
) -> dict[str, Row]:
    """FA, RA, TA and MIA of a model with its weights rounded to each width."""
    rows = {}
    for width in bits:
        found = evaluate(requantized(model, quant, width), split)
        rows[str(width)] = {name: found[name] for name in (*SCORES, "attack_accuracy")}
    return rows


@torch.no_grad()
def requantized(model: nn.Module, quant: QuantSpec, bits: int) -> nn.Module:
    """A copy whose weights are rounded anew from the values underneath, by least squares.

    The first and the last layer go along only to full precision: they have bits of their own.
    Inputs are rounded as they were.
    """
    model = copy.deepcopy(model)
    layers = {n: m for n, m in model.named_modules() if isinstance(m, QuantLayer)}
    edges = edge_layers(model)
    for name, layer in layers.items():
        spec = quant.for_layer(name, edge=name in edges)
        if not isinstance(layer.weight_quantizer, Quantizer) or spec is None:
            continue
        if bits == FLOAT:
            layer.weight_quantizer = nn.Identity()
        elif name not in edges:
            family = families[spec.quantizer]
            anew = family.weights(bits, layer.weight, spec.per_channel, "mse")
            anew.to(layer.weight.device).initialise(layer.weight)
            layer.weight_quantizer = anew
    return model


def verdict(found: Mapping[str, Any], samples: int) -> str:
    """One sentence: whether what was forgotten comes back, and where most."""
    trained = found["trained"]
    allowed = {name: max(SMALLEST, half_width(trained[name], samples)) for name in SCORES}
    worst, chance, where, seen = 0.0, allowed["FA"], "", 0
    for width, row in found["rows"].items():
        if row["RA"] < trained["RA"] - DAMAGED:
            continue
        seen += 1
        for name, back in recovered(found, width).items():
            if back > 0 and (not where or back - allowed[name] > worst - chance):
                worst, chance, where = back, allowed[name], f"{name} {_named(width)}"
    beyond = "beyond what Retrain shows" if "reference" in found else "beyond that of new samples"
    usable = f"at the {seen} of {len(found['rows'])} widths that leave the network usable"
    if not seen:
        return "It cannot be told: no other width leaves the network usable."
    if chance > UNTOLD:
        return (
            f"It cannot be told: with {samples} forgotten samples, {chance:.1f} points may be "
            "chance."
        )
    if worst > chance:
        return (
            f"Forgetting comes undone: {where} gives {worst:.1f} points of it back, {beyond}, "
            f"where chance allows {chance:.1f}."
        )
    most = f"at most {worst:.1f} points come back, in {where}" if where else "nothing comes back"
    told = f"{most}, {beyond} ({chance:.1f} may be chance), {usable}."
    if "reference" not in found:
        return f"Other bits bring nothing back; whether it had forgotten takes a Retrain: {told}"
    if (ahead := trained["FA"] - found["reference"]["trained"]["FA"]) > allowed["FA"]:
        above = f"FA {ahead:.1f} points above Retrain's"
        return f"It had not wholly forgotten to begin with, {above}: {told}"
    return f"It stays forgotten: {told}"


def recovered(found: Mapping[str, Any], width: str) -> Row:
    """By how many points memory comes back: forgotten samples right again, or recognised again.

    It must be more than with the trained bits, and more than Retrain shows at that width, since
    rounding harms any network; without Retrain, more than new samples gain.
    """
    now, then = found["rows"][width], found["trained"]
    rise = now["FA"] - then["FA"]
    if "reference" not in found:
        return {"FA": rise - max(0.0, now["TA"] - then["TA"])}
    retrain = found["reference"]["rows"][width]
    back = {"FA": min(rise, now["FA"] - retrain["FA"])}
    accuracy = weakest_attack([now, retrain])
    if accuracy is None or accuracy >= least_accuracy(found["attack_samples"]):
        back["MIA"] = min(then["MIA"], retrain["MIA"]) - now["MIA"]
    return back


def _named(width: str) -> str:
    return "in full precision" if width == str(FLOAT) else f"at {width} bits"
