"""Low-bit quantization: arithmetic, quantizers, layers and the conversion of a model."""

from qunlearn.quant.batchnorm import preserve_running_stats, use_running_stats
from qunlearn.quant.convert import calibrate, quantize
from qunlearn.quant.describe import describe
from qunlearn.quant.fuse import fused, why_not
from qunlearn.quant.layers import weight_cache
from qunlearn.quant.quantizer import Family, Grid, Quantizer, collapsed, families
from qunlearn.quant.spec import LayerSpec, QuantSpec, known_quantizers

__all__ = [
    "Family",
    "Grid",
    "LayerSpec",
    "QuantSpec",
    "Quantizer",
    "calibrate",
    "collapsed",
    "describe",
    "families",
    "fused",
    "known_quantizers",
    "preserve_running_stats",
    "quantize",
    "use_running_stats",
    "weight_cache",
    "why_not",
]
