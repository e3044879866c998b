"""Which samples are meant: by share, by id, by class, by rule."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import torch
from torch import Tensor

from qunlearn.data.dataset import ImageData, by_class, first_repeated
from qunlearn.data.draw import shuffled
from qunlearn.data.rules import Comparison, as_number, parse_rule
from qunlearn.errors import UserError, unknown


def check_share(share: float, purpose: str) -> None:
    """Refuse a share that is not between 0 and 1."""
    if not 0 < share < 1:  # NaN fails this too
        raise UserError(f"The share to {purpose} is {share}; choose one between 0 and 1.")


def draw_held_out(data: ImageData, share: float, seed: int) -> Tensor:
    """Draw this share of each class's training samples."""
    check_share(share, "hold out")
    drawn: list[int] = []
    training = (~data.is_test).nonzero().flatten().tolist()
    for label, rows in by_class(training, data.labels).items():
        order = shuffled([data.ids[row] for row in rows], "held-out", seed, label)
        # At least one of each class, or unseen data of that class has no example; but never all.
        size = min(max(round(share * len(rows)), 1), len(rows) - 1)
        drawn += [rows[position] for position in order[:size]]
    return torch.tensor(sorted(drawn), dtype=torch.int64)


def listed(ids: Sequence[str], argument: str) -> Sequence[str]:
    """Refuse a list of ids that is none, or that names a sample twice."""
    if isinstance(ids, str):
        raise UserError(f"{argument} is the text {ids!r}; give a list of ids, such as [{ids!r}].")
    for name in ids:
        if not isinstance(name, str):
            raise UserError(
                f"The id {name!r} is not text; ids are text, such as 'train/42'. For positions, "
                "use data.ids[position]."
            )
    repeated = first_repeated(ids)
    if repeated is not None:
        raise UserError(f"The id {repeated!r} is listed twice; list each sample once.")
    return ids


def resolve(data: ImageData, ids: Sequence[str], argument: str) -> Tensor:
    """Where the listed samples are, in the order of the list."""
    return data.index_of(listed(ids, argument))


def class_number(data: ImageData, name: int | str) -> int:
    """The number of a class that is given by number or name."""
    if isinstance(name, str) and name in data.classes:
        return data.classes.index(name)
    plain = isinstance(name, (int, str)) and not isinstance(name, bool)
    number = int(name) if plain and str(name).isdecimal() else -1
    if not 0 <= number < data.num_classes:
        numeric = str(name).lstrip("-").isdecimal()
        near = [] if numeric else difflib.get_close_matches(str(name), data.classes, 3, 0.4)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise UserError(
            f"There is no class {name!r} in {data.name}: {hint}Classes have the numbers 0 to "
            f"{data.num_classes - 1} and names such as {data.classes[0]!r}."
        )
    return number


def matching(data: ImageData, rule: str, rows: Tensor) -> list[int]:
    """Those of the rows that a rule on metadata, or on the sample's `class`, names."""
    parsed = parse_rule(rule)
    used = parsed.columns()
    columns = dict(data.metadata)
    if "class" in used and "class" not in columns:
        columns["class"] = tuple(data.classes[label] for label in data.labels.tolist())
    for column in sorted(used - columns.keys()):
        if not data.metadata:
            raise UserError(
                f"The rule {rule!r} speaks of {column!r}, but no metadata is known; join a CSV "
                "file with --metadata FILE or data.join(FILE)."
            )
        raise unknown("metadata column", column, columns)
    for comparison in parsed.comparisons():
        _refuse_mixed_order(comparison, [columns[comparison.column][row] for row in rows.tolist()])
    return [
        row
        for row in rows.tolist()
        if parsed.matches({column: columns[column][row] for column in used})
    ]


def _refuse_mixed_order(comparison: Comparison, cells: Sequence[str]) -> None:
    """Numbers and texts have no order among each other: `user < front` would mean nothing."""
    known = [cell for cell in cells if cell]
    numeric = all(as_number(cell) is not None for cell in known)
    text = isinstance(comparison.value, str)
    if comparison.sign in ("==", "!=") or not known or numeric != text:
        return
    column, value = comparison.column, comparison.value
    holds = "numbers" if numeric else "texts"
    raise UserError(
        f"The column {column!r} holds {holds}, which have no order with {value!r}; compare it with "
        f"{'a number' if numeric else 'a text in quotes'}."
    )
