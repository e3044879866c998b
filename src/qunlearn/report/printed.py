"""What `compare` and `reproduce` print, in order: sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from qunlearn.report.comparison import answers_of
from qunlearn.report.reproduced import (
    EXTRA_TABLES,
    QUANTIZERS_EXPLAINED,
    errata_words,
    quantizer_tables,
    variant_words,
)
from qunlearn.report.rows import LIRA, notes
from qunlearn.report.tables import (
    MARKS_EXPLAINED,
    TextTable,
    comparison_table,
    lira_names,
    predictions_table,
)
from qunlearn.study.paper import PaperRow
from qunlearn.study.reproduce import Block
from qunlearn.study.scenarios import ReproduceConfig
from qunlearn.study.table import Table

Part = str | TextTable


def comparison_parts(
    table: Table, paper: Mapping[str, PaperRow] = MappingProxyType({}), title: str = ""
) -> Iterator[Part]:
    """What a comparison shows in words, the four figures, and the predictions."""
    for answer in answers_of(table):
        yield f"{answer.question} {answer.words}"
    yield "\nFor engineers"
    yield comparison_table(table, paper, title)
    yield MARKS_EXPLAINED
    yield from notes(table)
    yield predictions_table(table)
    if lira_names(table):
        yield LIRA


def block_parts(block: Block, what: str) -> Iterator[Part]:
    """A block of an experiment beside the paper's, and what is wrong in the paper."""
    yield from comparison_parts(block.table, block.paper, block.name)
    if table_of := EXTRA_TABLES.get(what):
        yield table_of(block)
    yield from errata_words(block)


def closing_parts(config: ReproduceConfig, blocks: Sequence[Block]) -> Iterator[Part]:
    """What is shown once all blocks of an experiment are made."""
    if config.what == "quantizers":
        yield from quantizer_tables(blocks)
        yield QUANTIZERS_EXPLAINED
    if config.variant == "released":
        yield from variant_words(block.name for block in blocks)
