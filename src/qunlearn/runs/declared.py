"""A Retrain that was trained elsewhere, declared as such, as a reference for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from qunlearn.data import ImageData, Split, read_ids
from qunlearn.data.choose import resolve
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import UserError, others
from qunlearn.metrics.exposure import exposure
from qunlearn.parts import part_name
from qunlearn.quant import QuantSpec
from qunlearn.runs.config import AdoptConfig
from qunlearn.runs.data import place_of
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.model_file import Header, is_quantized, spec_of
from qunlearn.runs.reference import check_present
from qunlearn.store.info import DeclaredCheck
from qunlearn.store.run import Run


def completed(config: AdoptConfig, run: Run, tensors: Mapping[str, Tensor]) -> AdoptConfig:
    """The settings, with what was not given taken from the run that it is the Retrain of.

    Bits are the run's if the weights are quantized; otherwise the Retrain is in full precision.
    """
    for flag, value in (("--held-out", config.held_out), ("--epochs", config.epochs)):
        if value:
            raise UserError(
                f"{flag} {value} does not go with --retrain-of: a Retrain is taken as it is, with "
                "the parts of the run; leave it out."
            )
    stated = config.model_fields_set
    moved = stated & DataConfig.model_fields.keys()
    data = place_of(run, **{name: getattr(config, name) for name in moved})
    header = Header.read(run.model_path)
    factory = config.model if "model" in stated else None
    spec = spec_of(header, factory, str(run.path))  # code has to be named by the user
    recorded: dict[str, object] = {"model": spec.name, "width": spec.width}
    if is_quantized(tensors):
        quant = header.quant
        recorded |= {
            "quantizer": quant.quantizer,
            "weight_bits": quant.weights or 32,
            "act_bits": quant.activations or 32,
            "first_last_bits": quant.first_last_bits or 32,
            "per_channel": quant.per_channel,
            "init": quant.init,
            "keep": tuple(name for name, bits in quant.overrides.items() if bits is None),
        }
    missing = {name: value for name, value in recorded.items() if name not in stated}
    return AdoptConfig.parse(config.to_dict() | data.to_dict() | missing)


def declared_split(config: AdoptConfig, run: Run, data: ImageData) -> Split:
    """The run's own split, once the list of what the Retrain was trained on agrees with it."""
    split = Split.from_json(run.split, data, ManifestKey.read(run.path))
    if split.last is None:
        raise UserError(
            f"The run {str(run.path)!r} has forgotten nothing, so that there is no Retrain of it; "
            "name one that `qunlearn forget` wrote."
        )
    check_present(run, split)
    for name, ours in (("mean", split.data.mean), ("std", split.data.std)):
        if getattr(config, name) not in (None, ours):
            raise UserError(
                f"--{name} is not that of the run {str(run.path)!r}, {ours}, and both are measured "
                "on the same inputs; train the Retrain with the run's normalisation."
            )
    if config.trained_on is not None:
        _check_list(read_ids(config.trained_on, config.column), split, run)
    return split


def _check_list(trained_on: Sequence[str], split: Split, run: Run) -> None:
    """Raise unless the listed samples are those that the run retains."""
    listed = resolve(split.data, trained_on, "trained_on")
    ids = split.data.ids
    forgotten = [ids[row] for row in listed[torch.isin(listed, split.forgotten)].tolist()]
    if forgotten:
        and_others = f", as are {others(forgotten)}" if forgotten[1:] else ""
        raise UserError(
            f"The sample {forgotten[0]!r} is in --trained-on{and_others}, and was to be forgotten: "
            "this is no Retrain; declare a network that was trained without what is forgotten."
        )
    if not torch.equal(listed.sort().values, split.retain):
        raise UserError(
            f"--trained-on names {len(listed):,} samples, and not the {len(split.retain):,} that "
            f"{str(run.path)!r} retains; declare a network that was trained on those."
        )


def check_unseen(margins: Mapping[str, Tensor], run: Run, quant: QuantSpec) -> DeclaredCheck:
    """What is on record about a declared Retrain; raises if what was forgotten looks trained on.

    Args:
        margins: Its confidences on each part (see `margin`).
        run: What it is the Retrain of.
        quant: Its bits.
    """
    verdicts: dict[str, str] = {}
    test = margins.get("test", torch.zeros(0))
    for part in margins.keys() - {"retain", "test", "test_forgotten"}:
        verdicts[part] = exposure(margins["retain"], margins[part], test).verdict
        if verdicts[part] in ("trained on", "swapped"):
            raise UserError(
                f"The samples that are {part_name(part)} look trained on: confidence on them is "
                "as on the retained ones, and higher than on the test part, so that this is no "
                "Retrain; declare a network that was trained without them."
            )
    return DeclaredCheck(verdicts, Header.read(run.model_path).quant == quant)
