"""Selecting samples: by fraction, by id, by class, by rule."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from qunlearn.data.dataset import ImageData, by_class, first_repeated
from qunlearn.data.draw import shuffled
from qunlearn.data.rules import Comparison, as_number, parse_rule
from qunlearn.errors import UserError, unknown


def check_share(share: float, purpose: str) -> None:
    """Raise unless a fraction lies between 0 and 1."""
    if not 0 < share < 1:  # NaN fails this too
        raise UserError(f"The fraction to {purpose} is {share}; choose one between 0 and 1.")


def draw_held_out(data: ImageData, share: float, seed: int, test: bool = False) -> Tensor:
    """Draw this fraction of each class's training samples, or of its `test` samples."""
    check_share(share, "hold out")
    drawn: list[int] = []
    candidates = data.is_test if test else ~data.is_test
    for label, rows in by_class(candidates.nonzero().flatten().tolist(), data.labels).items():
        order = shuffled([data.ids[row] for row in rows], "held-out", seed, label)
        # At least one per class, as an example of unseen data, but never all.
        size = min(max(round(share * len(rows)), 1), len(rows) - 1)
        drawn += [rows[position] for position in order[:size]]
    return torch.tensor(sorted(drawn), dtype=torch.int64)


def check_texts(ids: Sequence[str], argument: str) -> None:
    """Raise unless the ids are a list of strings."""
    if isinstance(ids, str):
        raise UserError(f"{argument} is a string, {ids!r}; give a list of ids, such as [{ids!r}].")
    for name in ids:
        if not isinstance(name, str):
            raise UserError(
                f"The id {name!r} is not a string; ids are strings, such as 'train/42'. For "
                "positions, use data.ids[position]."
            )


def resolve(data: ImageData, ids: Sequence[str], argument: str) -> Tensor:
    """The indices of the listed samples, in the order of the list; repeated ids are an error."""
    check_texts(ids, argument)
    repeated = first_repeated(ids)
    if repeated is not None:
        raise UserError(f"The id {repeated!r} is listed twice; list each sample once.")
    return data.index_of(ids)


USABLE = "usable"
TWICE, FORGOTTEN, RETIRED = "listed twice", "already forgotten", "already retired"
UNUSED, UNKNOWN = "in no part of the split", "unknown"
"""States of an entry in a list of ids."""

NAMED = 10
"""Maximum number of unusable ids of each kind that a message names."""


def sort_out(
    data: ImageData, ids: Sequence[str], states: Mapping[str, str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Separate the usable ids, each once, from the others, grouped by what is wrong.

    Args:
        data: The data set.
        ids: The list of ids.
        states: For each sample of the split `USABLE`, `FORGOTTEN` or `RETIRED`.
    """
    check_texts(ids, "ids")
    seen: set[str] = set()
    by_state: dict[str, list[str]] = {USABLE: []}
    for name in ids:
        state = states.get(name, UNUSED if name in data else UNKNOWN)
        by_state.setdefault(TWICE if name in seen else state, []).append(name)
        seen.add(name)
    return by_state.pop(USABLE), by_state


def unusable(data: ImageData, faults: Mapping[str, Sequence[str]], total: int) -> UserError:
    """The error for unusable ids in a list: how many of each kind, and the first ones."""
    kinds = [
        f"{len(faults[kind]):,} {kind} ({', '.join(map(repr, faults[kind][:NAMED]))}"
        f"{', ...' if len(faults[kind]) > NAMED else ''})"
        for kind in (TWICE, FORGOTTEN, RETIRED, UNUSED, UNKNOWN)
        if kind in faults
    ]
    hint = f": {data.hint(faults[UNKNOWN][0])}" if UNKNOWN in faults else "."
    bad = sum(map(len, faults.values()))
    which = f"Of the {total:,} ids, {bad:,}" if total > 1 else "The id"
    return UserError(
        f"{which} cannot be used: {'; '.join(kinds)}{hint} Nothing was changed; correct the list, "
        "or skip these ids with --skip-unusable (in Python: skip_unusable=True)."
    )


def class_number(data: ImageData, name: int | str) -> int:
    """The number of a class, from its number or name."""
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
    """The rows that match a rule on metadata, or on the sample's `class`."""
    parsed = parse_rule(rule)
    used = parsed.columns()
    columns = dict(data.metadata)
    if "class" in used and "class" not in columns:
        columns["class"] = tuple(data.classes[label] for label in data.labels.tolist())
    for column in sorted(used - columns.keys()):
        if not data.metadata:
            raise UserError(
                "The rule uses a metadata column, but there is no metadata; join a CSV file with "
                "--metadata FILE or data.join(FILE)."
            )
        # What a rule compares with is never quoted: it may name a person, and messages are logged.
        if any(each.value in columns for each in parsed.comparisons() if each.column == column):
            raise UserError("The rule has a value before the column; write user == 42.")
        raise unknown("metadata column", column, columns)
    for comparison in parsed.comparisons():
        _refuse_mixed_order(comparison, [columns[comparison.column][row] for row in rows.tolist()])
    return [
        row
        for row in rows.tolist()
        if parsed.matches({column: columns[column][row] for column in used})
    ]


def _refuse_mixed_order(comparison: Comparison, cells: Sequence[str]) -> None:
    """Raise if numbers are ordered against text, which is undefined: `user < front`."""
    known = [cell for cell in cells if cell]
    numeric = all(as_number(cell) is not None for cell in known)
    text = isinstance(comparison.value, str)
    if comparison.sign in ("==", "!=") or not known or numeric != text:
        return
    known_kind, other_kind = ("numbers", "a text") if numeric else ("texts", "a number")
    remedy = "a number" if numeric else "a text in quotes"
    raise UserError(
        f"The column {comparison.column!r} holds {known_kind}, which have no order with "
        f"{other_kind}; compare it with {remedy}."
    )
