"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.metrics.gap import SCORES
from qunlearn.metrics.membership import weakest_attack
from qunlearn.report.bars import gap_bars, runtime_bars
from qunlearn.report.beside import Beside, beside_retrain
from qunlearn.report.gather import check_writable, keep, outputs_after, outputs_before
from qunlearn.report.html import render
from qunlearn.report.outputs import AFTER, BEFORE, RETRAIN, confidence_panel, ranked_panel
from qunlearn.report.rows import LIRA, interval, notes, runtime
from qunlearn.report.sample import no_panels, sample_panels
from qunlearn.report.sections import (
    OutputFigures,
    again_command,
    conflict_figures,
    dates_of,
    facts_of,
    network_of,
    request_words,
    settings_used,
)
from qunlearn.report.summary import Answer, comparison_answers, request_answer_of
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import labels_of
from qunlearn.store.run import Run
from qunlearn.store.study import CONFIG, TABLE, StudyFolder
from qunlearn.study.config import CELLS, folder_name
from qunlearn.study.table import Table, TableRow, read_table


def report_comparison(path: Path, *, data: Path | None = None, image: bool = False) -> Path:
    """Write the page of a comparison into its folder; returns where it is.

    Args:
        path: The folder that `qunlearn compare` wrote.
        data: Where the data is now, if it was moved: a folder or an .npz file.
        image: Show the image of one forgotten sample.
    """
    if not (path / TABLE).is_file():
        raise UserError(
            f"The comparison {str(path)!r} was not finished; give the same `qunlearn compare` "
            "again, which resumes it."
        )
    check_writable(path)
    folder = StudyFolder(path)
    table = read_table(folder.table, path / TABLE)
    views = {row.method: view_of(row, table) for row in table.methods}
    best = nearest(table)
    verdicts = {method: beside_retrain(view) for method, view in views.items()}
    gaps = {row.method: {s: row.gaps[s][0] for s in SCORES} for row in table.methods}
    shares = {row.method: row.runtime[0] for row in table.methods}
    settings = {row.method: row.settings for row in table.rows}
    folders = {row.method: row.cells[0].folder for row in table.rows}
    cells = [(row.method, cell.folder) for row in table.rows for cell in row.cells]
    floor = table.noise_floor.AG[0] if table.noise_floor else None
    bars = gap_bars(gaps, floor), runtime_bars(shares)
    runs = {n: run for n, folder in folders.items() if (run := _cell(path, n, folder)) is not None}
    outputs = _outputs(runs, data, image)
    conflicts = conflict_figures(runs)
    infos = [run.info for cell in cells if (run := _cell(path, *cell)) is not None]
    page = render(
        "comparison.html.j2",
        folder=path.name,
        table=table,
        answers=[
            *answers_of(table),
            request_answer_of(
                request_words(table.parts["forget"], table.request, table.detail),
                table.parts["retain"],
                dates_of(infos),
            ),
        ],
        best=best,
        view=views[best.method],
        verdict=verdicts[best.method],
        verdicts=verdicts,
        interval=interval,
        runtime=runtime,
        notes=notes(table),
        lira=LIRA,
        gaps=bars[0],
        times=bars[1],
        outputs=outputs,
        conflicts=conflicts,
        command=again_command("compare", path / CONFIG, folder.config, ("model", "methods")),
        settings=settings | {name: settings_used(run) for name, run in runs.items()},
        facts={"seeds": "0" if table.seeds == 1 else f"0 to {table.seeds - 1}"}
        | next(map(network_of, runs.values()), {})
        | next(map(facts_of, infos), {}),
    )
    drawn = outputs.drawn if outputs else []
    return keep(path, page, [*bars, *drawn, *(figure for figure, _ in conflicts)])


def nearest(table: Table) -> TableRow:
    """The method that comes nearest to Retrain."""
    return min(table.methods, key=lambda row: row.AG[0])


def answers_of(table: Table) -> list[Answer]:
    """What a comparison shows, in words; nothing if it has no method."""
    if not table.methods:
        return []
    best = nearest(table)
    view = view_of(best, table)
    return comparison_answers(best.method, view, beside_retrain(view), table.seeds)


def view_of(row: TableRow, table: Table) -> Beside:
    """A method beside Retrain, with what chance makes of Retrain itself."""
    retrain = table.retrain
    pairs = list(combinations([cell.metrics.figures for cell in retrain.cells], 2))
    floors = {s: sum(abs(a[s] - b[s]) for a, b in pairs) / len(pairs) for s in SCORES if pairs}
    return Beside(
        after={s: mean for s, (mean, _) in row.figures.items()},
        before=table.original.figures,
        retrain={s: mean for s, (mean, _) in retrain.figures.items()},
        samples=table.parts,
        gap=row.AG[0],
        floor=table.noise_floor.AG[0] if table.noise_floor else None,
        floors=floors,
        attack=weakest_attack(c.metrics.attack_accuracy for c in (*row.cells, *retrain.cells)),
        lira=row.lira,
    )


def _outputs(runs: Mapping[str, Run], data: Path | None, image: bool) -> OutputFigures | None:
    """Of the runs with seed 0 that are there; None if none is."""
    if not runs:
        no_panels(image=image)
        return None
    some = next(iter(runs.values()))
    split = split_of(some, data)
    labels, before = labels_of(split), outputs_before(some, split)
    outputs = {n: o for n, run in runs.items() if (o := outputs_after(run, labels)) is not None}
    retrain = outputs.pop("retrain", None)
    models = ({"before forgetting": before} if before else {}) | outputs
    one, words = sample_panels(split, outputs, before, retrain, image=image)
    return OutputFigures(
        confidence=[confidence_panel(name, answer, retrain) for name, answer in models.items()],
        spread=[
            ranked_panel(name, {BEFORE: before, RETRAIN: retrain, AFTER: answer})
            for name, answer in outputs.items()
        ],
        one=one,
        words=words,
        before=before is not None,
        retrain=retrain is not None,
        whole_classes=split.whole_classes,
    )


def _cell(path: Path, method: str, folder: str) -> Run | None:
    """One of a method's runs; None if it is not there any more."""
    home = path if (path / CELLS).is_dir() else path.parent
    # The names come from a file; nothing is left in them that could lead elsewhere.
    cell = home / CELLS / folder_name(method) / folder_name(folder)
    return Run.open(cell) if Run.is_complete(cell) else None
