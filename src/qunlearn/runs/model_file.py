"""A model on disk: its weights, and in the header everything needed to build it again."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from qunlearn.errors import UserError
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, quantize
from qunlearn.store.limits import LARGEST
from qunlearn.store.run import Run
from qunlearn.store.typed import Json
from qunlearn.store.weights import read_header, read_tensors, write_weights

FORMAT = 1
OWN = "own network"
"""What a network is called that was saved from Python without saying what builds it."""


@dataclass(frozen=True)
class Header:
    """What stands in the header of `model.safetensors`; `split` is the whole manifest."""

    model: ModelSpec
    quant: QuantSpec
    dataset: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    split: str

    def to_dict(self) -> Json:
        """The header as plain values."""
        # Packed, because a header has a limit, and a manifest has a line for each sample.
        packed = base64.b64encode(zlib.compress(self.split.encode())).decode()
        return {"format": FORMAT, **asdict(self), "split": packed}

    @classmethod
    def read(cls, path: Path) -> Header:
        """The header of the model at `path`, or one sentence about what is wrong with it."""
        values = read_header(path)
        if values.get("format") != FORMAT:
            raise UserError(
                f"The model {str(path)!r} has format {values.get('format')!r}, this qunlearn reads "
                f"{FORMAT}; use the version of qunlearn that wrote it."
            )
        try:
            return cls(
                model=ModelSpec(**values["model"]),
                quant=QuantSpec.from_dict(values["quant"]),
                dataset=str(values["dataset"]),
                classes=tuple(map(str, values["classes"])),
                mean=tuple(map(float, values["mean"])),
                std=tuple(map(float, values["std"])),
                split=_unpacked(values["split"]),
            )
        except UserError as error:
            raise UserError(f"The header of {str(path)!r} is damaged: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, zlib.error):
            raise UserError(
                f"The header of {str(path)!r} is damaged; restore the file from a copy."
            ) from None


def _unpacked(text: str) -> str:
    decompressor = zlib.decompressobj()
    unpacked = decompressor.decompress(base64.b64decode(text, validate=True), LARGEST["split.json"])
    if not decompressor.eof:
        raise ValueError("the manifest is cut off, or larger than any can be")
    return unpacked.decode()


def save(run: Run, model: nn.Module, header: Header) -> None:
    """Keep a model in a run, with the manifest of what it was trained on inside the file."""
    write_weights(run.model_path, model.state_dict(), header.to_dict())


def load(
    path: str | Path, factory: str | None = None, *, model: nn.Module | None = None
) -> nn.Module:
    """The model of a run folder, in eval mode, with outputs identical to those it was saved with.

    Args:
        path: The run folder.
        factory: The `package.module:factory` that built the model, where it was not one of
            qunlearn's own. A file never decides which code is run: you must say it again.
        model: Instead of a factory, your own network as it is before `quantize`, whatever its
            weights; it is quantized and filled in place.

    Example:
        >>> model = load("runs/original")  # doctest: +SKIP
    """
    run = Run.open(Path(path))
    header = check_manifest(run)
    if model is not None:
        if factory is not None:
            raise UserError("factory= and model= both say what the network is; give one of them.")
        model = quantize(model, header.quant)
        load_weights(model, tensors_of(run), run.model_path)
        return model.eval()
    spec = spec_of(header, factory, str(path))
    tensors = tensors_of(run)
    check_size(spec, tensors, run.model_path)
    model = quantize(spec.build(), header.quant)
    load_weights(model, tensors, run.model_path)
    return model.eval()


def check_manifest(run: Run) -> Header:
    """The header of a run's model, if the manifest in it is the run's."""
    header = Header.read(run.model_path)
    if header.split != run.split:
        raise UserError(
            f"The manifest {str(run.path / 'split.json')!r} is not the one that the model carries; "
            "restore the file from a copy."
        )
    return header


def tensors_of(run: Run) -> dict[str, Tensor]:
    """The weights of a run, checked against the checksum that was taken when it was finished."""
    run.check_model()
    return read_tensors(run.model_path)


def spec_of(header: Header, factory: str | None, where: str) -> ModelSpec:
    """How to build a header's network; a factory must have been named by the user."""
    spec = header.model
    if spec.name == OWN:
        if factory is None:
            raise UserError(
                f"The model of {where!r} is a network of your own, saved from Python without a "
                "factory; name the function that builds it with --model package.module:function "
                "(in Python: model=, the network itself)."
            )
        return replace(spec, name=factory)
    if spec.is_factory:
        if factory is None:
            raise UserError(
                f"The model of {where!r} was built by {spec.name!r}; to allow running that code, "
                f"say so with --model {spec.name} (in Python: factory={spec.name!r})."
            )
        spec = replace(spec, name=factory)
    return spec


def check_size(spec: ModelSpec, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise if a file's header asks for a larger network than the file has weights for.

    Asked before the network is built, or a small file could fill the memory.
    """
    if spec.is_factory:
        return  # code that the user named decides what it builds
    with torch.device("meta"):  # shapes without memory
        needed = sum(p.numel() for p in spec.build().parameters())
    if needed > sum(tensor.numel() for tensor in tensors.values()):
        raise _misfit(path, f"a network of {needed:,} weights is described, and fewer are there")


def is_quantized(tensors: Mapping[str, Tensor]) -> bool:
    """Whether a state dict is that of a quantized model."""
    return any(name.endswith("_quantizer.initialised") for name in tensors)


def model_with(
    spec: ModelSpec, quant: QuantSpec, tensors: Mapping[str, Tensor], path: Path
) -> nn.Module:
    """The model with a state dict in it: of the full-precision model, or of the quantized one."""
    model = spec.build()
    if is_quantized(tensors):
        if quant.full_precision:
            raise UserError(
                f"The weights in {str(path)!r} are quantized; say how with --weight-bits, "
                "--act-bits and --quantizer."
            )
        model = quantize(model, quant)
        load_weights(model, tensors, path)
        return model
    load_weights(model, tensors, path)
    return quantize(model, quant)


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load a state dict, every tensor of it and nothing else, or say what does not fit."""
    state = model.state_dict()
    for name, tensor in tensors.items():
        if name not in state:
            raise _misfit(path, f"it has {name!r}, which the model does not")
        if tensor.shape != state[name].shape:
            raise _misfit(path, f"{name!r} is {list(tensor.shape)}, not {list(state[name].shape)}")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise _misfit(path, f"{name!r} has NaN or infinite values")
    missing = next((name for name in state if name not in tensors), None)
    if missing is not None:
        raise _misfit(path, f"it lacks {missing!r}")
    model.load_state_dict(dict(tensors))


def _misfit(path: Path, reason: str) -> UserError:
    return UserError(
        f"The weights in {str(path)!r} do not fit the model: {reason}; "
        "use the file and the model that belong together."
    )
