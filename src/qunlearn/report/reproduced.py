"""Our blocks beside the paper's: runtime, entropy and quantizers, and the paper's errata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qunlearn.report.rows import interval, runtime
from qunlearn.report.tables import TextTable
from qunlearn.study.reproduce import Block

BELOW = "oeu below qmul"
"""The row that says how far the AG of OEU is below Q-MUL's."""

QUANTIZERS_EXPLAINED = "none: full precision. In brackets: the paper's, where it says."


def variant_words(names: Iterable[str]) -> list[str]:
    """How the networks of the authors' earlier code differ, for the blocks of these names."""
    networks = {
        False: "ResNet-18 with 4-bit weights and 8-bit inputs, its shortcuts in full precision",
        True: "MobileNetV2 at half width, with 2-bit weights and inputs in full precision",
    }
    return [
        f"Variant: {networks[mobile]}; LSQ, and first and last layers in full precision, as in the "
        "same\nauthors' earlier code."
        for mobile in sorted({"mobilenetv2" in name for name in names})
    ]


def errata_words(block: Block) -> list[str]:
    """What contradicts itself in the paper, or is not said there, of what is shown."""
    shown = {row.method for row in block.table.rows}
    table = [
        f"The paper, {method}, the table: {row.note}."
        for method, row in block.paper.items()
        if method in shown and row.note
    ]
    text = [
        f"The paper, {row.method}, {row.figure}: {row.note}." for row in block.stated if row.note
    ]
    return table + text


def runtime_table(block: Block) -> TextTable:
    """How long each method takes."""
    stated = {row.method: row.value for row in block.stated}
    rows = []
    for row in block.table.rows:
        minutes = stated.get(row.method)
        paper = (
            [f"{minutes:g} min", f"{100 * minutes / stated['retrain']:.1f} %"]
            if minutes
            else ["", ""]
        )
        rows.append([row.method, interval(row.seconds, 1), runtime(row), *paper])
    return TextTable(["method", "seconds", "of Retrain's", "the paper", "of its Retrain's"], rows)


def entropy_table(block: Block) -> TextTable:
    """The entropy that each method leaves on forgotten and on unseen samples."""
    parts = {"forget": "forgotten", "held_out": "held out", "test": "test"}
    before = block.table.original.parts
    stated = {row.method: f"{row.value:.3f}" for row in block.stated}
    rows = [["before forgetting", *(f"{before[part].entropy:.3f}" for part in parts), ""]]
    for row in block.table.rows:
        cells = [interval(row.entropy[part], 3) for part in parts]
        rows.append([row.method, *cells, stated.get(row.method, "")])
    return TextTable(["entropy, in nats", *parts.values(), "the paper, forgotten"], rows)


EXTRA_TABLES = {"runtime": runtime_table, "entropy": entropy_table}
"""The experiments that show a further table below each block."""


def quantizer_tables(blocks: Sequence[Block]) -> list[TextTable]:
    """AG by quantizer, and how far OEU's is below Q-MUL's; a table for each data set."""
    tables = []
    for dataset in dict.fromkeys(block.dataset for block in blocks):
        columns = {b.quantizer: _column(b) for b in blocks if b.dataset == dataset}
        names = dict.fromkeys(name for column in columns.values() for name in column)
        rows = [[name, *(column.get(name, "") for column in columns.values())] for name in names]
        tables.append(TextTable([f"AG on {dataset}", *columns], rows))
    return tables


def _column(block: Block) -> dict[str, str]:
    """The AG of each method with one quantizer, with the paper's in brackets."""
    shown = {row.method: interval(row.AG) for row in block.table.methods}
    if (below := block.below("oeu", "qmul")) is not None:
        shown[BELOW] = f"{below:.1f} %"
    paper = {name: f"{row.AG:.2f}" for name, row in block.paper.items()}
    for row in block.stated:
        if row.figure == "AG":
            paper[row.method] = f"{row.value:.2f}"
        else:
            paper[BELOW] = f"{row.value:.1f} %"
    return {name: f"{v} [{paper[name]}]" if name in paper else v for name, v in shown.items()}
