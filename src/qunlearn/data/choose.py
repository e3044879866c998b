"""Which samples are meant: by share, by id, by class, by rule."""

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
    """Refuse a share that is not between 0 and 1."""
    if not 0 < share < 1:  # NaN fails this too
        raise UserError(f"The share to {purpose} is {share}; choose one between 0 and 1.")


def draw_held_out(data: ImageData, share: float, seed: int, test: bool = False) -> Tensor:
    """Draw this share of each class's training samples, or of its `test` samples."""
    check_share(share, "hold out")
    drawn: list[int] = []
    among = data.is_test if test else ~data.is_test
    for label, rows in by_class(among.nonzero().flatten().tolist(), data.labels).items():
        order = shuffled([data.ids[row] for row in rows], "held-out", seed, label)
        # At least one of each class, or unseen data of that class has no example; but never all.
        size = min(max(round(share * len(rows)), 1), len(rows) - 1)
        drawn += [rows[position] for position in order[:size]]
    return torch.tensor(sorted(drawn), dtype=torch.int64)


def check_texts(ids: Sequence[str], argument: str) -> None:
    """Refuse a list of ids that is none."""
    if isinstance(ids, str):
        raise UserError(f"{argument} is the text {ids!r}; give a list of ids, such as [{ids!r}].")
    for name in ids:
        if not isinstance(name, str):
            raise UserError(
                f"The id {name!r} is not text; ids are text, such as 'train/42'. For positions, "
                "use data.ids[position]."
            )


def resolve(data: ImageData, ids: Sequence[str], argument: str) -> Tensor:
    """Where the listed samples are, in the order of the list; each is to be listed once."""
    check_texts(ids, argument)
    repeated = first_repeated(ids)
    if repeated is not None:
        raise UserError(f"The id {repeated!r} is listed twice; list each sample once.")
    return data.index_of(ids)


USABLE = "usable"
TWICE, FORGOTTEN, RETIRED = "listed twice", "already forgotten", "already retired"
UNUSED, UNKNOWN = "in no part of the split", "unknown"
"""What an entry in a list of ids can be."""

NAMED = 10
"""How many ids are named of each kind that cannot be used."""


def sort_out(
    data: ImageData, ids: Sequence[str], states: Mapping[str, str]
) -> tuple[list[str], dict[str, list[str]]]:
    """The ids that can be asked for, each once, and the other entries by what is wrong with them.

    Args:
        data: The data set.
        ids: The list.
        states: For each sample of the split `USABLE`, `FORGOTTEN` or `RETIRED`.
    """
    check_texts(ids, "ids")
    seen: set[str] = set()
    found: dict[str, list[str]] = {USABLE: []}
    for name in ids:
        state = states.get(name, UNUSED if name in data else UNKNOWN)
        found.setdefault(TWICE if name in seen else state, []).append(name)
        seen.add(name)
    return found.pop(USABLE), found


def unusable(data: ImageData, faults: Mapping[str, Sequence[str]], total: int) -> UserError:
    """The error for a list in which some entries cannot be used: how many, and the first ones."""
    kinds = [
        f"{len(faults[kind]):,} {kind} ({', '.join(map(repr, faults[kind][:NAMED]))}"
        f"{', ...' if len(faults[kind]) > NAMED else ''})"
        for kind in (TWICE, FORGOTTEN, RETIRED, UNUSED, UNKNOWN)
        if kind in faults
    ]
    hint = f": {data.hint(faults[UNKNOWN][0])}" if UNKNOWN in faults else "."
    return UserError(
        f"Of the {total:,} ids, {sum(map(len, faults.values())):,} cannot be used: "
        f"{'; '.join(kinds)}{hint} Nothing was done; correct the list, or leave these ids out with "
        "--skip-unusable (in Python: skip_unusable=True)."
    )


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
