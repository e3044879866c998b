"""`export_onnx`: exports a model to an ONNX file and verifies its outputs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.errors import Failure, UserError, unknown
from qunlearn.export.agreement import Agreement, outputs
from qunlearn.export.codes import weight_bits, with_codes
from qunlearn.export.extra import needed
from qunlearn.export.graph import clean, narrow, to_bytes, to_graph
from qunlearn.export.integer import in_integers
from qunlearn.export.network import FORMAT, KEY, OnnxNetwork
from qunlearn.methods.names import made_by
from qunlearn.quant import Quantizer
from qunlearn.runs.data import some_unseen
from qunlearn.runs.model_file import Header, load
from qunlearn.store.files import as_written, write_bytes
from qunlearn.store.run import Run
from qunlearn.training.inference import evaluating

Target = Literal["compact", "fast"]

MOST_SAMPLES = 2000
"""Maximum number of samples on which a file is compared with its model."""

LEAST_AGREEMENT = 99.5
"""Minimum top-1 agreement, in percent."""

OLDEST, SINCE = 21, {2: 25}
"""The oldest opset that is written, and the minimum opset of narrower integer types."""
NEWEST = 25


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        path: The file.
        bytes: Its size.
        target: The target, "compact" or "fast".
        opset: The ONNX opset that it needs.
        integer_convolutions: Number of convolutions computed in integers.
        convolutions: Number of all convolutions.
        agreement: Agreement of the file, run by ONNX Runtime, with the model.
    """

    path: Path
    bytes: int
    target: str
    opset: int
    integer_convolutions: int
    convolutions: int
    agreement: Agreement


def export_onnx(
    model: nn.Module,
    path: str | Path,
    samples: Split | Tensor,
    *,
    target: Target = "compact",
    preprocess: bool = False,
    most_samples: int = MOST_SAMPLES,
    least_agreement: float | None = None,
    opset: int | None = None,
    about: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Export a model to an ONNX file, after verifying that the file computes the same.

    Args:
        model: Any model of images to logits, quantized or not; it is not changed.
        path: The new file.
        samples: Samples to compare on: a split, whose test part is used, or network inputs.
        target: "compact" stores weights in 2, 4 or 8 bits; "fast" convolves in 8-bit integers
            where weight and input are quantized.
        preprocess: Include normalisation in the file, so that it takes pixels; needs a split.
        most_samples: Maximum number of samples to compare on.
        least_agreement: Minimum top-1 agreement in percent; 99.5 by default.
        opset: The ONNX opset; by default the oldest that supports the model.
        about: Further entries of the file's metadata.
        overwrite: Replace an existing file, once the new one is complete.

    Raises:
        UserError: If an argument is invalid, or the model cannot be exported.
        Failure: If the outputs differ too much; no file is written.

    Example:
        >>> exported = qu.export_onnx(model, "model.onnx", split)    # doctest: +SKIP
        >>> exported.agreement.top1                                  # doctest: +SKIP
        100.0
    """
    path = Path(path)
    if target not in get_args(Target):
        raise unknown("target", target, get_args(Target))
    for package in ("onnx", "onnxscript", "onnxruntime"):
        needed(package)
    check_free(path, overwrite)
    opset = _checked_opset(opset, weight_bits(model) if target == "compact" else {})
    if any(isinstance(q, Quantizer) and not q.initialised for q in model.modules()):
        raise UserError(
            "The model's quantizers are not initialised, so there are no integer codes to export; "
            "train the model, or calibrate it on a batch of training images."
        )
    inputs, described = _inputs(samples, most_samples)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with evaluating(model):
        expected = outputs(lambda part: _logits(model(part.to(device))), inputs)

    network = with_codes(model)
    example = inputs[:2] if len(inputs) > 1 else inputs.repeat(2, *[1] * (inputs.dim() - 1))
    if preprocess:
        if not isinstance(samples, Split):
            raise UserError("preprocess=True needs the mean and std of the data; give a split.")
        network = _Normalised(network, samples)
        example = samples.data.images[:1].repeat(2, 1, 1, 1)
    graph = to_graph(network, example, opset)
    convolutions = sum(node.op_type == "Conv" for node in graph.graph)
    integer = 0
    if target == "compact":
        narrow(graph, opset)
    else:
        integer = in_integers(graph.graph)
        clean(graph)
    stated = {"format": FORMAT, "target": target, "preprocessing": preprocess, **described}
    stated |= about or {}
    graph.metadata_props[KEY] = json.dumps(stated)
    exported = outputs(OnnxNetwork(to_bytes(graph)), inputs)
    agreement = Agreement.of(expected, exported)
    threshold = LEAST_AGREEMENT if least_agreement is None else least_agreement
    if not agreement.top1 >= threshold:
        raise Failure(
            f"The exported file does not match the model: {agreement}; at least {threshold:g} % "
            "must agree. No file was written."
        )
    graph.metadata_props[KEY] = json.dumps({**stated, "agreement": asdict(agreement)})
    content = to_bytes(graph)
    write_bytes(path, content)
    return Exported(path, len(content), target, opset, integer, convolutions, agreement)


def export_run(
    folder: Path,
    path: Path,
    *,
    data: Path | None = None,
    factory: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Exported:
    """Export the model of a run, with the run's identity in the file's metadata."""
    check_free(path, overwrite)
    run = Run.open(folder)
    model = load(folder, factory)
    header = Header.read(run.model_path)
    identity = {
        "name": folder.resolve().name,
        "model_sha256": run.info.model_sha256,
        "network": header.model.name,
        "method": made_by(run.info.method, run.info.revision),
    }
    split = some_unseen(run, options.get("most_samples", MOST_SAMPLES), data)
    about = {"run": identity}
    return export_onnx(model, path, split, about=about, overwrite=overwrite, **options)


def exported_from(file: Path, folder: Path) -> OnnxNetwork:
    """Open a file as a network; a file exported from another run is a `UserError`."""
    network = OnnxNetwork.open(file)
    with as_written(file):
        of = network.about.get("run", {}).get("model_sha256")
    if of != Run.open(folder).info.model_sha256:
        raise UserError(
            f"The file {str(file)!r} was not exported from {str(folder)!r}; name the run that it "
            "was exported from, or export that run again."
        )
    return network


def check_free(path: Path, overwrite: bool = False) -> None:
    """Raise unless a file can be written to `path`; `overwrite` allows replacing a file.

    Only a regular file is replaced, never a link, a folder or a device.
    """
    if os.path.lexists(path):
        if not overwrite:
            raise UserError(
                f"The output {str(path)!r} exists; name a new file with --out, or replace it with "
                "--overwrite."
            )
        if path.is_symlink() or not path.is_file():
            raise UserError(
                f"The output {str(path)!r} is not a regular file, and is not replaced; name "
                "another one with --out."
            )
    if not path.absolute().parent.is_dir():
        raise UserError(f"The folder {str(path.parent)!r} does not exist; create it first.")


def _checked_opset(opset: int | None, bits: Mapping[str, int]) -> int:
    fewest = min(bits, key=lambda name: bits[name], default=None)
    least = OLDEST if fewest is None else SINCE.get(bits[fewest], OLDEST)
    if opset is None:
        return least
    if opset < least:
        why = "the DequantizeLinear that is used here"
        if fewest is not None and bits[fewest] in SINCE:
            why = f"the {bits[fewest]}-bit weights of {fewest!r}"
        raise UserError(f"Opset {opset} is too old for {why}; choose {least} to {NEWEST}.")
    if opset > NEWEST:
        raise UserError(
            f"Opset {opset} is newer than the supported ones; choose {least} to {NEWEST}."
        )
    return opset


def _inputs(samples: Split | Tensor, most: int) -> tuple[Tensor, dict[str, Any]]:
    """The inputs for the comparison, and a description of the data for the metadata."""
    if isinstance(samples, Tensor):
        if not len(samples):
            raise UserError("There are no samples to compare on; give at least one.")
        return samples[:most].cpu().float(), {}
    data = samples.data
    index = samples.test if len(samples.test) else samples.held_out
    # Evenly spaced: some sources are sorted by class.
    index = index[torch.linspace(0, len(index) - 1, min(most, len(index))).round().long()]
    described = {
        "dataset": data.name,
        "classes": data.classes,
        "mean": data.mean,
        "std": data.std,
        "pixels": str(data.images.dtype).removeprefix("torch."),
    }
    return data.normalise(data.images[index]), described


def _logits(output: Any) -> Tensor:
    if not isinstance(output, Tensor) or output.dim() != 2:
        kind = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise UserError(
            f"The model's output is {kind}; return a matrix of logits, one row for each image."
        )
    return output.float().cpu()


class _Normalised(nn.Module):
    """Normalises pixels, then calls the model."""

    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, split: Split):
        super().__init__()
        self.model = model
        scale, shift = split.data.affine
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, images: Tensor) -> Any:
        """Pixels to logits."""
        return self.model(images.to(torch.float32) * self.scale + self.shift)
