"""A conformance kit for authors of methods, quantizers, models and data sources.

Each function checks what the rest of the library relies on, and raises an `AssertionError` with a
sentence about the first thing that is not so. Our own plug-ins go through the same checks.
"""

from qunlearn.testing.methods import check_method
from qunlearn.testing.models import check_model
from qunlearn.testing.quantizers import check_quantizer
from qunlearn.testing.sources import check_source

__all__ = ["check_method", "check_model", "check_quantizer", "check_source"]
