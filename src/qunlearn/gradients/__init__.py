"""OEU's gradient projection, usable in any training loop."""

from qunlearn.gradients.groups import Granularity, parameter_layers
from qunlearn.gradients.projection import GradientProjector, LayerConflict, When

__all__ = ["GradientProjector", "Granularity", "LayerConflict", "When", "parameter_layers"]
