"""An exact and fast support vector machine on one feature.

The standard attack is an SVC with the kernel $e^{-(x-z)^2}$ on single numbers. On an
interval that kernel has, to machine precision, an inner product of a few dozen features, so that
the dual problem has a low-rank matrix and an interior point method solves it in about twenty steps,
each linear in the number of samples. libsvm goes through pairs of samples instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SPACING = 0.15
"""Distance between landmarks of the feature map; it reproduces the kernel to 1e-13."""
FEWEST = 16
TOLERANCE = 1e-6
SLOPE_TOLERANCE = 1e-4  # libsvm stops at 1e-3
STEPS = 200
ROUNDING = 1e-9
"""A decision this near to zero is zero: its sign would depend on the processor."""


@dataclass(frozen=True)
class OneFeatureSvc:
    """The decision function of a trained machine: positive means the first class."""

    low: float
    high: float
    weights: Array
    bias: float

    def decide(self, x: Array) -> Array:
        """The decision value of each number, which must lie in the training interval."""
        decision: Array = kernel_features(x, self.low, self.high) @ self.weights + self.bias
        return np.where(np.abs(decision) < ROUNDING, 0.0, decision)


def fit(first: Array, second: Array, low: float, high: float, c: float = 3.0) -> OneFeatureSvc:
    """Train to separate two classes of numbers; all later inputs must lie in [`low`, `high`].

    Solves the same problem as `sklearn.svm.SVC(C=c, gamma=1)`. Equal numbers of one class become
    one weighted sample.

    >>> machine = fit(np.array([0.9, 0.8]), np.array([0.1, 0.2]), 0.0, 1.0)
    >>> machine.decide(np.array([1.0, 0.0])) > 0
    array([ True, False])
    """
    values, counts = zip(*(np.unique(each, return_counts=True) for each in (first, second)))  # noqa: B905
    x = np.concatenate(values)
    sides = np.repeat([1.0, -1.0], [len(each) for each in values])
    features = kernel_features(x, low, high)
    limits = c * np.concatenate(counts).astype(float)
    weights = _solve(features * sides[:, None], sides, limits)
    return OneFeatureSvc(low, high, weights, _bias(features @ weights, sides, limits))


def kernel_features(x: Array, low: float, high: float) -> Array:
    """Features whose inner products are the kernel on [low, high]."""
    landmarks = np.linspace(low, high, max(FEWEST, int((high - low) / SPACING) + 2))
    values, vectors = np.linalg.eigh(_kernel(landmarks, landmarks))
    significant = values > 1e-13 * values[-1]
    features: Array = _kernel(x, landmarks) @ (
        vectors[:, significant] / np.sqrt(values[significant])
    )
    return features


def _kernel(x: Array, z: Array) -> Array:
    kernel: Array = np.exp(-np.square(x[:, None] - z[None, :]))
    return kernel


def _bias(decisions: Array, sides: Array, limits: Array) -> float:
    """The optimal bias for given weights; of an optimal interval the middle, as in libsvm.

    The loss is piecewise linear in the bias, with a corner where each sample reaches its margin.
    """
    corners = sides - decisions
    order = np.argsort(corners)
    # To the left of all corners every sample of the first class pulls upwards, and none down.
    slopes = np.cumsum(limits[order]) - limits[sides > 0].sum()
    flat = 1e-9 * limits.sum()
    first = int(np.argmax(slopes >= -flat))
    last = int(np.argmax(slopes > flat)) if (slopes > flat).any() else len(slopes) - 1
    return float((corners[order[first]] + corners[order[last]]) / 2)


def _solve(signed: Array, sides: Array, limits: Array) -> Array:
    """The weights that minimise ½|w|² + Σ limitᵢ·max(0, 1 - zᵢᵀw - sideᵢ·bias), over any bias.

    Mehrotra's predictor-corrector method on the conditions of optimality: `a` are the multipliers
    of the samples, between 0 and their limits; `lower` and `upper` those of these two bounds. The
    equations of a step are reduced to the weights and the bias, which are few.
    """
    z = np.column_stack([signed, sides])  # the bias is one more weight, without regularisation
    regularised = np.append(np.ones(signed.shape[1]), 0.0)
    w = np.zeros(z.shape[1])
    a, slack = 0.5 * limits, 0.5 * limits
    lower, upper = np.ones_like(a), np.ones_like(a)
    for _ in range(STEPS):
        balance = regularised * w - a @ z
        slope = z @ w - 1 - lower + upper
        gap = lower @ a + upper @ slack
        value = 1 + abs(0.5 * (regularised * w) @ w - a.sum())
        if (
            gap < TOLERANCE * value
            and np.abs(slope).max() < SLOPE_TOLERANCE
            and np.abs(balance).max() < TOLERANCE * value
        ):
            return w[:-1]
        diagonal = lower / a + upper / slack
        scaled = z / diagonal[:, None]
        matrix = np.diag(regularised) + z.T @ scaled
        one, two = -a * lower, -slack * upper  # predict: straight towards the solution
        for corrected in (False, True):
            rhs = -slope + one / a - two / slack
            dw = np.linalg.solve(matrix, rhs @ scaled - balance)
            da = (rhs - z @ dw) / diagonal
            dl, du = (one - lower * da) / a, (two + upper * da) / slack
            t = _length((da, a), (-da, slack), (dl, lower), (du, upper))
            if not corrected:
                after = (lower + t * dl) @ (a + t * da) + (upper + t * du) @ (slack - t * da)
                centre = (after / gap) ** 3 * gap / (2 * len(a))
                one, two = one + centre - da * dl, two + centre + da * du
        # The slack is carried along: limits - a would lose its digits near the bound.
        w, a, slack = w + t * dw, a + t * da, slack - t * da
        lower, upper = lower + t * dl, upper + t * du
    raise ArithmeticError(f"no solution to {TOLERANCE:g} in {STEPS} steps")


def _length(*moves: tuple[Array, Array]) -> float:
    """The longest step that keeps all values positive."""
    worst = max(float(np.max(-change / value)) for change, value in moves)
    return min(1.0, 0.995 / worst) if worst > 0 else 1.0
