"""The quantization spec: which layers are quantized and how; it is saved with the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, get_args

from qunlearn.errors import UserError, unknown
from qunlearn.quant import dsq, lsq, pact  # noqa: F401  (they register themselves)
from qunlearn.quant.quantizer import Initialisation, families

FULL = 32
"""The number of bits that stands for full precision on the command line and in files."""


def known_quantizers() -> list[str]:
    """The names that `QuantSpec.quantizer` may have."""
    return [*families, "none"]


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern matches a name or the name of a module that contains it.

    >>> covers("layer?", "layer4.conv"), covers("*.conv", "layer4.conv"), covers("conv", "conv2")
    (True, True, False)
    """
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[: i + 1]), pattern) for i in range(len(parts)))


def checked_bits(bits: int | None, what: str) -> int | None:
    """The validated number of bits: 2 to 8, or None (also for 32) for full precision."""
    if bits is None or bits == FULL:
        return None
    if not isinstance(bits, int) or not 2 <= bits <= 8:
        raise UserError(
            f"{what} = {bits!r} is invalid: choose 2 to 8 bits, or {FULL} for full precision."
        )
    return bits


@dataclass(frozen=True)
class QuantSpec:
    """The bit widths and the quantizer of a model.

    Args:
        weights: Bits of the weights, 2 to 8; None (or 32) for full precision.
        activations: Bits of each layer's input; None (or 32) for full precision.
        quantizer: "lsq+", "lsq", "pact", "dsq" or "none".
        per_channel: One scale for each output channel of a weight instead of one for all.
        first_last_bits: Bits of the first and the last layer; None (or 32) for full precision.
            A side that is in full precision everywhere stays so there too.
        init: "published", or "mse" for least squares (better at 2 bits).
        overrides: For layers by name pattern (`*` and `?` are wild; the name of a module stands for
            all layers in it): other values of the fields above, as in `{"layer4": {"weights": 8}}`;
            None leaves such layers in full precision. If several patterns match, later ones win.

    Example:
        >>> QuantSpec(weights=2, activations=None).for_layer("stem", edge=True).weights
        8
    """

    weights: int | None = 4
    activations: int | None = 4
    quantizer: str = "lsq+"
    per_channel: bool = False
    first_last_bits: int | None = 8
    init: Initialisation = "published"
    overrides: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.quantizer not in known_quantizers():
            raise unknown("quantizer", self.quantizer, known_quantizers())
        if self.init not in get_args(Initialisation):
            raise unknown("initialisation", self.init, get_args(Initialisation))
        for name in ("weights", "activations", "first_last_bits"):
            object.__setattr__(self, name, checked_bits(getattr(self, name), name))
        for pattern, changes in self.overrides.items():
            if not isinstance(changes, Mapping | None):
                raise UserError(
                    f"The override for {pattern!r} is {changes!r}: give settings, such as "
                    "{'weights': 8}, or None to leave such layers alone."
                )
            self._with(changes or {}, pattern)
            if changes and self.quantizer == "none" and "quantizer" not in changes:
                raise UserError(
                    f"The override for {pattern!r} does nothing, because the quantizer is 'none'; "
                    "name one, as in {'quantizer': 'lsq+', 'weights': 8}."
                )

    @property
    def full_precision(self) -> bool:
        """Whether this spec quantizes nothing."""
        nothing = self.quantizer == "none" or (self.weights is None and self.activations is None)
        return nothing and not any(self.overrides.values())

    def leaves_alone(self, name: str) -> bool:
        """Whether an override excludes a module or parameter from quantization."""
        alone = False
        for pattern, changes in self.overrides.items():
            if covers(pattern, name):
                alone = changes is None or changes.get("quantizer") == "none"
        return alone

    def for_layer(self, name: str, edge: bool) -> LayerSpec | None:
        """The spec of one layer, `edge` if it is the first or the last; None for full precision."""
        if self.leaves_alone(name):
            return None
        spec = self
        if edge:
            # Full precision on a side stays so at the edges.
            spec = replace(
                self,
                weights=self.first_last_bits if self.weights else None,
                activations=self.first_last_bits if self.activations else None,
            )
        for pattern, changes in self.overrides.items():
            if changes and covers(pattern, name):
                spec = spec._with(changes, pattern)
        if spec.quantizer == "none" or (spec.weights is None and spec.activations is None):
            return None
        return LayerSpec(
            spec.weights, spec.activations, spec.quantizer, spec.per_channel, spec.init
        )

    def _with(self, changes: Mapping[str, Any], pattern: str) -> QuantSpec:
        allowed = [f.name for f in fields(LayerSpec)]
        for name in changes:
            if name not in allowed:
                raise unknown(f"setting in the override for {pattern!r}:", name, allowed)
        return replace(self, overrides={}, **changes)

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, as stored in files."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QuantSpec:
        """The spec from such a dictionary; an unknown key raises UserError."""
        names = [f.name for f in fields(cls)]
        for name in values:
            if name not in names:
                raise unknown("setting of a quantizer spec:", name, names)
        return cls(**values)


@dataclass(frozen=True)
class LayerSpec:
    """The quantization of one layer."""

    weights: int | None
    activations: int | None
    quantizer: str
    per_channel: bool
    init: Initialisation
