"""`export_onnx`: from a model to a file that was seen to compute the same."""

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
"""On how many samples, at most, a file is compared with its model."""

LEAST_AGREEMENT = 99.5
"""The percentage of samples that must get the same class."""

OLDEST, SINCE = 21, {2: 25}
"""The oldest opset written, and those that codes of fewer bits came with."""
NEWEST = 25


@dataclass(frozen=True)
class Exported:
    """What an export came to.

    Attributes:
        path: The file.
        bytes: Its size.
        target: What it was made for.
        opset: The version of ONNX's operators that it needs.
        integer_convolutions: How many are computed in integers.
        convolutions: Of how many.
        agreement: How alike it and the model are, as run by ONNX Runtime.
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
    """Write a model as an ONNX file, after running the file and finding it to be the same model.

    Args:
        model: Any model of images to logits, quantized or not; it is not changed.
        path: The new file.
        samples: Real ones to compare on: a split, whose test part is taken, or network inputs.
        target: "compact" stores weights at their bits, in 2, 4 or 8; "fast" convolves in integers
            of 8 where weight and input are rounded.
        preprocess: Let the file normalise by itself, so that it takes pixels; needs a split.
        most_samples: How many samples to compare on, if there are as many.
        least_agreement: The percentage that must get the same class: 99.5 by default.
        opset: The version of ONNX's operators; by default the oldest that has what is needed.
        about: What else is to stand in the file's metadata.
        overwrite: Replace a file that is there, once the new one is complete.

    Raises:
        UserError: If it cannot be done as asked.
        Failure: If the file does not compute the same; nothing is kept.

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
            "The model's quantizers have not started yet, so that there are no codes to export; "
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
            raise UserError("To preprocess, the file must know mean and std; give a split.")
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
    found = outputs(OnnxNetwork(to_bytes(graph)), inputs)
    agreement = Agreement.of(expected, found)
    least = LEAST_AGREEMENT if least_agreement is None else least_agreement
    if not agreement.top1 >= least:
        raise Failure(
            f"The exported file is not the same model: {agreement}, and {least:g} % are wanted; "
            "nothing was kept."
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
    """The network in a file that was exported from this run."""
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
    """Raise unless a file could be written to `path`: a new one, or with `overwrite` in its place.

    Only a regular file is replaced: not what a link points to, nor a folder or a device.
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
        raise UserError(f"There is no folder {str(path.parent)!r} to write to; make it first.")


def _checked_opset(opset: int | None, bits: Mapping[str, int]) -> int:
    fewest = min(bits, key=lambda name: bits[name], default=None)
    least = OLDEST if fewest is None else SINCE.get(bits[fewest], OLDEST)
    if opset is None:
        return least
    if opset < least:
        why = "DequantizeLinear as it is written here"
        if fewest is not None and bits[fewest] in SINCE:
            why = f"the {bits[fewest]}-bit weights of {fewest!r}"
        raise UserError(f"Opset {opset} is too old for {why}; choose {least} to {NEWEST}.")
    if opset > NEWEST:
        raise UserError(f"Opset {opset} is newer than any known here; choose {least} to {NEWEST}.")
    return opset


def _inputs(samples: Split | Tensor, most: int) -> tuple[Tensor, dict[str, Any]]:
    """What both models are run on, and what the file should say about it."""
    if isinstance(samples, Tensor):
        if not len(samples):
            raise UserError("There are no samples to compare on; give some.")
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
            f"The model's output is {kind}; export needs one row of logits for each image."
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
