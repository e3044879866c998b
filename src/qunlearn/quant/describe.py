"""A summary of a model: layers, bits, scales, parameters and bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from qunlearn.quant.layers import QUANTIZED
from qunlearn.quant.quantizer import Quantizer
from qunlearn.quant.spec import FULL


@dataclass(frozen=True)
class LayerDescription:
    """One row of the table; `bytes` is the storage size at `weight_bits`."""

    name: str
    kind: str
    weight_bits: int
    act_bits: int
    weight_scale: float | None
    act_scale: float | None
    parameters: int
    bytes: int


@dataclass(frozen=True, repr=False)
class Description:
    """A model's layers; parameters outside of them, such as norms, are the last row, `others`.

    Sizes count the parameters and the weight scales, as a file would store them.
    """

    layers: tuple[LayerDescription, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters, without those of the quantizers."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def bytes(self) -> int:
        """The storage size of all layers."""
        return sum(layer.bytes for layer in self.layers)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_footer=True)
        sums = {"layer": "total", "parameters": f"{self.parameters:,}", "bytes": f"{self.bytes:,}"}
        for name in ("layer", "kind", "W", "A", "weight scale", "input scale", *list(sums)[1:]):
            side: Literal["left", "right"] = "left" if name in ("layer", "kind") else "right"
            table.add_column(name, sums.get(name, ""), justify=side, no_wrap=True)
        for layer in self.layers:
            table.add_row(
                layer.name,
                layer.kind,
                str(layer.weight_bits),
                str(layer.act_bits),
                _number(layer.weight_scale),
                _number(layer.act_scale),
                f"{layer.parameters:,}",
                f"{layer.bytes:,}",
            )
        # No markup, since names may have brackets; no colour or wrapping, since files may hold it.
        plain: dict[str, Any] = {"markup": False, "emoji": False, "color_system": None}
        console = Console(file=io.StringIO(), width=10_000, **plain)
        with console.capture() as captured:
            console.print(table)
        full = 4 * self.parameters
        share = f"{full / max(self.bytes, 1):.1f} times smaller than in 32 bits ({full:,} bytes)"
        return f"{captured.get()}{share}"


def describe(model: nn.Module) -> Description:
    """Describe a model layer by layer; print the result for a table.

    Example:
        >>> from qunlearn.quant import QuantSpec, quantize
        >>> model = quantize(nn.Sequential(nn.Linear(64, 10)), QuantSpec(first_last_bits=4))
        >>> describe(model).bytes   # 320 for the weight, 40 for the bias, 4 for the weight's scale
        364
    """
    rows: list[LayerDescription] = []
    counted: set[int] = set()
    for name, module in model.named_modules():
        if not any(isinstance(module, kind) for kind in QUANTIZED):
            continue
        parameters = [p for p in module.parameters(recurse=False) if id(p) not in counted]
        counted.update(map(id, parameters))
        weight, inputs = _quantizers(module)
        weight_bits = weight.bits if weight else FULL
        matrix = module.weight
        assert isinstance(matrix, Tensor)
        scales = weight.grid(matrix).scale if weight else None
        size = sum(
            -(-p.numel() * weight_bits // 8) if p is matrix else 4 * p.numel() for p in parameters
        )
        rows.append(
            LayerDescription(
                name=name or "(root)",
                kind=type(module).__name__.removeprefix("Quant"),
                weight_bits=weight_bits,
                act_bits=inputs.bits if inputs else FULL,
                weight_scale=float(scales.mean()) if scales is not None else None,
                act_scale=float(inputs.grid().scale.mean())
                if inputs and inputs.initialised
                else None,
                parameters=sum(p.numel() for p in parameters),
                bytes=size + (4 * scales.numel() if scales is not None else 0),
            )
        )
    for module in model.modules():
        if isinstance(module, Quantizer):
            counted.update(map(id, module.parameters()))
    others = sum(p.numel() for p in model.parameters() if id(p) not in counted)
    if others:
        rows.append(
            LayerDescription("others", "norms etc.", FULL, FULL, None, None, others, 4 * others)
        )
    return Description(tuple(rows))


def _quantizers(module: nn.Module) -> tuple[Quantizer | None, Quantizer | None]:
    quantizers = (
        getattr(module, "weight_quantizer", None),
        getattr(module, "activation_quantizer", None),
    )
    weight, inputs = (q if isinstance(q, Quantizer) else None for q in quantizers)
    return weight, inputs


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
