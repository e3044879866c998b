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
"""What else the targets are called: weights at their bits, with QuantizeLinear and DequantizeLinear
around each layer, is what runtimes call QDQ."""


def export(
    model: nn.Module,
    path: str | Path,
    samples: Split | Tensor | None = None,
    *,
    target: str = "qdq",
    **options: Any,
) -> Exported:
    """Write a model as an ONNX file, after running the file and finding it to be the same model.

    Args:
        model: Any model of images to logits, quantized or not; it is not changed.
        path: The new file.
        samples: Real ones to compare on: a split, whose test part is taken, or network inputs. By
            default those of the split that `train` or `forget` made the model on.
        target: "qdq" (also called "compact") stores weights at their bits; "fast" convolves in
            8-bit integers where weight and input are rounded.
        **options: Those of `export_onnx`, such as `preprocess=True`.

    Example:
        >>> exported = qu.export(result.model, "model.onnx", target="qdq")    # doctest: +SKIP
    """
    if samples is None:
        samples = made_on.get(model)
    if samples is None:
        raise UserError(
            "There are no samples to compare the file with the network on; give a split, or some "
            "network inputs, as the third argument."
        )
    return export_onnx(model, path, samples, target=TARGETS.get(target, target), **options)  # type: ignore[arg-type]


class CallableModule(ModuleType):
    """A package that can be called: the same name leads to the function and to what it rests on."""

    def __call__(self, *args: Any, **options: Any) -> Exported:
        """See `export`."""
        return export(*args, **options)
