"""Few bits: the arithmetic, the quantizers, the layers and the conversion of a model."""

from qunlearn.quant.batchnorm import keeping_statistics, using_running_averages
from qunlearn.quant.convert import calibrate, quantize
from qunlearn.quant.describe import describe
from qunlearn.quant.fuse import fused, why_not
from qunlearn.quant.layers import rounding_once
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
    "keeping_statistics",
    "known_quantizers",
    "quantize",
    "rounding_once",
    "using_running_averages",
    "why_not",
]
