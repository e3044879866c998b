from __future__ import annotations

import pytest
from data.toy_data import make_data

from qunlearn.data import ImageData


@pytest.fixture
def toy() -> ImageData:
    """40 training samples, ten of each class, and 8 test samples."""
    return make_data([k % 4 for k in range(40)], [k % 4 for k in range(8)])
