"""`qu.export(model, path)`, although `qunlearn.export` is a package."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.export.export import Exported, export_onnx
from qunlearn.training.made_on import made_on

TARGETS = {"qdq": "compact"}
"""Other names of targets: low-bit weights with QuantizeLinear and DequantizeLinear around each
layer are called QDQ by runtimes."""


def export(
    model: nn.Module,
    path: str | Path,
    samples: Split | Tensor | None = None,
    *,
    target: str = "qdq",
    **options: Any,
) -> Exported:
    """Export a model to an ONNX file, after verifying that the file computes the same.

    Args:
        model: Any model of images to logits, quantized or not; it is not changed.
        path: The new file.
        samples: Samples to compare on: a split, whose test part is used, or network inputs. By
            default the split that the model was trained on, or forgot samples of.
        target: "qdq" (also called "compact") stores weights at their bit width; "fast" convolves in
            8-bit integers where weight and input are quantized.
        **options: Options of `export_onnx`, such as `preprocess=True`.

    Example:
        >>> exported = qu.export(result.model, "model.onnx", target="qdq")    # doctest: +SKIP
    """
    if samples is None:
        samples = made_on.get(model)
    if samples is None:
        raise UserError(
            "The exported file cannot be verified without samples; give a split, or some network "
            "inputs, as the third argument."
        )
    return export_onnx(model, path, samples, target=TARGETS.get(target, target), **options)  # type: ignore[arg-type]


class CallableModule(ModuleType):
    """A callable package: `qu.export` is both the function and the package."""

    def __call__(self, *args: Any, **options: Any) -> Exported:
        """See `export`."""
        return export(*args, **options)
