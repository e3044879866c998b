"""Which method is best, as far as the seeds can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from qunlearn.study.table import NoiseFloor, TableRow


@dataclass(frozen=True)
class Ranking:
    """The two methods with the smallest AG, and which of them can be ranked.

    Attributes:
        first: The method with the smallest AG.
        second: The next one.
        ranked: How many of the two are better than all that follow, beyond chance.
        tied: The methods that the next one cannot be told from.
        because: Why not: there is a single seed, they are within the noise floor, or their
            intervals meet.
    """

    first: str
    second: str
    ranked: int
    tied: tuple[str, ...] = ()
    because: Literal["one seed", "noise floor", "intervals"] | None = None

    def place(self, method: str) -> Literal["best", "runner-up"] | None:
        """A method's place, if it can be told."""
        if method == self.first and self.ranked >= 1:
            return "best"
        return "runner-up" if method == self.second and self.ranked == 2 else None


def ranking(rows: Sequence[TableRow], floor: NoiseFloor | None) -> Ranking | None:
    """Rank the methods by their AG; None if there is a single one."""
    ordered = sorted(rows, key=lambda row: row.AG[0])
    if len(ordered) < 2:
        return None
    first, second = ordered[0].method, ordered[1].method
    if ordered[0].AG[1] is None:
        return Ranking(first, second, 0, because="one seed")
    for place in (0, 1):
        tied, because = _tied(ordered[place], ordered[place + 1 :], floor)
        if tied:
            return Ranking(first, second, place, tied, because)
    return Ranking(first, second, 2)


def _tied(
    row: TableRow, others: Sequence[TableRow], floor: NoiseFloor | None
) -> tuple[tuple[str, ...], Literal["noise floor", "intervals"]]:
    """The methods that come after and cannot be told from a row, and why."""
    smallest = floor.AG[0] if floor else 0.0
    near = tuple(other.method for other in others if other.AG[0] <= smallest)
    if near:
        return near, "noise floor"
    mean, half = row.AG
    high = mean + (half or 0.0)
    near = tuple(other.method for other in others if other.AG[0] - (other.AG[1] or 0.0) <= high)
    return near, "intervals"
