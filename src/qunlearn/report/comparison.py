"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.metrics.gap import SCORES
from qunlearn.metrics.membership import weakest_attack
from qunlearn.parts import detail_words
from qunlearn.report.bars import gap_bars, runtime_bars
from qunlearn.report.beside import Beside, beside_retrain
from qunlearn.report.drawing import Drawn
from qunlearn.report.gather import check_writable, keep, outputs_after, outputs_before
from qunlearn.report.heat import heat_map
from qunlearn.report.html import Safe, counted, join, page, section, tag
from qunlearn.report.outputs import AFTER, BEFORE, RETRAIN, confidence_panel, ranked_panel
from qunlearn.report.rows import comparison_table
from qunlearn.report.sample import no_panels, sample_panels
from qunlearn.report.sections import (
    MARKS,
    again_command,
    again_section,
    answers_section,
    cautions,
    confidence_section,
    conflict_section,
    dates_of,
    facts_of,
    network_of,
    opening,
    score_tiles,
    settings_used,
    tile,
    tiles,
)
from qunlearn.report.verdict import Verdict
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import labels_of
from qunlearn.runs.explain import conflict_of
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
            "again, which goes on where it was."
        )
    check_writable(path)
    folder = StudyFolder(path)
    table = read_table(folder.table, path / TABLE)
    views = {row.method: view_of(row, table) for row in table.methods}
    best = min(table.methods, key=lambda row: row.AG[0])
    first = join(_opening(path, table, views, best), section("The table", comparison_table(table)))
    gaps = {row.method: {s: row.gaps[s][0] for s in SCORES} for row in table.methods}
    shares = {row.method: row.runtime[0] for row in table.methods}
    settings = {row.method: row.settings for row in table.rows}
    folders = {row.method: row.cells[0].folder for row in table.rows}
    cells = [(row.method, cell.folder) for row in table.rows for cell in row.cells]
    floor = table.noise_floor.AG[0] if table.noise_floor else None
    bars = gap_bars(gaps, floor), runtime_bars(shares)
    runs = {n: run for n, folder in folders.items() if (run := _cell(path, n, folder)) is not None}
    outputs, drawn = _outputs(runs, data, image)
    conflicts = {
        name: (heat_map(name, found), found.words())
        for name, run in runs.items()
        if any("conflict" in row for row in run.history)
        for found in [conflict_of(run.path)]
    }
    infos = [run.info for cell in cells if (run := _cell(path, *cell)) is not None]
    whole = page(
        f"{path.name}: did the models forget?",
        first,
        tag("p", dates_of(infos), class_="note"),
        _bars(*bars),
        outputs,
        conflict_section(conflicts),
        again_section(
            again_command("compare", path / CONFIG, folder.config, ("model", "methods")),
            settings | {name: settings_used(run) for name, run in runs.items()},
            {"seeds": "0" if table.seeds == 1 else f"0 to {table.seeds - 1}"}
            | next(map(network_of, runs.values()), {})
            | next(map(facts_of, infos), {}),
            "This makes the comparison again in the folder NEW. The same seeds, thread count, "
            "versions and processor give the same numbers, but for the times.",
        ),
    )
    figures = [*bars, *drawn, *(figure for figure, _ in conflicts.values())]
    return keep(path, whole, figures)


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


def _opening(path: Path, table: Table, views: Mapping[str, Beside], best: TableRow) -> Safe:
    name, verdicts = best.method, {m: beside_retrain(view) for m, view in views.items()}
    view = views[name]
    gap = {"noise floor": f"{table.noise_floor.AG[0]:.1f}"} if table.noise_floor else {}
    time = {"seconds": f"{best.seconds[0]:,.1f}"}
    shown = tiles(
        *score_tiles(view.before, view.after, view.retrain),
        tile("Mean gap to Retrain (AG)", f"{view.gap:.1f}", "points", gap),
        tile("Time, as a share of Retrain's", f"{best.runtime[0]:.0f}", "%", time),
    )
    return opening(
        f"Comparison: {path.name}",
        f"{counted(len(views), 'method')} beside Retrain, {counted(table.seeds, 'seed')}. "
        f"{request_of(table)}",
        f"Did the method nearest to Retrain, {name}, make the model forget?",
        verdicts[name],
        tag("h3", f"{name}: before, after, and what a retrained model does"),
        shown,
        cautions(verdicts[name]),
        tag("h3", "Every method in a word"),
        _each(verdicts),
    )


def _each(verdicts: Mapping[str, Verdict]) -> Safe:
    return tag(
        "ul",
        *(
            tag("li", f"{name}: ", tag("b", f"{MARKS[v.level]} {v.word}"), class_=v.level)
            for name, v in verdicts.items()
        ),
        class_="each",
    )


def request_of(table: Table) -> str:
    """What was to be forgotten, in a sentence."""
    detail = detail_words(table.detail)
    asked = f"{table.request}: {detail}" if detail else table.request
    forget, kept = table.parts["forget"], table.parts["retain"]
    return f"To be forgotten: {counted(forget, 'sample')} ({asked}); kept: {kept:,}."


def _bars(gaps: Drawn, times: Drawn) -> Safe:
    return join(
        section(
            "How far from Retrain",
            tag(
                "p",
                "The gaps of the four figures to Retrain's, laid end to end. Short is good; within "
                "the noise floor a method cannot be told from Retrain.",
            ),
            gaps.html(),
        ),
        section(
            "How long it takes",
            tag(
                "p",
                "The time to forget as a share of the time to train anew without the samples. "
                "Short is good; beyond the dashed line training anew would have been quicker.",
            ),
            times.html(),
        ),
    )


def _outputs(runs: Mapping[str, Run], data: Path | None, image: bool) -> tuple[Safe, list[Drawn]]:
    """The figures that are made from outputs, of the runs with seed 0 that are there."""
    if not runs:
        return Safe(""), no_panels(image=image)[0]
    some = next(iter(runs.values()))
    split = split_of(some, data)
    labels, before = labels_of(split), outputs_before(some, split)
    found = {n: o for n, run in runs.items() if (o := outputs_after(run, labels)) is not None}
    retrain = found.pop("retrain", None)
    sure = [confidence_panel("before forgetting", before, retrain)] if before else []
    sure += [confidence_panel(name, own, retrain) for name, own in found.items()]
    spread = [
        ranked_panel(name, {BEFORE: before, RETRAIN: retrain, AFTER: own})
        for name, own in found.items()
    ]
    one, words = sample_panels(split, found, before, retrain, image=image)
    shown = join(
        confidence_section(sure, retrain is not None, before is not None, split.whole_classes),
        answers_section(spread, one, words, retrain is not None),
    )
    return shown, [*sure, *spread, *one]


def _cell(path: Path, method: str, folder: str) -> Run | None:
    """One of a method's runs; None if it is not there any more."""
    home = path if (path / CELLS).is_dir() else path.parent
    # The names come from a file; nothing is left in them that could lead elsewhere.
    cell = home / CELLS / folder_name(method) / folder_name(folder)
    return Run.open(cell) if Run.is_complete(cell) else None
